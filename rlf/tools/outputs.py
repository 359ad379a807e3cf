"""What a tool returns beside plain strings, as text and images: JSON, bytes, parts of messages."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from pathlib import PurePath
from typing import Any
from uuid import UUID

from rlf.core.errors import describe_type
from rlf.core.redact import clean
from rlf.core.text import describe
from rlf.tools.kind import Limits
from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome, ToolOutput


def to_output(value: Any) -> ToolOutput:
    """The return value of a Python function as a tool's output; a ToolOutput stays one. Raises as `to_text` does."""
    if isinstance(value, ToolOutput):
        text, structured = to_text(value.text), _as_structured(value.structured)
        return replace(value, text=text, structured=structured, usage=_read_usage(value.usage), isolation="")
    return _read_parts(value) if _has_images(value) else ToolOutput(to_text(value))


def _has_images(value: Any) -> bool:
    """Whether a value is the content of a message with images, as tools of TRL return it."""
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        return False
    images = [part.get("image") for part in value if part.get("type") == "image"]
    return bool(images) and all(callable(getattr(image, "save", None)) for image in images)  # Pillow's


def _read_parts(parts: Sequence[Mapping[str, Any]]) -> ToolOutput:
    images = []
    for part in (part for part in parts if part.get("type") == "image"):
        part["image"].save(file := BytesIO(), "PNG")
        images.append(Image(file.getvalue(), "image/png"))
    texts = [to_text(part["text"]) for part in parts if part.get("type") == "text"]
    return ToolOutput("\n".join(texts), tuple(images))


def _read_usage(usage: Any) -> dict[str, float]:
    """Usage as numbers by unit. Raises ToolFailure OUTPUT_REJECTED for anything else."""
    try:
        found = {clean(unit): float(number) for unit, number in dict(usage or {}).items()}
    except (TypeError, ValueError, OverflowError, AttributeError) as fault:
        raise _reject_output(f"a usage that is no mapping of numbers by unit ({describe(fault)})") from fault
    if not all(map(math.isfinite, found.values())):
        raise _reject_output("a usage with a number that is not finite")
    return found


def to_text(value: Any) -> str:
    """A string as it is, UTF-8 bytes decoded, what JSON writes as a string as that string, anything else as JSON.

    Raises:
        ToolFailure: OUTPUT_REJECTED, when the value has no such form (binary, NaN, circular, not JSON).
    """
    if isinstance(value, str):
        return clean(value)
    try:
        if isinstance(value, bytes | bytearray):
            return clean(value.decode())
        text = json_text(value)
        # What JSON writes as a string (a date, an identifier, an enum's word) has no quotes, as a string has none.
        return clean(str(json.loads(text)) if text.startswith('"') else text)
    except UnicodeDecodeError as fault:
        size = len(fault.object)
        text = f"the tool returned {size} bytes that are not UTF-8 text; return binary data as base64"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault
    except BaseException as fault:  # `__getitem__` and the like of a container are the tool's own code
        if inspect.iscoroutine(value):
            value.close()
        text = f"the tool returned {describe_type(value)} that is not JSON ({describe(fault)})"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault


def _as_structured(value: Any) -> Any:
    """Structured content as JSON values; what has no such form is left out where results are stored."""
    if isinstance(value, str | int | float | bool | None):
        return value
    try:
        return json.loads(json_text(value))
    except (TypeError, ValueError, RecursionError):
        return value


def check_images(images: Sequence[Image], limits: Limits) -> tuple[tuple[Image, ...], list[str]]:
    """The images by their types' proper names, and a line per image for models that see none.

    Raises:
        ToolFailure: OUTPUT_REJECTED where one breaks the limits.
    """
    from rlf.core.images import image_type  # of few tools

    if len(images) > limits.max_images:
        raise _reject_output(f"{len(images)} images, more than the {limits.max_images} allowed")
    lines = [_check_image(number, image, limits) for number, image in enumerate(images, 1)]
    return tuple(replace(image, mime_type=image_type(image.mime_type)) for image in images), lines


def _check_image(number: int, image: Image, limits: Limits) -> str:
    from rlf.core.images import image_type, read_image_header

    if len(image.data) > limits.max_image_bytes:
        raise _reject_output(
            f"image {number} of {len(image.data)} bytes, more than the {limits.max_image_bytes} allowed"
        )
    header = read_image_header(image.data)
    if header is None:
        raise _reject_output(f"image {number} that is not a PNG, JPEG, GIF or WebP file")
    if header.mime_type != image_type(image.mime_type):
        raise _reject_output(f"image {number} that says {image.mime_type[:80]} and is {header.mime_type}")
    if header.width * header.height > limits.max_image_pixels:
        size = f"{header.width}x{header.height}"
        raise _reject_output(f"image {number} of {size} pixels, more than the {limits.max_image_pixels} allowed")
    return f"[image {number}: {header.mime_type}, {header.width}x{header.height}]"


def _reject_output(what: str) -> ToolFailure:
    return ToolFailure(Outcome.OUTPUT_REJECTED, f"the tool returned {what}")


# Python values as JSON: what a function returns may be a model, a dataclass, a date or an enum.
#
# Text and bytes in UTF-8 are text. Numbers that JSON would round (`Decimal`) are text, too. A set is sorted, so that
# the same call gives the same bytes in every process.

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
