"""The arguments of a callable: names, types, defaults. It reads signatures of functions, methods, partials,
cached functions and callable instances alike, and calls nothing."""

from __future__ import annotations

import collections.abc
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from types import UnionType
from typing import Annotated, Any, NewType

import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rlf.core.errors import describe_type
from rlf.core.text import shorten
from rlf.tools.results import ToolFailure
from rlf.types import Outcome

NO_DEFAULT = Parameter.empty
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_MARKS = (typing.Required, typing.NotRequired)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter that a call can fill in."""

    name: str
    annotation: Any
    """Its type, with what a default `Field(...)` adds to it; `Parameter.empty` where it has none."""
    default: Any
    """`NO_DEFAULT` where the function has none of its own; a default within `Field(...)` is pydantic's to fill in."""
    is_positional: bool
    """Whether it can be passed by position alone."""


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The arguments of a callable."""

    arguments: tuple[Argument, ...]
    others: Argument | None
    """What stands for every other name, `**others`; None where it takes no other."""
    list_name: str | None
    """The name of `*names`, which no call by name can fill in; None where there is none."""


def read_signature(function: Callable[..., Any]) -> CallSignature:
    """The arguments that calls fill in; what a partial binds is not theirs. Raises TypeError or ValueError."""
    parameters = inspect.signature(function).parameters.values()
    types = _type_hints(function)
    bound = function.keywords if isinstance(function, partial) else ()  # what somebody bound is no choice of a model's
    by_kind: dict[Any, list[Argument]] = {}
    for one in parameters:
        kind = one.kind if one.kind in _VARIADIC else None
        annotation = types.get(one.name, one.annotation)
        default = one.default
        if isinstance(default, FieldInfo):
            base = Any if annotation is Parameter.empty else annotation
            annotation, default = Annotated[base, default], NO_DEFAULT
        by_kind.setdefault(kind, []).append(
            Argument(one.name, _portable_type(annotation), default, one.kind is Parameter.POSITIONAL_ONLY)
        )
    return CallSignature(
        tuple(one for one in by_kind.get(None, ()) if one.name not in bound),
        next(iter(by_kind.get(Parameter.VAR_KEYWORD, ())), None),
        next((one.name for one in by_kind.get(Parameter.VAR_POSITIONAL, ())), None),
    )


def _type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Types by parameter, those written as text resolved where they can be."""
    target = _find_definition(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that only a type checker knows
        written = getattr(target, "__annotations__", {})
        return {name: _resolve_annotation(target, name, annotation) for name, annotation in written.items()}


def documentation(function: Callable[..., Any]) -> str:
    """The docstring of what runs; an instance's class speaks for it where its `__call__` has none."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function) or hasattr(function, "__wrapped__"):
        return inspect.getdoc(function) or ""
    return inspect.getdoc(type(function).__call__) or inspect.getdoc(function) or ""


def _find_definition(function: Callable[..., Any]) -> Any:
    """The function whose annotations count."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    is_instance = not inspect.isroutine(function) and not inspect.isclass(function)
    return type(function).__call__ if is_instance and hasattr(type(function), "__call__") else function  # noqa: B004


def _resolve_annotation(target: Any, name: str, annotation: Any) -> Any:
    """One annotation by itself, so that an unknown name spoils no other."""
    module = sys.modules.get(getattr(target, "__module__", None) or "", typing)
    stand_in = type("_Annotated", (), {"__annotations__": {name: annotation}})
    try:
        return typing.get_type_hints(stand_in, vars(module), include_extras=True)[name]
    except Exception:  # noqa: BLE001 - as above: left as it is written
        return annotation


def _portable_type(annotation: Any, within: tuple[Any, ...] = ()) -> Any:
    """The type with each `typing.TypedDict` as one of typing_extensions, which pydantic needs before Python 3.12."""
    if sys.version_info >= (3, 12) or annotation in within:
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _portable_dict(annotation, within)
    origin, arms = typing.get_origin(annotation), typing.get_args(annotation)
    # `**others: Unpack[Keys]` is no type of a value: pydantic says so where a schema is made of it.
    if origin is None or origin in (typing.Literal, typing.Unpack, typing_extensions.Unpack) or not arms:
        return annotation
    if origin is Annotated:
        return Annotated[(_portable_type(arms[0], within), *annotation.__metadata__)]
    changed = tuple(_portable_type(arm, within) if not isinstance(arm, list) else arm for arm in arms)
    if all(new is old for new, old in zip(changed, arms, strict=True)):
        return annotation
    return typing.Union[changed] if origin in (typing.Union, UnionType) else origin[changed]  # noqa: UP007 - arms known at run time


def _portable_dict(annotation: Any, within: tuple[Any, ...]) -> Any:
    """The same keys; what `Required` and `NotRequired` say is read from types written as text, too."""
    made: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(annotation, include_extras=True).items():
        mark = typing.get_origin(hint)
        bare = typing.get_args(hint)[0] if mark in _MARKS else hint
        is_required = mark is typing.Required if mark in _MARKS else name in annotation.__required_keys__
        kind = _portable_type(bare, (*within, annotation))
        made[name] = kind if is_required else typing_extensions.NotRequired[kind]
    found = typing_extensions.TypedDict(annotation.__name__, made)  # type: ignore[misc]  # made at run time
    found.__doc__, found.__module__ = annotation.__doc__, annotation.__module__
    return found


# JSON arguments as the values that a function's annotations name: dates, enums, dataclasses, models.
#
# What is JSON's own type is passed as it is, at no cost. A value that its type refuses is the caller's to correct: the
# call ends as `invalid_arguments`, before the function runs.

Function = Callable[..., Any]

_JSON_TYPES = frozenset({str, int, float, bool, type(None), None, Any, object, list, dict, NO_DEFAULT})
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping)
_MAX_COMPLAINTS = 4
_MAX_VALUE_CHARS = 80


class ArgumentAdapter:
    """Fills in the arguments of one callable; made once, from its signature."""

    def __init__(self, function: Function) -> None:
        arguments, others = _arguments_of(function)
        found = {one.name: _make_adapter(one.annotation) for one in arguments if not is_json_type(one.annotation)}
        self._adapters = {name: adapter for name, adapter in found.items() if adapter is not None}
        self._defaults = {
            one.name: self._adapters[one.name]
            for one in arguments
            if one.default is NO_DEFAULT
            and one.name in self._adapters
            and self._adapters[one.name].get_default_value() is not None
        }
        self._names = frozenset(one.name for one in arguments)
        is_typed = others is not None and not is_json_type(others.annotation)
        self._others = _make_adapter(others.annotation) if others is not None and is_typed else None
        """What reads an argument that the function does not name."""
        self._positional = tuple(one.name for one in arguments if one.is_positional)

    @property
    def is_idle(self) -> bool:
        """Whether calls need nothing of it: all types are JSON's own, all arguments are passed by name."""
        return not self._adapters and not self._positional and self._others is None

    def bind(self, function: Function) -> Function:
        """The function taking JSON arguments by name."""
        return function if self.is_idle else partial(self._call_function, function)

    def _call_function(self, function: Function, /, **arguments: Any) -> Any:
        filled = self._convert_arguments(arguments)
        given: list[Any] = []
        for name in self._positional:
            if name not in filled:  # the function's own default, and those of all that follow
                break
            given.append(filled.pop(name))
        return function(*given, **filled)

    def _convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as their types. Raises ToolFailure with everything that they refuse."""
        filled, complaints = dict(arguments), list[str]()
        others = {name: self._others for name in arguments.keys() - self._names if self._others is not None}
        for name, adapter in {**self._adapters, **others}.items():
            if name not in arguments:
                continue
            try:
                filled[name] = _validate_value(adapter, arguments[name])
            except ValidationError as fault:
                for error in fault.errors(include_url=False, include_context=False):
                    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
                    words = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
                    got = "" if error["type"] == "missing" else f"; got {_show_value(error['input'])}"
                    complaints.append(f"{name}{where}: {words}{got}")
        if complaints:
            message = "; ".join(complaints[:_MAX_COMPLAINTS])
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, shorten(f"invalid arguments: {message}"))
        for name, adapter in self._defaults.items():
            if name not in filled:
                default = adapter.get_default_value()
                filled[name] = None if default is None else default.value
        return filled


def adapt(function: Function) -> Function:
    """The function taking JSON arguments by name; itself where its types are JSON's own."""
    return ArgumentAdapter(function).bind(function)


def is_json_type(annotation: Any) -> bool:
    """Whether every JSON value that the type admits is already of that type."""
    if isinstance(annotation, NewType):
        return is_json_type(annotation.__supertype__)
    origin, arms = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return isinstance(annotation, collections.abc.Hashable) and annotation in _JSON_TYPES
    if origin is typing.Annotated:
        return is_json_type(arms[0]) and all(map(_is_word, annotation.__metadata__))
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in arms)
    if origin in (typing.Union, types.UnionType) or origin in _LISTS:
        return all(map(is_json_type, arms))
    return origin in _MAPPINGS and (not arms or (arms[0] is str and is_json_type(arms[1])))


def _is_word(metadata: Any) -> bool:
    """Whether an item of `Annotated` only describes."""
    is_description = isinstance(metadata, FieldInfo) and not metadata.metadata and metadata.is_required()
    return isinstance(metadata, str) or is_description


def _arguments_of(function: Function) -> tuple[tuple[Argument, ...], Argument | None]:
    """Those that it names, and what stands for every other."""
    try:
        signature = read_signature(function)
    except (TypeError, ValueError):  # a builtin without a signature: it gets what the model gave
        return (), None
    return signature.arguments, signature.others


def _make_adapter(annotation: Any) -> TypeAdapter[Any] | None:
    """None for a type that pydantic does not know: the function gets what the model gave, and must know."""
    try:
        return TypeAdapter(annotation)
    except Exception:  # noqa: BLE001 - a type's own hooks may raise anything
        return None


def _validate_value(adapter: TypeAdapter[Any], value: Any) -> Any:
    """The value as its type, read as JSON, where strict models take text for dates and lists for sets."""
    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as fault:
        if fault.errors(include_url=False)[0]["type"] != "json_invalid":
            raise
    return adapter.validate_python(value)  # half of a surrogate pair, which pydantic's reader of JSON refuses


def _show_value(value: Any) -> str:
    try:
        return shorten(json.dumps(value, ensure_ascii=False), _MAX_VALUE_CHARS)
    except (TypeError, ValueError, RecursionError):
        return describe_type(value)
