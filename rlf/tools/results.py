"""From what a tool returns to what a model reads: text, valid UTF-8, within a budget, and images within limits."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlf.core.errors import describe_type
from rlf.core.files import image_type, read_header
from rlf.core.text import clean, describe
from rlf.tools.failure import ToolFailure
from rlf.tools.jsonable import json_text
from rlf.tools.limits import Limits
from rlf.types import Image, Outcome, ToolOutput

_PLAIN = (str, int, float, bool)


def to_output(value: Any) -> ToolOutput:
    """The return value of a Python function as a tool's output; a ToolOutput stays one. Raises as `to_text` does."""
    if isinstance(value, ToolOutput):
        text, structured = to_text(value.text), _as_structured(value.structured)
        return replace(value, text=text, structured=structured, usage=_read_usage(value.usage), isolation="")
    return ToolOutput(to_text(value))


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
        return clean(_unquote_json(json_text(value)))
    except UnicodeDecodeError as fault:
        size = len(fault.object)
        text = f"the tool returned {size} bytes that are not UTF-8 text; return binary data as base64"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault
    except BaseException as fault:  # `__getitem__` and the like of a container are the tool's own code
        if inspect.iscoroutine(value):
            value.close()
        text = f"the tool returned {describe_type(value)} that is not JSON ({describe(fault)})"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault


def _unquote_json(text: str) -> str:
    """JSON as text: a date, an identifier or an enum's word stands without quotes, as a string does."""
    return str(json.loads(text)) if text.startswith('"') else text


def _as_structured(value: Any) -> Any:
    """Structured content as JSON values; what has no such form is left out where results are stored."""
    if value is None or isinstance(value, _PLAIN):
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
    if len(images) > limits.max_images:
        raise _reject_output(f"{len(images)} images, more than the {limits.max_images} allowed")
    lines = [_check_image(number, image, limits) for number, image in enumerate(images, 1)]
    return tuple(replace(image, mime_type=image_type(image.mime_type)) for image in images), lines


def _check_image(number: int, image: Image, limits: Limits) -> str:
    if len(image.data) > limits.max_image_bytes:
        raise _reject_output(
            f"image {number} of {len(image.data)} bytes, more than the {limits.max_image_bytes} allowed"
        )
    header = read_header(image.data)
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


_BEYOND_CHARS = 4096


def cut(text: str, max_chars: int, redact: Callable[[str], str] = str) -> str:
    """Keeps head and tail, two parts to one, around a marker that says how much is missing.

    At most `max_chars` long, but never shorter than the marker. `redact` is given each part with what lies beyond its
    end, so that it finds a secret that the cut would halve.
    """
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_cut_marker(len(text))))
    tail = room // 3
    head = room - tail
    first = redact(text[: head + _BEYOND_CHARS])[:head]
    last = redact(text[max(0, len(text) - tail - _BEYOND_CHARS) :]) if tail else ""
    return first + _cut_marker(len(text) - room) + last[max(0, len(last) - tail) :]


def _cut_marker(num_chars: int) -> str:
    return f"\n[... {num_chars} characters left out ...]\n"
