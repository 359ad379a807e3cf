"""JSON on stdout: one versioned envelope per command, lines of events before it for a run.

What a command prints has a type, which `rlf.api.outputs` names; `rlf.api.output_schema` derives its JSON Schema from
the type by the same rules as `rlf.core.plain_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlf.core.plain_json import VERSION, as_json

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_result(
    command: str, data: Any, as_json: bool, shown: RenderableType | Callable[[], RenderableType | None]
) -> None:
    """Prints a command's whole result: as one line of JSON, or as it is shown to people.

    Args:
        shown: a text, a table, or a function that makes or prints one.
    """
    if as_json:
        print_envelope(command, data)
        return
    view = shown() if callable(shown) else shown
    if isinstance(view, str):
        print(view)
    elif view is not None:
        from rlf.cli.output import stdout_console

        stdout_console().print(view)


def print_envelope(command: str, data: Any) -> None:
    """Prints a command's whole result as one line of JSON."""
    _print_json({"rlf": VERSION, "command": command, "data": data})


def print_event(command: str, event: str, data: Any) -> None:
    """Prints one event of a command that has not ended yet."""
    _print_json({"rlf": VERSION, "command": command, "event": event, "data": data})


def _print_json(value: Any) -> None:
    print(json.dumps(as_json(value), allow_nan=False), flush=True)
