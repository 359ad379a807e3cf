"""A program under test and the test that calls it: two processes, and a socket that only plain values cross.

The test has a `Remote` for each name of the program. What a call of one gives is None, a bool, number, text, bytes, or
a list, tuple, set or dict of such, each of exactly that type; anything else stays where it is and is a `Remote` too,
which cannot be compared. So nothing that the program redefines, prints or ends reaches the process that judges.

Arguments cross as copies. Where a call returns None, which is how a function that works in place ends, the lists,
dicts and sets that it was given get what the program made of them; a call that returns a value changes none, so that
no program can make a test's own data fit what it returns. A test of a function that does both names the argument that
it reads afterwards: `xs = in_place([3, 2, 3])`, then `k = f(xs, 3)`.
"""

from __future__ import annotations

import builtins
import itertools
import json
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from .wire import BadFrame, Bounds, pack, read_frame, write_all

DESCRIPTOR = 4
"""The end of the socket that each of the two has."""
_BOUNDS = Bounds(64 << 20)
_KINDS: Mapping[str, tuple[type, Callable[[Any], Any]]] = {
    "tuple": (list, tuple),
    "set": (list, set),
    "frozenset": (list, frozenset),
    "dict": (list, dict),
    "bytes": (str, bytes.fromhex),
    "int": (str, lambda digits: int(digits, 16)),
    "complex": (list, lambda parts: complex(float(parts[0]), float(parts[1]))),
}
"""Values that JSON has no word for: the type that each comes as, and what makes it."""
_REQUEST = {"do": str, "on": int, "arguments": list, "keywords": dict, "in_place": bool}
_REPLIES = ({"value": object}, {"value": object, "arguments": list}, {"raised": list, "arguments": list})
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
"""Raised by a program these would end a loop of the test, so that the rest of its checks is left out."""


class ProgramFault(BaseException):
    """The program is gone, or does what no test can expect; no `except Exception` of a test takes it for an error."""


class _InPlaceList(list[Any]):
    """A list whose changes a test reads though the call returns a value."""


class _InPlaceDict(dict[Any, Any]):
    """The same of a dict."""


class _InPlaceSet(set[Any]):
    """The same of a set."""


_MARKED: Mapping[Any, Callable[[Any], Any]] = {list: _InPlaceList, dict: _InPlaceDict, set: _InPlaceSet}


def in_place(value: Any) -> Any:
    """A copy of a list, dict or set that gets what a call makes of it, whatever the call returns."""
    if type(value) not in _MARKED:
        raise TypeError(f"in_place takes a list, dict or set, no {type(value).__name__}")
    return _MARKED[type(value)](value)


def _is_marked(value: Any) -> bool:
    return type(value) in _MARKED.values()


class Remote:
    """An object of the other process."""

    __slots__ = ("__ask", "__number")

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        object.__setattr__(self, "_Remote__ask", ask)
        object.__setattr__(self, "_Remote__number", number)

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        return self.__ask("call", self.__number, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # by which others, such as NumPy, would let it say what it is
            raise AttributeError(name)
        return self.__ask("get", self.__number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__ask("set", self.__number, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self.__ask("item", self.__number, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__ask("set_item", self.__number, key, value)

    def __iter__(self) -> Iterator[Any]:
        iterator = self.__ask("iter", self.__number)
        if type(iterator) is not Remote:
            raise ProgramFault("the program's iterator is none")
        while found := iterator.__ask("next", iterator.__number):
            yield _require(found, list)[0]

    def __len__(self) -> int:
        return operator.index(self.__ask("len", self.__number))

    def __str__(self) -> str:
        return str(_require(self.__ask("str", self.__number), str))

    def __repr__(self) -> str:
        return "<object of the program>"

    def _refuse_comparison(self, *_: Any) -> NoReturn:
        raise ProgramFault("an object of the program is compared; a test compares plain values, such as its attributes")

    __eq__ = __ne__ = __bool__ = __hash__ = _refuse_comparison


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "call": lambda function, *arguments, **keywords: function(*arguments, **keywords),
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "iter": iter,
    "next": lambda iterator: [*itertools.islice(iterator, 1)],
    "len": len,
    "str": str,
}
"""Operations of one process on objects of the other; a program of those of its test only `call`."""


class _Peer:
    """One end: asks, and answers what is asked meanwhile."""

    def __init__(self, *, is_program: bool) -> None:
        self._is_program = is_program
        self._objects: list[Any] = []
        self._exceptions: dict[str, type[Exception]] = {}
        self._num_asked = 0
        self._failed: AssertionError | None = None
        """Of a test's function that the program called: the program may swallow it, the test may not."""
        self._one_at_a_time = threading.RLock()

    def ask(self, what: str, number: int, /, *arguments: Any, **keywords: Any) -> Any:
        """The result of an operation on an object of the other process. Raises its exception, or ProgramFault."""
        given = (*arguments, *keywords.values())
        message = {
            "do": what,
            "on": number,
            "arguments": [self._pack_value(each) for each in arguments],
            "keywords": {name: self._pack_value(each) for name, each in keywords.items()},
            "in_place": any(map(_is_marked, given)),
        }
        with self._one_at_a_time:
            reply = self._ask_message(message)
        if self._failed is not None:
            raise self._failed
        if "value" not in reply:
            raise self._make_exception(reply)
        if "arguments" in reply:
            for argument, changed in zip(given, reply["arguments"], strict=False):
                if reply["value"] is None or _is_marked(argument):
                    _take_over(argument, self._unpack_value(changed))
        return self._unpack_value(reply["value"])

    def _ask_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a message, after what is asked meanwhile. Raises ProgramFault for anything else."""
        self._num_asked += 1
        number = self._num_asked
        self._send_message(number, message)
        while True:
            answered, reply = self._receive_message()
            if "do" in reply:
                self._answer_message(answered, reply)
                continue
            if answered != number or not any(_fits(reply, keys) for keys in _REPLIES):
                raise ProgramFault("the program answers with something else")
            return reply

    def serve(self, scope: Mapping[str, Any], failed: str | None) -> None:
        """Reports what a program has defined, or why it failed, and answers until the test has ended."""
        names = {name: value for name, value in scope.items() if not name.startswith("__")}
        self._objects.append(sys.modules[scope["__name__"]])
        self._send_message(
            0, {"failed": failed, "names": {name: self._pack_offered(value) for name, value in names.items()}}
        )
        while (received := self._receive_or_end()) is not None:
            self._answer_message(*received)

    def meet(self) -> dict[str, Any]:
        """The names that a test finds: those of its program but built-in ones and modules, and `program` itself."""
        _, message = self._receive_message()
        if message.get("failed") is not None:
            raise ProgramFault(f"the program fails: {message['failed']}")
        if not _fits(message, {"failed": object, "names": dict}):
            raise ProgramFault("the program answers with something else")
        kept = message["names"].keys() - dir(builtins) - sys.stdlib_module_names
        found = {name: self._unpack_offered(name, message["names"][name]) for name in sorted(kept)}
        sys.modules["program"] = found["program"] = Remote(self.ask, 0)  # type: ignore[assignment]
        found["in_place"] = in_place  # last: a program of the same name must not decide what its test reads
        return found

    def _pack_offered(self, value: Any) -> Any:
        if isinstance(value, type) and issubclass(value, Exception):
            return {"exception": _ancestor_names(value)}
        return self._pack_value(value)

    def _unpack_offered(self, name: str, packed: Any) -> Any:
        if isinstance(packed, dict) and "exception" in packed:
            base = _find_exception(packed["exception"], {})
            self._exceptions[name] = type(name, (base if base is not None else Exception,), {})
            return self._exceptions[name]
        return self._unpack_value(packed)

    def _answer_message(self, number: int, message: Mapping[str, Any]) -> None:
        if not _fits(message, _REQUEST) or not 0 <= message["on"] < len(self._objects):
            raise ProgramFault("the program asks for something else")
        try:
            target = self._objects[message["on"]]
            if not self._is_program and message["do"] != "call":
                raise TypeError("a program may only call what its test hands to it")
            arguments = [self._unpack_value(each) for each in message["arguments"]]
            keywords = {name: self._unpack_value(each) for name, each in message["keywords"].items()}
            value = _OPERATIONS[message["do"]](target, *arguments, **keywords)
            reply = {"value": self._pack_value(value)}
            if self._is_program and message["do"] == "call" and (value is None or message["in_place"]):
                reply["arguments"] = [self._pack_value(each) for each in (*arguments, *keywords.values())]
        except ProgramFault:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again on the other side
            if isinstance(error, AssertionError) and not self._is_program:
                self._failed = error
            reply = {"raised": _ancestor_names(type(error)), "arguments": _plain_arguments(error)}
        self._send_message(number, reply)

    def _make_exception(self, reply: Mapping[str, Any]) -> BaseException:
        names, arguments = reply.get("raised"), reply.get("arguments")
        found = _find_exception(names, self._exceptions)
        if found is None or not isinstance(arguments, list):
            return ProgramFault(f"the program raised {names}: {arguments}")
        try:
            return found(*arguments)
        except TypeError:  # one that is made of something else
            return ProgramFault(f"the program raised {names}: {arguments}")

    def _pack_value(self, value: Any) -> Any:
        """A value as JSON; an instance of a subclass as the plain value that it holds."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, int):
            return int(value) if abs(value) < 1 << 53 else {"int": hex(value)}
        if isinstance(value, list):
            return [self._pack_value(each) for each in value]
        for kind in (tuple, set, frozenset):
            if isinstance(value, kind):
                return {kind.__name__: [self._pack_value(each) for each in value]}
        if isinstance(value, dict):
            return {"dict": [[self._pack_value(key), self._pack_value(each)] for key, each in value.items()]}
        if isinstance(value, bytes | bytearray):
            return {"bytes": value.hex()}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, Remote):
            return {"yours": object.__getattribute__(value, "_Remote__number")}
        if self._is_program and callable(getattr(type(value), "tolist", None)):  # arrays and numbers of NumPy
            return self._pack_value(value.tolist())
        if not self._is_program and not callable(value):
            raise TypeError(f"a test hands plain values and functions to its program, no {type(value).__name__}")
        self._objects.append(value)
        return {"object": len(self._objects) - 1}

    def _unpack_value(self, packed: Any) -> Any:
        """The value. Raises ProgramFault for what is none, so that no `except` of a test takes it for an error."""
        try:
            return self._unpack_part(packed)
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as fault:
            raise ProgramFault("the program answers with something else") from fault

    def _unpack_part(self, packed: Any) -> Any:
        if isinstance(packed, list):
            return [self._unpack_part(each) for each in packed]
        if not isinstance(packed, dict):
            return packed
        ((kind, content),) = packed.items()
        if kind == "object":
            return Remote(self.ask, _require(content, int))
        if kind == "yours":
            return self._objects[_require(content, int)]
        expected, make = _KINDS[kind]
        return make(self._unpack_part(_require(content, expected)))

    def _send_message(self, number: int, message: Mapping[str, Any]) -> None:
        try:
            write_all(DESCRIPTOR, pack(number, message))
        except OSError as gone:
            raise ProgramFault("the program has ended") from gone

    def _receive_message(self) -> tuple[int, dict[str, Any]]:
        received = self._receive_or_end()
        if received is None:
            raise ProgramFault("the program has ended")
        return received

    def _receive_or_end(self) -> tuple[int, dict[str, Any]] | None:
        try:
            frame = read_frame(lambda size: os.read(DESCRIPTOR, size), _BOUNDS)
            return None if frame is None else (frame.number, frame.read())
        except (OSError, BadFrame) as fault:
            raise ProgramFault(f"the program answers with something else: {fault}") from fault


def _take_over(argument: Any, changed: Any) -> None:
    """Makes an argument of a test what its program made of the copy, as far as it is one that can be changed."""
    kind: Any = type(argument).__base__ if _is_marked(argument) else type(argument)
    if kind is not type(changed):
        return
    if kind is list:
        argument[:] = changed
    elif kind in (dict, set):
        argument.clear()
        argument.update(changed)
    elif kind is tuple:
        for each, new in zip(argument, changed, strict=False):
            _take_over(each, new)


def names_of_program() -> dict[str, Any]:
    """The names that the test finds. Raises ProgramFault where the program itself fails."""
    return _Peer(is_program=False).meet()


def serve_program(scope: Mapping[str, Any], failed: str | None) -> None:
    """Lets the test use what a program has defined, until the test has ended."""
    _Peer(is_program=True).serve(scope, failed)


def _ancestor_names(kind: type) -> list[str]:
    return [each.__name__ for each in kind.__mro__]


def _find_exception(names: Any, own: Mapping[str, type[Exception]]) -> type[Exception] | None:
    """The first of the names that is an exception here; None where none is that a test may meet."""
    for name in names if isinstance(names, list) else ():
        found = own.get(name) or getattr(builtins, str(name), None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found if issubclass(found, Exception) and not issubclass(found, _ENDS_LOOPS) else None
    return None


def _plain_arguments(error: BaseException) -> list[Any]:
    try:
        json.dumps(error.args)
    except (TypeError, ValueError, RecursionError):
        return [str(error)]
    return list(error.args)


def _require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ProgramFault(f"the program answers with a {type(value).__name__} where a {kind.__name__} is due")
    return value


def _fits(message: Mapping[str, Any], keys: Mapping[str, type]) -> bool:
    return message.keys() == keys.keys() and all(
        kind is object or type(message[name]) is kind for name, kind in keys.items()
    )
