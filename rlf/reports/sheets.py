"""Tables of text, the same for the terminal, Markdown and pages."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from rlf.core.text import shorten


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


def text_table(
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
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=width, style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    for row in rows:
        grid.add_row(*row)
    return grid


_MAX_CELL = 72
"""Characters of a cell in the terminal: `--json` and the page have all of a long value."""


def sheet_table(sheet: Sheet) -> Group:
    """One table for the terminal, its note below it."""
    rows = ((Text(shorten(cell, _MAX_CELL)) for cell in row) for row in sheet.rows)
    left = sheet.header[:1] if sheet.figures else sheet.header
    table = text_table(sheet.header, rows, left=left, wraps=sheet.header, title=sheet.title)
    return Group(table, *([Text(sheet.note, "dim")] if sheet.note else []))


_TEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "−": "$-$",
    "<": "$<$", ">": "$>$", "±": r"$\pm$", "×": r"$\times$", "→": r"$\to$", "…": r"\ldots{}", "\n": " ",
}  # fmt: skip


def tex_text(text: str) -> str:
    """Text as LaTeX shows it, whatever characters it holds."""
    return "".join(_TEX.get(char, char) for char in text)


def sheet_tex(sheet: Sheet) -> str:
    """One table for LaTeX, with the lines of `booktabs`; title and note are its caption."""
    header, *rows = (" & ".join(map(tex_text, row)) + r" \\" for row in (sheet.header, *sheet.rows))
    columns = "l" + ("r" if sheet.figures else "l") * (len(sheet.header) - 1)
    caption = ": ".join(filter(None, (sheet.title, sheet.note)))
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{tex_text(caption)}}}", rf"\begin{{tabular}}{{{columns}}}"]
    lines += [r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines)


# Numbers in words for people: shares, durations, counts, text that is safe to show.

MISSING = "–"
"""Stands where there is no number."""

_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
# Control and bidirectional characters: text of a model could move the cursor or reverse a line of a terminal.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def percent(share: float | None) -> str:
    """`71.4 %`."""
    return MISSING if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def percent_range(low: float, high: float) -> str:
    """`65.1–77.0 %`: the two ends of an interval of shares."""
    return f"{100 * low:.1f}–{100 * high:.1f} %"


def rate(share: float | None, interval: tuple[float, float] | None) -> str:
    """`71.4 % (65.1–77.0 %)`: a share with its interval, where there is one."""
    return percent(share) + ("" if share is None or interval is None else f" ({percent_range(*interval)})")


def level(confidence: float) -> str:
    """`95 %`, `98.3 %`, `99.75 %`: of an interval."""
    return f"{100 * confidence:.4g} %"


def points(difference: float, *, signed: bool = False) -> str:
    """`6.1 points`: a difference of shares."""
    return f"{100 * difference:+.1f} points" if signed else f"{100 * difference:.1f} points"


def points_range(low: float, high: float) -> str:
    """`2.3 to 9.8`: the two ends of an interval of differences of shares, in points."""
    return f"{100 * low:.1f} to {100 * high:.1f}"


def decimal(value: float | None, digits: int = 3) -> str:
    """`0.714`, `12,345`; very small and very large magnitudes as `1.2e-06`."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value and not 10.0**-digits <= abs(value) < 1e9:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def dollars(value: float | None) -> str:
    """`$0.714`."""
    return MISSING if value is None else f"${decimal(value)}"


def count(value: float | None) -> str:
    """`812`, `12.3k`, `4.5M`."""
    if value is None or not math.isfinite(value):
        return MISSING
    for size, suffix in _LARGE:
        if abs(value) >= size:
            return f"{value / size:.1f}{suffix}"
    return f"{value:.0f}"


def counted(number: int, noun: str) -> str:
    """`1 run`, `1,024 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float | None) -> str:
    """`1:52`, `2:03:07`."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def latency(seconds: float) -> str:
    """`0.4 ms`, `12 ms`, `1.52 s`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def p_value(p: float) -> str:
    """`p = 0.032`, `p < 0.0001`."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def letters_for(num: int) -> list[str]:
    """Short names for so many columns: `A` to `Z`, then `AA`, `AB`."""
    names = (itertools.product(ascii_uppercase, repeat=length) for length in itertools.count(1))
    return ["".join(name) for name in itertools.islice(itertools.chain.from_iterable(names), num)]


def visible(text: str) -> str:
    """Text that a model or a tool wrote, made harmless: control and direction characters show as `\\x1b`."""
    return _UNSAFE.sub(lambda found: (r"\x%02x" if found[0] < "\u0100" else r"\u%04x") % ord(found[0]), text)


# A renderable with a mark before every line, so that who wrote a text shows without colour.


@dataclass(frozen=True, slots=True)
class Margin:
    """Content with `mark` at the left of each of its lines."""

    content: RenderableType
    mark: str
    style: str
    """Style of the mark."""
    max_lines: int | None = None
    """Lines shown; the rest is counted. None shows all."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=max(1, options.max_width - len(self.mark)), height=None)
        lines = console.render_lines(self.content, inner, pad=False)
        style = console.get_style(self.style)
        for line in self._cut_lines(lines):
            yield Segment(self.mark, style)
            yield from line
            yield Segment.line()

    def _cut_lines(self, lines: list[list[Segment]]) -> Iterator[list[Segment]]:
        if self.max_lines is None or len(lines) <= self.max_lines:
            yield from lines
            return
        yield from lines[: self.max_lines - 1]
        yield [Segment(f"… {len(lines) - self.max_lines + 1} more lines", Style(dim=True))]
