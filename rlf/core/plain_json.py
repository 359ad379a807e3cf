"""JSON both ways: frozen values as commands print them, the values of others as text, and the one reader of data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeVar, dataclass_transform
from uuid import UUID

from rlf.core.errors import describe_type
from rlf.core.text import find_half, join_halves

VERSION = "1"
"""Of the envelope around what commands print."""

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(made: type[T]) -> type[T]:
    """`@dataclass(frozen=True, slots=True)` with an `__init__` that fills the slots itself, in half of the time."""
    kind = dataclasses.dataclass(frozen=True, slots=True)(made)
    known, parameters, lines = dict[str, Any](MISSING=MISSING), [], []
    for one in fields(kind):  # type: ignore[arg-type]  # a dataclass
        name, value = one.name, one.name
        known |= {f"set_{name}": getattr(kind, name).__set__, f"default_{name}": one.default}
        if one.default_factory is not MISSING:
            known[f"make_{name}"] = one.default_factory
            value = f"make_{name}() if {name} is MISSING else {name}"
        parameters.append(name if value == name and one.default is MISSING else f"{name}=default_{name}")
        lines.append(f"    set_{name}(self, {value})\n")
    exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}", known)
    kind.__init__ = known["__init__"]  # type: ignore[method-assign]  # of the same parameters
    return kind


class Jsonable:
    """A dataclass that knows its JSON. `JSON_PROPERTIES` names the properties that belong to it beside the fields.

    A mapping there gives each its name in JSON. A field with `metadata["optional"]` is left out where it is None.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The value as plain JSON, as `rlf ... --json` prints it."""
        found: dict[str, Any] = as_json(self)
        return found


def json_fields(kind: Any) -> list[tuple[str, Field[Any]]]:
    """The fields of a dataclass with their names in JSON: their own, or `metadata["json"]`; None leaves a field out.

    A run's id is `run_id` everywhere, also where the dataclass is the run's own record.
    """
    named = [(field.metadata.get("json", field.name), field) for field in fields(kind)]
    return [(name, field) for name, field in named if name is not None]


def json_properties(kind: Any) -> Mapping[str, str]:
    """The properties that belong to the JSON of a dataclass, by their names in JSON."""
    names = getattr(kind, "JSON_PROPERTIES", ())
    return names if isinstance(names, Mapping) else dict(zip(names, names, strict=True))


def as_json(value: Any) -> Any:
    """A value as plain JSON: dataclasses as objects, numbers that are not finite as null, paths as text."""
    if is_dataclass(value) and not isinstance(value, type):
        fields_of = [(name, getattr(value, field.name), field) for name, field in json_fields(value)]
        own = {name: as_json(at) for name, at, field in fields_of if at is not None or "optional" not in field.metadata}
        return own | {name: as_json(getattr(value, source)) for name, source in json_properties(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [as_json(item) for item in value]
    assert isinstance(value, Path) or hasattr(value, "isoformat"), f"{type(value).__name__} has no JSON form"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# References within a JSON Schema. Pure; nothing is fetched from anywhere.

_MAX_HOPS = 16
_MAX_EXPANSIONS = 1000
"""References that are followed in one schema: definitions that double each other would fill the memory."""
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, where `$ref` is a key like any other."""


def resolved(schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The schema that a `$ref` into `whole` stands for, with what stands beside it; any other mapping as it is.

    Empty, which admits anything, for what is no mapping and for a reference that leads nowhere.
    """
    found: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            break
        found = {**{key: child for key, child in schema.items() if key != "$ref"}, **found}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        schema = _follow_pointer(reference, whole)
    return found


def expanded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with definitions in place of references; within itself a recursive one stays a reference."""
    found: dict[str, Any] = _Expansion(schema).of({key: child for key, child in schema.items() if key != "$defs"}, ())
    if "$defs" in schema and _has_references(found):
        return {**found, "$defs": schema["$defs"]}
    return found


class _Expansion:
    """One walk through a schema."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._num_left = _MAX_EXPANSIONS

    def of(self, schema: Any, within: tuple[str, ...]) -> Any:
        """A part of the schema, inside of the definitions `within`."""
        if isinstance(schema, list | tuple):
            return [self.of(child, within) for child in schema]
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = _follow_pointer(reference, self._whole)
            if reference in within or self._num_left <= 0 or not isinstance(target, Mapping):
                return dict(schema)
            self._num_left -= 1
            beside = {key: child for key, child in schema.items() if key != "$ref"}
            return self.of({**target, **beside}, (*within, reference))
        return {key: child if key in _DATA else self.of(child, within) for key, child in schema.items()}


def _has_references(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_references, schema))
    if not isinstance(schema, Mapping):
        return False
    return isinstance(schema.get("$ref"), str) or any(
        _has_references(child) for key, child in schema.items() if key not in _DATA
    )


def _follow_pointer(reference: str, whole: Mapping[str, Any]) -> Any:
    """The value that a pointer such as `#/$defs/Point` leads to; None where there is none."""
    if not reference.startswith("#"):
        return None
    found: Any = whole
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


# Values of data as JSON has them: the one reader behind every door, be it a file, a table, a text or Python.
#
# What JSON lacks is refused where a guess would change a question or a gold (NaN, bytes, half of a character, a key
# twice), and written as text where there is one form for it (dates, decimals).


class NoJsonValue(ValueError):
    """A value that JSON does not have. The text says what it is and what to write."""


class HoldsBytes(NoJsonValue):
    """A value that is bytes, or has them inside."""


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError where it is none, NoJsonValue for what is refused."""
    value, repeated = parse_json(text)
    if repeated:
        raise NoJsonValue(f"the key {next(iter(repeated))!r} is written more than once in one object. Write it once.")
    return json_value(value)


def parse_json(text: str) -> tuple[Any, Counter[str]]:
    """The value as Python reads it, and in how many objects of it each key stands more than once. Raises ValueError."""
    repeated: Counter[str] = Counter()

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.update(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return found

    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=build)
    except RecursionError as error:
        raise NoJsonValue("it is nested too deeply") from error
    return value, repeated


def json_value(value: Any) -> Any:
    """A value of Python, NumPy or Arrow as JSON has it: lists, mappings with text as keys, text, numbers.

    A number of fewer bits than Python's is the shortest one that it stands for: 0.1 for the float32 next to it.

    Raises:
        NoJsonValue: JSON has no such value.
    """
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return _read_text(value)
    if kind is float:
        return _read_float(value)
    try:
        if kind is dict or isinstance(value, Mapping):
            return _read_mapping(value)
        if kind is list or isinstance(value, list | tuple):
            return [json_value(item) for item in value]
    except RecursionError:
        raise NoJsonValue("it is nested too deeply. Flatten it.") from None
    return _read_other(value)


def _read_text(text: str) -> str:
    half = find_half(text)
    if half is None:
        return join_halves(text)
    shown = ascii(next(char for char in join_halves(text) if "\ud800" <= char <= "\udfff"))
    raise NoJsonValue(f"{shown} is half of a character (a surrogate). Write both halves, or remove it.")


def _read_float(number: float) -> float:
    if not math.isfinite(number):
        raise NoJsonValue(f"got {_CONSTANTS[str(number)]}, which JSON does not have. Write a number, or null.")
    return number


_CONSTANTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _read_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise NoJsonValue(f"got the key {key!r:.40}; keys are text. Write it as text.")
        name = _read_text(key) if type(key) is str else str(json_value(key))
        if name in found:
            raise NoJsonValue(f"the key {name!r} stands more than once in one object. Write it once.")
        found[name] = json_value(item)
    return found


def _read_other(value: Any) -> Any:
    """A value of a class that JSON does not know."""
    if isinstance(value, str):
        return _read_text(str.__str__(value))
    if isinstance(value, bytes | bytearray | memoryview):
        size = len(bytes(value))
        raise HoldsBytes(
            f"got {size} bytes, which JSON does not have. Write text; a column of images is named by `images`."
        )
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else _read_float(float(value))
    if isinstance(value, UUID | PurePath):
        return str(value)
    if hasattr(type(value), "dtype") and callable(getattr(value, "tolist", None)):
        if getattr(value, "ndim", 0):
            return [json_value(item) for item in value]
        plain = value.item() if hasattr(value, "item") else value.tolist()
        return json_value(short_float(value) if type(plain) is float and value.dtype.itemsize < 8 else plain)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _read_float(float(value))
    raise NoJsonValue(f"got {describe_type(value)}, which JSON does not have. Write text, numbers, lists or objects.")


def short_float(value: Any) -> float:
    """The number that a float of 16 or 32 bits of NumPy stands for: the shortest that rounds to it, or the whole one.

    Digits that are not needed to tell it from its neighbours are zeros in the shortest: 65500 for 65504.
    """
    exact = float(value)
    return exact if exact.is_integer() else float(str(value))


def _refuse_constant(constant: str) -> NoReturn:
    raise NoJsonValue(f"got {constant}, which JSON does not have")


# JSON as the standard has it: no NaN, no number beyond a float, no key twice, no half of a surrogate pair.

MAX_DEPTH = 64
"""Levels of nesting that a value may have: far below what would exhaust the stack anywhere downstream."""


class RefusedJson(ValueError):
    """JSON as Python reads it, but not JSON as the standard has it."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        raise RefusedJson(f"duplicate key {quote_short(next(key for key in keys if keys.count(key) > 1))}")
    return table


def _parse_finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise RefusedJson(f"the number {quote_short(literal)} is too large")
    return number


def _refuse_strict_constant(literal: str) -> None:
    raise RefusedJson(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_float=_parse_finite, parse_constant=_refuse_strict_constant
)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at `start`, and where it ends.

    Raises:
        json.JSONDecodeError: there is no JSON.
        RefusedJson: it is what the standard does not have, or nested too deep.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (json.JSONDecodeError, RefusedJson):
        raise
    except ValueError as fault:
        raise RefusedJson("a number has too many digits") from fault
    except RecursionError as fault:
        raise RefusedJson(f"it is nested deeper than {MAX_DEPTH} levels") from fault
    if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH and _measure_depth(value) > MAX_DEPTH:
        raise RefusedJson(f"it is nested deeper than {MAX_DEPTH} levels")
    if not _is_unicode(value, text, start, end):
        raise RefusedJson("it holds half of a surrogate pair")
    return value, end


def quote_short(text: str) -> str:
    """A quoted word for a message, cut and with nothing that breaks a line."""
    return json.dumps(text if len(text) <= 24 else text[:24] + "...")


def _measure_depth(value: Any) -> int:
    """Levels of nesting, counted level by level so that no depth exhausts the stack."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _is_unicode(value: Any, text: str, start: int, end: int) -> bool:
    """Whether every string can be encoded; only escapes and raw surrogates can make one that cannot."""
    source = text[start:end]
    if source.isascii() and "\\u" not in source:
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
