"""A renderable with a mark before every line, so that who wrote a text shows without colour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style


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
