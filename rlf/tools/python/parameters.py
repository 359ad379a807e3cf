"""The arguments of a callable: names, types, defaults. It reads signatures of functions, methods, partials,
cached functions and callable instances alike, and calls nothing."""

from __future__ import annotations

import collections.abc
import inspect
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
from pydantic.fields import FieldInfo

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


# Which types a function may ask for that JSON has itself.

Function = Callable[..., Any]

_JSON_TYPES = frozenset({str, int, float, bool, type(None), None, Any, object, list, dict, NO_DEFAULT})
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping)


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


def arguments_of(function: Function) -> tuple[tuple[Argument, ...], Argument | None]:
    """Those that it names, and what stands for every other."""
    try:
        signature = read_signature(function)
    except (TypeError, ValueError):  # a builtin without a signature: it gets what the model gave
        return (), None
    return signature.arguments, signature.others
