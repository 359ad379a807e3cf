"""Arguments that are not passed as they are: what their schema refuses, and what annotations name beside JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple

import pydantic
from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from rlf.core import nearest
from rlf.core.errors import describe_type
from rlf.core.plain_json import decode_json
from rlf.core.readings import MAX_ERRORS, Path, Readings, branches_of
from rlf.core.text import shorten
from rlf.tools.python.parameters import NO_DEFAULT, Function, arguments_of, is_json_type
from rlf.tools.results import MAX_NAME_CHARS, ToolFailure
from rlf.types import Outcome

_MAX_COMPLAINTS = 4
_MAX_COMPLAINT_CHARS = 160
_CONSTANTS = {"true": True, "false": False, "null": None}


class Misfits(NamedTuple):
    """What arguments have to be."""

    readings: Readings
    schema: Mapping[str, Any]
    """With definitions in place of references."""
    redact: Callable[[str], str]

    def complaint(self, arguments: Mapping[str, Any]) -> str:
        """The faults of arguments that are not valid, and the expected ones."""
        try:
            errors = list(islice(self.readings.validator.iter_errors(arguments), _MAX_COMPLAINTS))
        except ValueError as fault:  # too deep, or no JSON at all
            return shorten(f"arguments are not JSON: {self.redact(str(fault))}. Expected: {self.expected()}")
        message = "; ".join(shorten(self.redact(self._in_words(error)), _MAX_COMPLAINT_CHARS) for error in errors)
        return shorten(f"{message}. Expected: {self.expected()}")

    def expected(self) -> str:
        """The arguments in one line: `query (string, required), limit (integer or null)`."""
        named = [
            self._describe(name, name in self.schema.get("required", ())) for name in self.schema.get("properties", {})
        ]
        others = [self._describe("any other", False)] if self.schema.get("additionalProperties", False) else []
        return ", ".join(named + others) or "an object"

    def _describe(self, name: str, is_required: bool) -> str:
        facts = [self.readings.admitted(name).in_words(), "required" if is_required else ""]
        said = ", ".join(filter(None, facts))
        return f"{name} ({said})" if said else name

    def _in_words(self, error: ValidationError) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(
            "."
        )
        prefix = f"{where}: " if where else ""
        match error.kind:
            case ValidationErrorKind.Required(property=name):
                return f"{prefix}missing {name!r}"
            case ValidationErrorKind.AdditionalProperties(unexpected=names):
                known = [] if where else list(self.schema.get("properties", {}))
                shown = [shorten(self.redact(name), MAX_NAME_CHARS) for name in names[:_MAX_COMPLAINTS]]
                return prefix + "; ".join(f"unknown {name!r}{nearest(name, known)}" for name in shown)
        return prefix + error.message


def coerced(validator: Draft202012Validator, value: Any) -> dict[str, Any] | None:
    """The object with texts read as what the schema asks for, at any depth, where that makes it valid; else None.

    A text that is valid where it stands is left as it is.
    """
    if isinstance(value, str):
        value = _other_reading(value)
    if not isinstance(value, dict):
        return None
    repaired: dict[str, Any] | None = _repair(validator, value, iter(range(MAX_ERRORS)))
    return repaired


def _repair(validator: Draft202012Validator, value: Any, tries: Iterator[int]) -> Any:
    """Reads texts that errors name until none is left; a text that is read as JSON may hold further ones."""
    errors = list(islice(validator.iter_errors(value), MAX_ERRORS))
    if not errors:
        return value
    for places in _list_repairs(errors):
        if next(tries, None) is None:
            return None
        changed = _with_other_readings(value, sorted(places, key=repr))
        repaired = None if changed is None else _repair(validator, changed, tries)
        if repaired is not None:
            return repaired
    return None


def _other_reading(text: str) -> Any:
    """What a text says beside itself: the one JSON value that it is, `True` in any case; the text where it is none."""
    folded = text.lower()
    if folded in _CONSTANTS:
        return _CONSTANTS[folded]
    try:
        value, end = decode_json(text.strip())
    except ValueError:
        return text
    # A text in quotes of its own says nothing else, and space around a number is no part of it.
    is_whole = end == len(text.strip()) and not isinstance(value, str)
    return value if is_whole and (isinstance(value, dict | list) or text == text.strip()) else text


def _list_repairs(errors: Sequence[ValidationError]) -> Iterator[frozenset[Path]]:
    """Places whose texts may be read otherwise to remove all errors; of each choice of `anyOf`, its own places."""
    for places in islice(product(*map(_list_places, errors)), MAX_ERRORS):
        together = frozenset[Path]().union(*places)
        if together:
            yield together


def _list_places(error: ValidationError) -> list[frozenset[Path]]:
    branches = branches_of(error) or ()
    inside = [places for branch in branches for places in _list_repairs(branch)]
    # Of an error without a text of its own nothing is asked: another's repair may remove it.
    own = frozenset([tuple(error.instance_path)] if isinstance(error.instance, str) else ())
    return [places for places in dict.fromkeys([own, *inside]) if places] or [own]


def _with_other_readings(value: Any, places: Sequence[Path]) -> Any:
    """The value with another reading of the texts at some places; None where one of them has none."""
    for place in places:
        value = _with_other_reading(value, place)
        if value is None:
            return None
    return value


def _with_other_reading(value: Any, place: Path) -> Any:
    """A copy with the text at one place read otherwise; the rest is shared. None where it is the same."""
    key: Any = place[0]
    if len(place) > 1:
        inside = _with_other_reading(value[key], place[1:])
        if inside is None:
            return None
    else:
        inside = _other_reading(value[key])
        if inside is value[key]:
            return None
    if isinstance(value, list):
        return [*value[:key], inside, *value[key + 1 :]]
    return {**value, key: inside}


_MAX_COMPLAINTS = 4
_MAX_VALUE_CHARS = 80


# JSON arguments as the values that a function's annotations name: dates, enums, dataclasses, models.
#
# What is JSON's own type is passed as it is, at no cost. A value that its type refuses is the caller's to correct: the
# call ends as `invalid_arguments`, before the function runs.


class ArgumentAdapter:
    """Fills in the arguments of one callable; made once, from its signature."""

    def __init__(self, function: Function) -> None:
        arguments, others = arguments_of(function)
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
            except pydantic.ValidationError as fault:
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


def _make_adapter(annotation: Any) -> pydantic.TypeAdapter[Any] | None:
    """None for a type that pydantic does not know: the function gets what the model gave, and must know."""
    try:
        return pydantic.TypeAdapter(annotation)
    except Exception:  # noqa: BLE001 - a type's own hooks may raise anything
        return None


def _validate_value(adapter: pydantic.TypeAdapter[Any], value: Any) -> Any:
    """The value as its type, read as JSON, where strict models take text for dates and lists for sets."""
    try:
        return adapter.validate_json(json.dumps(value))
    except pydantic.ValidationError as fault:
        if fault.errors(include_url=False)[0]["type"] != "json_invalid":
            raise
    return adapter.validate_python(value)  # half of a surrogate pair, which pydantic's reader of JSON refuses


def _show_value(value: Any) -> str:
    try:
        return shorten(json.dumps(value, ensure_ascii=False), _MAX_VALUE_CHARS)
    except (TypeError, ValueError, RecursionError):
        return describe_type(value)
