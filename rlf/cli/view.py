"""Views of a run under way: one of live, plain and JSON, opened when the run is registered, closed whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rich.console import Console

if TYPE_CHECKING:
    from rlf.api.running.drive import RunInfo
    from rlf.types.events import RunEvent

EXIT_CODES = {"finished": 0, "interrupted": 130}
"""By a run's status; 1 for any other."""


class RunView(Protocol):
    """An EventSink that gets the run's events first and is closed last."""

    def open(self, info: RunInfo) -> RunView:
        """Shows what is about to run."""

    def __call__(self, event: RunEvent) -> None:
        """Takes one event."""

    def close(self) -> None:
        """Restores the terminal. Safe to call when `open` never was, and twice."""


def choose_view(console: Console, command: str, *, as_json: bool) -> RunView:
    """Live on a terminal that can be redrawn, plain lines elsewhere, JSON lines on request."""
    if as_json:
        from rlf.cli.lines import JsonLines

        return JsonLines(command)
    if console.is_terminal and not console.is_dumb_terminal:
        from rlf.cli.live import LiveView

        return LiveView(console)
    from rlf.cli.plain import PlainView

    return PlainView(console)
