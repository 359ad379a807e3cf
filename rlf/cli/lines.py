"""The machine's view: one JSON object per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.cli.envelope import print_event

if TYPE_CHECKING:
    from rlf.api.running.drive import RunInfo
    from rlf.types.events import RunEvent


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
    from rlf.api.running.lines import NAMES, line_of

    print_event(command, NAMES[type(event).__name__], line_of(event))
