"""Arrow's values as Python has them, where Arrow's own conversion changes them: float32, float16 and maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlf.core.json_values import NoJsonValue, short_float

Convert = Callable[[Any], Any]
"""Changes a value that `to_pylist` gave; never called with None."""


def repeated_names(fields: Any) -> str | None:
    """The names that several fields of a schema or of a struct in it have, with their numbers; None where none has."""
    counts = Counter(field.name for field in fields)
    repeated = [f"{name!r} {count} times" for name, count in counts.items() if count > 1]
    if repeated:
        return ", ".join(repeated)
    return next((found for field in fields if (found := _repeated_within(field.type)) is not None), None)


def _repeated_within(kind: Any) -> str | None:
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return repeated_names([kind.field(at) for at in range(kind.num_fields)])
    inner = [kind.value_type] if _is_list(kind) else [kind.item_type] if pyarrow.types.is_map(kind) else []
    return next((found for each in inner if (found := _repeated_within(each)) is not None), None)


def column_converters(fields: Sequence[Any]) -> dict[str, Convert]:
    """What changes the values of columns, by name; without those that nothing changes."""
    return {field.name: convert for field in fields if (convert := _converter(field.type)) is not None}


def _convert_fields(row: dict[str, Any], converts: dict[str, Convert]) -> dict[str, Any]:
    return {name: convert(row[name]) for name, convert in converts.items() if row.get(name) is not None}


def _converter(kind: Any) -> Convert | None:
    """What changes the values of a type; None where nothing does."""
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _converter(kind.storage_type)
    if types.is_dictionary(kind):
        return _converter(kind.value_type)
    if types.is_float32(kind) or types.is_float16(kind):
        return _shorten(kind)
    if types.is_map(kind):
        return _map_converter(_converter(kind.item_type))
    if types.is_struct(kind):
        converts = column_converters([kind.field(at) for at in range(kind.num_fields)])
        return (lambda value: value | _convert_fields(value, converts)) if converts else None
    inner = _converter(kind.value_type) if _is_list(kind) else None
    return None if inner is None else _list_converter(inner)


def _is_list(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(is_view or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _shorten(kind: Any) -> Convert:
    """The number that a float of fewer bits stands for: 0.1, not 0.10000000149011612."""
    number = kind.to_pandas_dtype()
    return lambda value: short_float(number(value))


def _list_converter(inner: Convert) -> Convert:
    return lambda value: [None if item is None else inner(item) for item in value]


def _map_converter(inner: Convert | None) -> Convert:
    """A map, which Arrow gives as pairs, as a mapping. Raises NoJsonValue for a key twice."""

    def convert(value: Any) -> dict[Any, Any]:
        pairs = list(value.items() if isinstance(value, dict) else value)
        found = {key: item if inner is None or item is None else inner(item) for key, item in pairs}
        if len(found) < len(pairs):
            key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise NoJsonValue(f"the key {key!r} stands more than once in one object. Write it once.")
        return found

    return convert
