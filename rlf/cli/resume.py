"""`rlf resume`: goes on with a run that was stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.run import watch
from rlf.cli.view import RunView

if TYPE_CHECKING:
    from rlf.api.runs import RunOutcome


def resume(name: RunName, runs_folder: RunsFolder = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """Go on with a run that was interrupted, killed or failed, from its last checkpoint."""
    from rlf.api import runs

    def work(view: RunView) -> RunOutcome:
        return runs.resume(name, runs_folder=runs_folder, view=view.open, command=["rlf", *sys.argv[1:]])

    watch("resume", work, runs_folder, as_json=as_json)
