"""Short facts in a row, with dots between them, broken between facts only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

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
