"""`rlf resume`: continues a run that was stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.run import watch
from rlf.cli.sweep import watch_sweep
from rlf.cli.view import RunView
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.api.running.start import RunOutcome


def resume(
    name: RunName,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="Continue although code, data, model or packages changed, and record it."
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
            help="Take the run from a process that seems to run it still, on another machine or paused: that one "
            "loses it, ends at its next write and says so. Everything after the last checkpoint is done again here.",
        ),
    ] = False,
    max_usd: Annotated[
        float | None,
        typer.Option(
            "--max-usd",
            metavar="N",
            min=0.0,
            help="US dollars that the run may spend in all, in place of `limits.max_usd`.",
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
    from rlf.api.running import start, sweeps

    if sweeps.is_sweep(name, runs_folder):
        if from_step is not None:
            raise RlfError("--from: a sweep has no checkpoints of its own. Name one of its runs.")
        if max_usd is not None:
            raise RlfError("--max-usd: the budget is a run's own. Name one of the sweep's runs.")
        _resume_sweep(name, runs_folder, accept_changes=accept_changes, take_over=take_over, as_json=as_json)

    def work(view: RunView) -> RunOutcome:
        return start.resume(
            name,
            runs_folder=runs_folder,
            view=view.open,
            command=["rlf", *sys.argv[1:]],
            accept_changes=accept_changes,
            from_step=from_step,
            take_over=take_over,
            max_usd=max_usd,
        )

    watch("resume", work, runs_folder, as_json=as_json)


def _resume_sweep(name: str, runs_folder: Path, *, accept_changes: bool, take_over: bool, as_json: bool) -> NoReturn:
    from rlf.api.running import sweeps

    def work(watcher: sweeps.Watcher) -> sweeps.SweepOutcome:
        command = ["rlf", *sys.argv[1:]]
        return sweeps.resume_sweep(
            name,
            runs_folder=runs_folder,
            watcher=watcher,
            command=command,
            accept_changes=accept_changes,
            take_over=take_over,
        )

    watch_sweep("resume", work, runs_folder, as_json=as_json)
