"""The console that results are printed on."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.lineage.graph import GraphNode

_PIPE_WIDTH = 120


class _Console(Console):
    """Rich's console, except that a closed pipe is an error like any other and not an exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def stdout_console() -> Console:
    """A console on stdout as wide as the terminal; wider in a pipe, where no screen sets a width.

    Text is shown as it is: what a model or a tool wrote must not be taken for markup.
    """
    console = _Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def plain_table(
    headers: Iterable[str], rows: Iterable[Iterable[str | Text]] = (), *, figures: Container[str] = ()
) -> Table:
    """A table without lines, whose long cells are folded; columns of `figures` are aligned at the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header, overflow="fold", justify="right" if header in figures else "left")
    for row in rows:
        table.add_row(*row)
    return table


def facts_table(rows: Iterable[Iterable[str | Text]]) -> Table:
    """A table of names and values."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


FEW = 3
"""Things of one kind, such as a run's steps, that are named before the rest are counted."""


def print_nodes(nodes: Sequence[GraphNode], num_left_out: int = 0) -> None:
    """Prints nodes with what each was made of."""
    made_of = [", ".join(dict.fromkeys(key.partition(":")[0] for key in node.made_of)) for node in nodes]
    rows = [
        (node.kind, Text(node.name), node.sha256[:12], Text(of, "dim")) for node, of in zip(nodes, made_of, strict=True)
    ]
    stdout_console().print(plain_table(("kind", "what", "sha256", "made of"), rows))
    if num_left_out:
        print(f"and {num_left_out} nodes between these")


def print_note(line: str) -> None:
    """Prints a line on stderr: stdout may be a protocol's, or somebody's pipe."""
    print(line, file=sys.stderr, flush=True)


def write_page(path: Path, text: str) -> None:
    """Writes a page or a figure, in a folder that is made. Raises RlfError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RlfError(f"{path}: cannot be written: {error.strerror}. Name a file in a folder that is.") from error


_SEPARATOR = " · "


@dataclass(frozen=True, slots=True)
class Parts:
    """Facts that stay whole when the row does not fit, and stand out when they are alarms."""

    facts: Sequence[str]
    alarms: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.facts or self.alarms)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pieces = [Text(fact) for fact in self.facts] + [Text(alarm, "yellow") for alarm in self.alarms]
        line = Text()
        for piece in pieces:
            if line and line.cell_len + len(_SEPARATOR) + piece.cell_len > options.max_width:
                yield line
                line = Text()
            line = line.append(_SEPARATOR).append_text(piece) if line else piece
        yield line
