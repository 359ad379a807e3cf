"""JSON on stdout: one versioned envelope per command, lines of events before it for a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

VERSION = "1"


def print_envelope(command: str, data: Any) -> None:
    """Prints a command's whole result as one line of JSON."""
    _print({"rlf": VERSION, "command": command, "data": data})


def print_event(command: str, event: str, data: Any) -> None:
    """Prints one event of a command that goes on."""
    _print({"rlf": VERSION, "command": command, "event": event, "data": data})


def _print(value: Any) -> None:
    print(json.dumps(as_json(value), allow_nan=False), flush=True)


def as_json(value: Any) -> Any:
    """A value as plain JSON: dataclasses as objects, numbers that are not finite as null, paths as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
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
