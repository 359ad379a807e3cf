"""Tables of text, the same for the terminal, Markdown and pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    note: str
    """What its figures are; empty where the title says it."""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: bool = False
    """Whether what follows the first cell of a row are figures, which are aligned at the right."""


def plain_table(
    header: Sequence[str],
    rows: Iterable[Iterable[str | Text]] = (),
    *,
    left: Collection[str] = (),
    wraps: Collection[str] | None = None,
    title: str | None = None,
) -> Table:
    """A table without lines for the terminal.

    Args:
        left: columns that are aligned at the left; the others are figures.
        wraps: columns that may be broken; None: those at the left.
    """
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=title, title_justify="left")
    table.title_style = "bold"
    for name in header:
        no_wrap = name not in (left if wraps is None else wraps)
        table.add_column(name, justify="left" if name in left else "right", no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def label_grid(rows: Iterable[tuple[str, RenderableType]], width: int = 11) -> Table:
    """Contents with a muted label before each, `width` columns wide."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=width, style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    for row in rows:
        grid.add_row(*row)
    return grid


def sheet_markdown(sheet: Sheet) -> str:
    """One table with its title and note."""
    head = [f"## {sheet.title}", *([sheet.note] if sheet.note else [])]
    rule = ("---", *("---:" if sheet.figures else "---" for _ in sheet.header[1:]))
    return "\n\n".join([*head, "\n".join(_markdown_rows([sheet.header, rule, *sheet.rows]))])


def _markdown_rows(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
