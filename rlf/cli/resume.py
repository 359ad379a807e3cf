"""`rlf resume`, and the view of a sweep."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    AsJson,
    RunName,
    RunsFolder,
    runs_option,
)
from rlf.cli.envelope import JsonLines, print_envelope, print_event, prints_aside
from rlf.cli.output import stdout_console
from rlf.cli.run import EXIT_CODES, AtOnce, choose_view, watch
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.cli.board import LiveView
    from rlf.cli.live import PlainView
    from rlf.runs.sink import RunInfo
    from rlf.runs.sweeps import Member, MemberOutcome, SweepOutcome
    from rlf.types.events import EventSink


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


def watch_sweep(command: str, work: Callable[..., SweepOutcome], runs_folder: Path, as_json: bool) -> NoReturn:
    """Lets `work` run under views, prints the table of members, and exits with the sweep's code."""
    from rlf.reports.sweep import read_sweep, sweep_view
    from rlf.runs.place import open_reader
    from rlf.runs.sweeps import Watcher
    from rlf.types.events import RunStatus

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


def resume_command(
    name: RunName,
    at_once: AtOnce = 1,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="Continue although code, data, model or packages changed; the change is recorded."
        ),
    ] = False,
    from_step: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="STEP",
            min=0,
            help="Checkpoint to continue from; 0: the beginning.",
            show_default="newest",
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Take the run over from a process that still seems to run it, paused or on another machine. That "
            "process ends at its next write and reports why. This one repeats everything after the last checkpoint.",
        ),
    ] = False,
    max_usd: Annotated[
        float | None,
        typer.Option(
            "--max-usd",
            metavar="N",
            min=0.0,
            help="US dollars that the run may spend in total, instead of `limits.max_usd`.",
            show_default="the spec's",
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was interrupted, killed or failed, from its last checkpoint; or a sweep.

    What the run was made from is compared with what is there now before anything runs; changes are refused.

    A cluster's job that continued, or ended, while nobody followed it is found again, and nothing is run
    twice.
    """
    from rlf.runs import start, sweeps

    if sweeps.is_named_sweep(name, runs_folder):
        if from_step is not None:
            raise RlfError("--from: a sweep has no checkpoints of its own. Name one of its runs.")
        if max_usd is not None:
            raise RlfError("--max-usd: the budget is a run's own. Name one of the sweep's runs.")
        if at_once > 1 and (accept_changes or take_over):
            raise RlfError("--at-once: runs side by side accept no changes and take nothing over. Leave it out.")
        more = partial(sweeps.resume_sweep, name, accept_changes=accept_changes, take_over=take_over, at_once=at_once)
        watch_sweep("resume", more, runs_folder, as_json)
    if at_once > 1:
        raise RlfError("--at-once goes with a sweep. Name one.")
    again = partial(start.resume, name, accept_changes=accept_changes, take_over=take_over)
    watch("resume", partial(again, from_step=from_step, max_usd=max_usd), runs_folder, as_json=as_json)
