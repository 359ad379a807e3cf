"""Sweeps on the screen: a view for each member, one after the other, and a table at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import typer
from rich.console import Console
from rich.text import Text

from rlf.cli.arguments import runs_option
from rlf.cli.envelope import print_envelope, print_event
from rlf.cli.output import stdout_console
from rlf.cli.view import EXIT_CODES, RunView, choose_view

if TYPE_CHECKING:
    from rlf.api.running.drive import RunInfo
    from rlf.api.running.sweeps import Member, MemberOutcome, SweepOutcome, Watcher
    from rlf.types.events import EventSink


class Work(Protocol):
    """A function of `rlf.api` that runs the members of a sweep."""

    def __call__(self, *, runs_folder: Path, watcher: Watcher, command: Sequence[str]) -> SweepOutcome:
        """Shows what it does to the watcher; the lineage keeps the command."""


class _Screen:
    """Shows the members of a sweep, each in a view of its own."""

    def __init__(self, console: Console, command: str, *, as_json: bool) -> None:
        self._console = console
        self._command = command
        self._as_json = as_json
        self._view: RunView | None = None

    def open(self, info: RunInfo) -> EventSink:
        """A view for the member that starts."""
        self.close()
        self._view = choose_view(self._console, self._command, as_json=self._as_json)
        return self._view.open(info)

    def begin(self, member: Member) -> None:
        """Prints which member comes next."""
        if self._as_json:
            print_event(self._command, "member", member)
        else:
            words = f"member {member.number} of {member.total}: {shlex.join(member.overrides)}"
            self._console.print(Text(words, "bold"), soft_wrap=True)

    def end(self, member: Member, outcome: MemberOutcome) -> None:
        """Ends the member's view, and prints what went wrong."""
        self.close()
        if outcome.error is not None:
            print(f"member {member.number} {outcome.status}: {outcome.error}", file=sys.stderr)

    def close(self) -> None:
        """Restores the terminal."""
        if self._view is not None:
            self._view.close()
            self._view = None


def watch_sweep(command: str, work: Work, runs_folder: Path, as_json: bool) -> NoReturn:
    """Lets `work` run under views, prints the table of members, and exits with the sweep's code."""
    from rlf.api.lineage import open_reader
    from rlf.api.running.sweeps import Watcher
    from rlf.reports.sweep import read_sweep, sweep_view
    from rlf.types.events import RunStatus

    console = stdout_console()
    screen = _Screen(console, command, as_json=as_json)
    try:
        watcher = Watcher(screen.open, screen.begin, screen.end)
        outcome = work(runs_folder=runs_folder, watcher=watcher, command=["rlf", *sys.argv[1:]])
    finally:
        screen.close()
    with open_reader(runs_folder) as reader:
        report = read_sweep(reader, outcome.run_id)
    if as_json:
        print_envelope(command, report)
    else:
        console.print(Text(), sweep_view(report), sep="\n")
        if outcome.status is not RunStatus.FINISHED:
            console.print(f"  rlf resume {outcome.run_id}{runs_option(runs_folder)}", soft_wrap=True)
        if sum(row.after is not None for row in report.rows) > 1:
            console.print(f"  rlf runs compare {outcome.run_id}{runs_option(runs_folder)}", soft_wrap=True)
    raise typer.Exit(EXIT_CODES.get(outcome.status, 1))
