"""What a command found as words, tables and curves: the same for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlf.reports.pages.chart import Chart, draw
from rlf.reports.pages.render import render_page
from rlf.reports.sheets import Sheet, sheet_table

if TYPE_CHECKING:
    from rich.console import RenderableType


class Findings(NamedTuple):
    """For people."""

    title: str
    sheets: Sequence[Sheet]
    lines: Sequence[str]
    head: str = ""
    charts: Sequence[Chart] = ()

    def view(self) -> RenderableType:
        """For the terminal, which has no curves."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text(self.head, "bold"), Text()] if self.head else []
        for sheet in self.sheets:
            parts += [sheet_table(sheet), Text()]
        return Group(*parts, *map(Text, self.lines))

    def page(self) -> str:
        """As one page that loads nothing."""
        head, charts = self.head.removeprefix(f"{self.title}: "), [draw(chart) for chart in self.charts]
        lines = [*filter(None, [head]), *self.lines]
        return render_page("sheets.html", title=self.title, lines=lines, charts=charts, sheets=self.sheets)
