"""`rlf resume`: continues a run or a sweep that was stopped."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    AsJson,
    RunName,
    RunsFolder,
)
from rlf.cli.run import AtOnce, watch, watch_sweep
from rlf.core.errors import RlfError


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
