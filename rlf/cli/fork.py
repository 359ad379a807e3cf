"""`rlf runs fork`: a child run from a checkpoint."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, split_arguments
from rlf.cli.completion import complete_run, complete_spec
from rlf.cli.run import watch


def fork_run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN[@STEP]",
            help="A run and the step of one of its checkpoints; without a step the newest.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPEC|KEY=VALUE]",
            help="Overrides of the parent's plan; or specs to use instead, with overrides.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Start a child run from a checkpoint, with changes, e.g. `rlf runs fork latest@6 train.steps=40`.

    The child keeps the parent's weights, optimizer and place in the data, counts its steps on from there, and is
    evaluated before its first one. Code and data are those that are there now.
    """
    from rlf.api.running.forks import fork

    files, overrides = split_arguments(arguments or [], need_file=False)

    watch("runs fork", partial(fork, name, files, overrides), runs_folder, as_json=as_json)
