"""`rlf resume`: continues a run or a sweep that was stopped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder, load_part
from rlf.cli.run import AtOnce, watch
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
    from rlf.runs.resume import resume

    given: dict[str, Any] = {"accept_changes": accept_changes, "take_over": take_over}
    if names_sweep(name, runs_folder):
        resume_members = load_part("apps.sweep.command:resume_members_command", name)
        resume_members(name, at_once, from_step, max_usd, given, runs_folder=runs_folder, as_json=as_json)
    if at_once > 1:
        raise RlfError("--at-once goes with a sweep. Name one.")
    watch("resume", partial(resume, name, **given, from_step=from_step, max_usd=max_usd), runs_folder, as_json=as_json)


def names_sweep(name: str, runs_folder: Path) -> bool:
    """Whether a run is a sweep; false where there is none of that name, which a resume reports."""
    from rlf.lineage.records import SWEEP
    from rlf.runs.place import open_reader

    try:
        with open_reader(runs_folder) as reader:
            return reader.get_run(name).record.engine == SWEEP
    except RlfError:
        return False
