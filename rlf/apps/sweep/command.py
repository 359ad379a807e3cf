"""Sweeps of `rlf run` and `rlf resume` on the screen: a view for each member, and a table at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from rlf.apps.sweep.axes import members_of
from rlf.apps.sweep.sweep import Member, MemberOutcome, SweepOutcome, Watcher, resume_sweep, run_sweep
from rlf.cli.arguments import runs_option
from rlf.cli.envelope import JsonLines, print_envelope, print_event, prints_aside
from rlf.cli.output import stdout_console
from rlf.cli.run import EXIT_CODES, choose_view
from rlf.core.errors import RlfError
from rlf.reports.sweep import read_sweep, sweep_view
from rlf.runs.place import open_reader
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.cli.board import LiveView
    from rlf.cli.live import PlainView
    from rlf.runs.sink import RunInfo
    from rlf.types.events import EventSink


def run_members_command(
    files: Sequence[Path], overrides: Sequence[str], sweep: Path | None, multirun: bool, at_once: int, **shown: Any
) -> NoReturn:
    """`rlf run` with `-m` or `--sweep`."""
    members = members_of(overrides, sweep, commas=multirun)
    _watch("run", partial(run_sweep, files, *members, at_once=at_once), **shown)


def resume_members_command(
    name: str, at_once: int, from_step: int | None, max_usd: float | None, given: Mapping[str, Any], **shown: Any
) -> NoReturn:
    """`rlf resume` of a sweep."""
    if from_step is not None:
        raise RlfError("--from: a sweep has no checkpoints of its own. Name one of its runs.")
    if max_usd is not None:
        raise RlfError("--max-usd: the budget is a run's own. Name one of the sweep's runs.")
    if at_once > 1 and any(given.values()):
        raise RlfError("--at-once: runs side by side accept no changes and take nothing over. Leave it out.")
    _watch("resume", partial(resume_sweep, name, at_once=at_once, **given), **shown)


class _Screen:
    """Shows the members of a sweep, each in a view of its own."""

    def __init__(self, console: Console, command: str, *, as_json: bool) -> None:
        self._console = console
        self._command = command
        self._as_json = as_json
        self._view: LiveView | PlainView | JsonLines | None = None

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


def _watch(command: str, work: Callable[..., SweepOutcome], runs_folder: Path, as_json: bool) -> NoReturn:
    """Lets `work` run under views, prints the table of members, and exits with the sweep's code."""
    console = stdout_console()
    screen = _Screen(console, command, as_json=as_json)
    try:
        watcher = Watcher(screen.open, screen.begin, screen.end)
        with prints_aside() if as_json else nullcontext():
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
