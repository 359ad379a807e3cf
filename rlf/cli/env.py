"""`rlf env show` and `prove`: one word for a spec's world and for a world that was built, each the work of its app."""

from __future__ import annotations

from typing import Annotated

import typer

from rlf.cli.arguments import AsJson, load_part, split_arguments
from rlf.cli.completion import complete_spec

_PROOF_OF_A_SPEC, _PROOF_OF_A_FOLDER = "apps.worlds.command:prove_spec_world", "apps.build.command:prove_built_world"
WorldArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="SPEC|FOLDER [KEY=VALUE]...",
        help="A spec with a world, or a built world, e.g. worlds/towns.",
        show_default=False,
        autocompletion=complete_spec,
    ),
]
_OF_A_SPEC, _OF_A_FOLDER = "apps.worlds.command:show_spec_world", "apps.build.command:show_built_world"


def show_env(
    arguments: WorldArguments,
    task: Annotated[
        int | None, typer.Option("--task", metavar="N", min=0, help="Show the graph of this task.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the world of a spec with its first prompt; or a built world's certificate, or one of its tasks.

    Of a task the sub-questions, tools and golds.
    """
    from rlf.runs.worlds import is_spec

    files, overrides = split_arguments(arguments)
    load_part(_OF_A_SPEC if is_spec(files[0]) else _OF_A_FOLDER, files[0])(files, overrides, task, as_json)


def prove_env(
    arguments: WorldArguments,
    num_tasks: Annotated[int, typer.Option("--tasks", min=1, help="Tasks of a spec's training data to try.")] = 8,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", min=0, max=1, help="Share of the reward that a policy without skill may earn by chance."
        ),
    ] = 0.2,
    limit_s: Annotated[
        float, typer.Option("--limit-s", min=1, help="Seconds after which the proof of a spec's world ends.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Prove a world without a model; exit code 3 where it does not hold.

    Of a spec: its world, point by point, with the spec's own rewards. Of a built world: each of its tasks again, as its
    files are; where files were edited and every task holds, the certificate is written again.
    """
    from rlf.runs.worlds import is_spec

    files, overrides = split_arguments(arguments)
    if is_spec(files[0]):
        load_part(_PROOF_OF_A_SPEC, files[0])(files, overrides, num_tasks, tolerance, limit_s, as_json)
    else:
        load_part(_PROOF_OF_A_FOLDER, files[0])(files[0], as_json)
