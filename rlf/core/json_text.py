"""Python values as JSON: what a function returns may be a model, a dataclass, a date or an enum.

Text and bytes in UTF-8 are text. Numbers that JSON would round (`Decimal`) are text, too. A set is sorted, so that the
same call gives the same bytes in every process.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

_AS_TEXT = (UUID, PurePath, Decimal)
_SETS = (set, frozenset)


def json_text(value: Any) -> str:
    """The value as JSON. Raises whatever the value's own code raises; TypeError and ValueError where it has no form."""
    try:
        return _ENCODE(value)
    except TypeError:  # keys that are no text, for which `json` asks nobody
        return _ENCODE(_with_text_keys(value))


def plain_value(value: Any) -> Any:
    """The stand-in for a value that `json` does not know, one level deep. Raises TypeError where nothing does."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    if isinstance(value, _SETS):
        return sorted(value, key=json_text)
    if isinstance(value, deque):
        return list(value)
    if hasattr(type(value), "__pydantic_serializer__") or isinstance(value, timedelta):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value, inf_nan_mode="constants")  # a model's own serializers
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if callable(getattr(type(value), "tolist", None)):  # arrays and scalars of NumPy, tensors, columns of pandas
        return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain_value).encode
"""Made once: `json.dumps` makes an encoder for each call that asks for anything but its defaults."""


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_to_json_key(key): _with_text_keys(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_keys(child) for child in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _with_text_keys(plain_value(value))


def _to_json_key(key: Any) -> Any:
    """A key as `json` takes it. Raises TypeError for one with parts, such as a tuple."""
    if key is None or isinstance(key, str | int | float):
        return key
    plain = plain_value(key)
    return plain if isinstance(plain, str) else _to_json_key(plain)
