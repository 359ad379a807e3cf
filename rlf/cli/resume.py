"""`rlf resume`: goes on with a run that was stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.run import watch
from rlf.cli.sweep import watch_sweep
from rlf.cli.view import RunView

if TYPE_CHECKING:
    from rlf.api.runs import RunOutcome


def resume(name: RunName, runs_folder: RunsFolder = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """Go on with a run that was interrupted, killed or failed, from its last checkpoint; or with a sweep.

    A cluster's OpenRLHF job that went on, or ended, while nobody followed it is found again, and nothing is run twice.
    """
    from rlf.api import runs, sweeps

    if sweeps.is_sweep(name, runs_folder):
        _resume_sweep(name, runs_folder, as_json=as_json)

    def work(view: RunView) -> RunOutcome:
        return runs.resume(name, runs_folder=runs_folder, view=view.open, command=["rlf", *sys.argv[1:]])

    watch("resume", work, runs_folder, as_json=as_json)


def _resume_sweep(name: str, runs_folder: Path, *, as_json: bool) -> NoReturn:
    from rlf.api import sweeps

    def work(watcher: sweeps.Watcher) -> sweeps.SweepOutcome:
        command = ["rlf", *sys.argv[1:]]
        return sweeps.resume_sweep(name, runs_folder=runs_folder, watcher=watcher, command=command)

    watch_sweep("resume", work, runs_folder, as_json=as_json)
