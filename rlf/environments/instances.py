"""An instance of a user's class as a world, wherever it lives."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from numbers import Real
from pathlib import Path
from types import MethodType
from typing import Any, NoReturn, Protocol, TextIO, cast

from rlf.core import RlfError, nearest
from rlf.core.callables import is_async
from rlf.core.text import describe
from rlf.environments.world import Step, World
from rlf.tools.execution.detached import CancelledItself
from rlf.tools.misfits import ArgumentAdapter
from rlf.tools.python.description import describe_function
from rlf.tools.python.threads import ThreadPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription

# A user's class as a world: which methods are tools, what its reset takes, what its scores are.
#
# Classes written for TRL's `environment_factory` are such classes: `reset(**columns)`, public methods as tools, and
# `get_reward`, or an attribute that its reward functions read.

GET_REWARD = "get_reward"
"""The method that is the score `reward` of a class without a method `score`, as TRL has it."""
LIFE = ("reset", "reply", "score", GET_REWARD, "gold", "state", "snapshot", "restore", "close")
"""Methods that rlf calls by itself; none of them is a tool."""
REWARD = "reward"
_NUMBERS = (REWARD, "score")
"""Attributes that are the scores of a class with neither method, each by its name."""
# Neither `random.Random(7)`, nor `random` of another object or package.
_DRAWS = re.compile(r"(?<![\w.])random\.[a-z]\w*\(|^\s*from random import (?!Random\b)", re.MULTILINE)
GRADER = re.compile(r"((get|compute|calculate)_)?(reward|score)s?|verify_tool")
"""Names of methods that other libraries score by: a policy that can call one asks for its own reward."""
DONE = "done"
"""The attribute that says that the episode is over, of a class that has it."""

REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError, PermissionError)
"""Exceptions of a tool's method about its arguments: the model reads them. All others are the world's own failures."""


def import_shared(made_by: Callable[..., Any], args: Mapping[str, Any]) -> None:
    """Has a class load what its instances share, once; of one with `import_shared`, a static or a class method."""
    if (prepare := getattr(made_by, "import_shared", None)) is not None:
        token = _IN_WORLD.set(True)
        try:
            prepare(**args)
        finally:
            _IN_WORLD.reset(token)


def tool_names(made_by: type[Any]) -> list[str]:
    """Public methods of a class without its lifecycle methods, in the order of their definition."""
    names: dict[str, None] = {}
    for known in reversed(made_by.__mro__[:-1]):
        for name, member in vars(known).items():
            if not name.startswith("_") and name not in LIFE and inspect.isfunction(member):
                names[name] = None
    return list(names)


def describe_methods(made_by: type[Any], called: str, chosen: tuple[str, ...] | None) -> list[ToolDescription]:
    """The tools of a class, from hints and docstrings.

    Args:
        called: what messages call the class.
        chosen: names of the methods that are tools; None: all public ones.

    Raises:
        RlfError: there is no such method, or its signature or docstring does not say enough.
    """
    known = tool_names(made_by)
    for name in chosen or ():
        if name not in known:
            raise RlfError(
                f"{called} has no method {name!r} that can be a tool{nearest(name, known)} "
                f"(known: {', '.join(known) or 'none'}). Write one of these."
            )
    return [_describe(name, made_by, f"{called}.{name}") for name in chosen or known]


def _describe(name: str, made_by: type[Any], called: str) -> ToolDescription:
    described = describe_function(MethodType(getattr(made_by, name), made_by), called)
    if not described.description:
        raise RlfError(f"{called} has no docstring, which the model reads. Write one, or rename it with a leading `_`.")
    return replace(described, name=name)


def reset_arguments(reset: Callable[..., Any], task: Task, seed: int) -> dict[str, Any]:
    """The arguments of a bound `reset`: `task`, `seed`, and the row's columns by name, all of them for `**`."""
    offered: Mapping[str, Any] = {**task.columns, "task": task, "seed": seed}
    parameters = inspect.signature(reset).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        named = {name: offered[name] for name in ("task", "seed") if name in parameters}
        return {**task.columns, **named}
    return {name: offered[name] for name in parameters if name in offered}


def draws_shared(made_by: Callable[..., Any]) -> bool:
    """Whether worlds may draw from Python's shared random numbers: `reset` takes no seed, and its file draws some."""
    reset = getattr(made_by, "reset", None)
    if reset is None or "seed" in inspect.signature(reset).parameters:
        return False
    try:
        file = inspect.getsourcefile(made_by)
        return file is not None and _DRAWS.search(Path(file).read_text(encoding="utf-8")) is not None
    except (OSError, TypeError, ValueError):  # made at run time
        return False


def missing_columns(made_by: Callable[..., Any], columns: Collection[str]) -> list[str]:
    """Parameters of `reset` that have no default, and that rows lack."""
    reset = getattr(made_by, "reset", None)
    if reset is None:
        return []
    parameters = list(inspect.signature(reset).parameters.values())[1:]
    taken = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in taken]
    return [name for name in needed if name not in ("task", "seed", *columns)]


def attribute_scores(made_by: Callable[..., Any]) -> tuple[str, ...]:
    """The scores that a class without a method `score` may have."""
    if callable(getattr(made_by, GET_REWARD, None)):
        return (REWARD,)
    try:
        source = "\n".join(map(inspect.getsource, getattr(made_by, "__mro__", ())[:-1]))
    except (OSError, TypeError):  # made at run time, so that only playing shows it
        return _NUMBERS
    return tuple(name for name in _NUMBERS if hasattr(made_by, name) or re.search(rf"self\.{name}\b", source))


def kept_attributes(instance: Any) -> dict[str, Any]:
    """What is known of an instance elsewhere: the end, and the numbers that are its scores."""
    values = {name: getattr(instance, name, None) for name in (DONE, *_NUMBERS)}
    # A method may have the name, and a `score` of another class may be anything, such as a table.
    known = {name: one for name, one in values.items() if one is not None and not callable(one)}
    return {name: one for name, one in known.items() if name != "score" or isinstance(one, Real)}


def _to_scores(value: Any, instance: Any) -> dict[str, float]:
    """The values of `score` by name; a bare number is `score`, and attributes stand in where there is none."""
    if value is None:
        value = {name: one for name, one in kept_attributes(instance).items() if name in _NUMBERS}
        if not value:
            raise TypeError("got None; expected a number, a mapping of numbers, or an attribute `reward`")
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return {"score": float(value)}


def to_actions(value: Any) -> tuple[ToolCall | str, ...] | None:
    """The solution of a task, from texts and calls; None where it is not known. Raises TypeError for anything else."""
    if value is None:
        return None
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"got {value!r:.80}; expected a list of answers and of calls with `name` and `arguments`")
    return tuple(map(_to_action, value))


def _to_action(value: Any) -> ToolCall | str:
    if isinstance(value, str | ToolCall):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return ToolCall(value["name"], value.get("arguments") or {})
    raise TypeError(f"got {value!r:.80}; expected an answer as text, or a call with `name` and `arguments`")


UNFIT = "the world's code answers with something else than a result"


class InstancePlace(Protocol):
    """Where the instances of a class live."""

    @property
    def runs_on_loop(self) -> bool:
        """Whether any code of the class is awaited on the event loop, where it could swallow its cancellation."""

    async def make(self) -> Any:
        """Makes an instance, or a stand-in with its attributes."""

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method. Raises its exception, or a ToolFailure with the same meaning."""

    async def live(self, instance: Any, name: str, /, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has no such method."""

    async def seed(self, instance: Any, seed: int) -> None:
        """Has Python's shared random numbers begin at a seed, as the instance draws them."""

    async def discard(self, instance: Any) -> None:
        """Releases what an instance holds, after its last call."""


class StandIn:
    """Has the attributes of an instance that lives elsewhere: methods of its life by signature, the end, the reward."""

    def __init__(self, made_by: Callable[..., Any], home: Any) -> None:
        self.home = home
        """Where the instance lives, as its place knows it."""
        for name in (*LIFE, "call", "review", "hear"):  # the last three of a `RowWorld`
            if callable(method := getattr(made_by, name, None)):
                setattr(self, name, MethodType(method, self))


def read_instance_answer(stand_in: StandIn, answer: Any) -> Any:
    """The value of an answer from where an instance lives. Raises ToolFailure for a refusal, a fault and anything else.

    The class's own code may have made the answer: of the instance it changes nothing but these attributes.
    """
    match answer:
        case {"refusal": str(text)}:
            raise ToolFailure(Outcome.TOOL_ERROR, text)
        case {"failure": (Outcome() as outcome, str(text))}:
            raise ToolFailure(outcome, text)
        case {"fault": str(text)}:
            raise ToolFailure(Outcome.INFRA, text)
        case {"value": value, "kept": dict(kept)} if kept.keys() <= {DONE, *_NUMBERS}:
            vars(stand_in).update(kept)
            return value
    raise ToolFailure(Outcome.INFRA, UNFIT)


async def make_class_world(place: InstancePlace) -> World:
    """A world of a class, with an instance of its own."""
    return ClassWorld(await place.make(), place)


def asynchronous_methods(made_by: Callable[..., Any]) -> frozenset[str]:
    """The public methods that are awaited."""
    public = [name for name in dir(made_by) if not name.startswith("_")]
    return frozenset(name for name in public if is_async(getattr(made_by, name)))


class ClassWorld(World):
    """An instance of the user's class."""

    def __init__(self, instance: Any, place: InstancePlace) -> None:
        self._instance, self._place = instance, place
        self.shows_state = callable(getattr(instance, "state", None))
        parts = [getattr(instance, name, None) for name in ("snapshot", "reset")]
        # Shared random numbers, which begin with a reset in a process of its own, are no part of a copy.
        self.begins_by_copy = all(map(callable, parts)) and (
            isinstance(place, OwnProcess) or "seed" in inspect.signature(instance.reset).parameters
        )
        self.ends_when_cancelled = not place.runs_on_loop

    async def reset(self, task: Task, seed: int) -> str | None:
        if not hasattr(self._instance, "reset"):
            return None
        given = reset_arguments(self._instance.reset, task, seed)
        if "seed" not in given:
            await self._place.seed(self._instance, seed)
        said: str | None = await self._place.live(self._instance, "reset", **given)
        return said

    async def call(self, call: ToolCall) -> Step:
        try:
            return self._to_step(await self._place.call(self._instance, call))
        except REFUSALS as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, describe(fault)) from fault

    async def reply(self, text: str) -> Step:
        return self._to_step(await self._place.live(self._instance, "reply", text=text))

    async def score(self) -> Mapping[str, float]:
        value = await self._place.live(self._instance, "score")
        if value is None and hasattr(self._instance, GET_REWARD):
            value = {REWARD: await self._place.live(self._instance, GET_REWARD)}
        return _to_scores(value, self._instance)

    async def gold(self) -> Sequence[ToolCall | str] | None:
        return to_actions(await self._place.live(self._instance, "gold"))

    async def state(self) -> Any:
        return await self._place.live(self._instance, "state")

    async def snapshot(self) -> Any:
        return await self._place.live(self._instance, "snapshot")

    async def restore(self, snapshot: Any) -> None:
        await self._place.live(self._instance, "restore", snapshot=snapshot)

    async def close(self) -> None:
        try:
            await self._place.live(self._instance, "close")
        finally:
            await self._place.discard(self._instance)

    def _to_step(self, value: Any) -> Step:
        step = value if isinstance(value, Step) else Step(value)
        return step._replace(done=True) if getattr(self._instance, DONE, False) is True else step


_IN_WORLD: ContextVar[bool] = ContextVar("in_world", default=False)
"""Whether the code of a world's class runs here."""


class _RoutedOutput:
    """Standard output, which is a command's result: what code of a world writes goes to standard error."""

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _IN_WORLD.get() else self._own, name)


@contextmanager
def guard_process() -> Iterator[None]:
    """Keeps worlds in this process from writing to its standard output, and from ending it by `os._exit`."""
    own, leave, pid = sys.stdout, os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if _IN_WORLD.get() and os.getpid() == pid:  # a process that a world forked may end
            raise SystemExit(f"it called os._exit({status})")
        leave(status)

    routed = cast("TextIO", _RoutedOutput(own))
    sys.stdout, os._exit = routed, refuse
    try:
        yield
    finally:
        if sys.stdout is routed:
            sys.stdout = own
        if os._exit is refuse:
            os._exit = leave


class OwnProcess:
    """Makes instances of one class in this process, and runs their methods on threads or on the loop. A `Place`."""

    def __init__(
        self,
        made_by: Callable[..., Any],
        args: Mapping[str, Any],
        threads: ThreadPool | None,
        tools: Sequence[ToolDescription],
    ) -> None:
        self._made_by, self._args, self._threads = made_by, args, threads
        self._adapters = {
            tool.name: ArgumentAdapter(MethodType(getattr(made_by, tool.name), made_by)) for tool in tools
        }
        self._asynchronous = asynchronous_methods(made_by)

    @property
    def runs_on_loop(self) -> bool:
        """Whether any code of the class is awaited on the event loop, where it could swallow its cancellation."""
        return bool(self._asynchronous)

    async def make(self) -> Any:
        """An instance."""
        return await self._run(self._made_by, self._args)

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method; `call` of a class whose tools are known at run time alone."""
        if call.name not in self._adapters:
            return await self._run(instance.call, {"name": call.name, "arguments": call.arguments})
        method = self._adapters[call.name].bind(getattr(instance, call.name))
        if call.name in self._asynchronous:
            return await _await_in_world(method(**call.arguments))
        return await self._run(method, call.arguments)

    async def live(self, instance: Any, name: str, /, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has no such method."""
        method = getattr(instance, name, None)
        if not callable(method):  # a class may keep data of its own under such a name
            return None
        is_async = name in self._asynchronous
        return await (_await_in_world(method(**arguments)) if is_async else self._run(method, arguments))

    async def seed(self, instance: Any, seed: int) -> None:
        """Does nothing: all instances share them, and rlf's own code does."""

    async def discard(self, instance: Any) -> None:
        """Does nothing: this process collects the instance."""

    async def _run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Calls a plain function, and raises what it raises: a cancellation that nobody asked for as a fault."""

        def work() -> tuple[Any, BaseException | None]:
            token = _IN_WORLD.set(True)
            try:
                return function(**arguments), None
            except BaseException as fault:  # noqa: BLE001 - a thread must outlive SystemExit
                return None, fault
            finally:
                _IN_WORLD.reset(token)

        value, fault = work() if self._threads is None else await self._threads.run(work)
        if fault is not None and issubclass(type(fault), asyncio.CancelledError):
            raise CancelledItself from fault
        if fault is not None:
            raise fault
        return value


async def _await_in_world(work: Awaitable[Any]) -> Any:
    token = _IN_WORLD.set(True)
    try:
        return await work
    finally:
        _IN_WORLD.reset(token)
