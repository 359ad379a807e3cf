"""`rlf export`: a run's model as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunName, RunsFolder
from rlf.cli.envelope import print_result


def export(
    name: RunName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the model is written; it must not exist.")],
    step: Annotated[
        str, typer.Option("--step", metavar="N|newest|best", help="Which model: updates seen, or by held-out success.")
    ] = "newest",
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write the model that a run trained as a Hugging Face folder.

    The final model, or while there is none that of the newest checkpoint; a run that was stopped has one too.
    """
    from rlf.api.runs.exports import export_model

    done = export_model(name, folder, runs_folder=runs_folder, step=step)
    print_result("export", done, as_json, f"run {done.run_id} after step {done.step}: {done.folder}")
