"""What commands print for machines: an envelope of JSON per command, lines of events before it for a run.

On stderr, the name of each piece of foreign code before it runs. What a command prints has a type, which
`rlf.apps.schema.outputs` names; its JSON Schema is derived from the type by the rules of `rlf.core.plain_json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from rlf.core.callables import foreign_code
from rlf.core.plain_json import VERSION, as_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.runs.sink import RunInfo
    from rlf.types.events import RunEvent

NoImport = Annotated[
    bool,
    typer.Option(
        "--no-import", help="Import no Python and start no MCP server, e.g. for a spec that you do not trust."
    ),
]


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
    print(json.dumps(as_json(value), allow_nan=False), file=_kept[-1] if _kept else None, flush=True)


_kept: list[TextIO] = []
"""What was stdout where prints go aside, for all threads, as `sys.stdout` is."""


@contextmanager
def prints_aside() -> Iterator[None]:
    """Sends what tools and rewards print to stderr, as long as the block lasts; lines of JSON go where they went."""
    _kept.append(_kept[-1] if _kept else sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


class JsonLines:
    """Prints every event as a line of JSON. Trajectories are counted, not printed: the lineage holds them."""

    def __init__(self, command: str) -> None:
        self._command = command

    def open(self, info: RunInfo) -> JsonLines:
        """Prints what is about to run."""
        print_event(self._command, "started", info)
        return self

    def __call__(self, event: RunEvent) -> None:
        """Prints one event."""
        print_run_event(self._command, event)

    def close(self) -> None:
        """Does nothing."""


def print_run_event(command: str, event: RunEvent) -> None:
    """Prints an event of a run as a line."""
    from rlf.reports.progress import NAMES, line_of

    print_event(command, NAMES[type(event).__name__], line_of(event))


@contextmanager
def announced(*, no_import: bool | None) -> Iterator[None]:
    """Names foreign code on stderr before it runs within the block.

    Args:
        no_import: Whether it is refused instead; None: the command has no such option.
    """
    hint = "" if no_import is None else " (not with --no-import)"

    def announce(what: str) -> None:
        print(f"about to {what}{hint}", file=sys.stderr, flush=True)

    with foreign_code(None if no_import else announce):
        yield
