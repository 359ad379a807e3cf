"""`rlf env show`: one word for a spec's world and for a world that was built, each shown by its app."""

from __future__ import annotations

from typing import Annotated

import typer

from rlf.cli.arguments import AsJson, split_arguments
from rlf.cli.commands import is_present, load_function
from rlf.cli.completion import complete_spec
from rlf.core.errors import RlfError

_OF_A_SPEC, _OF_A_FOLDER = "apps.worlds.command:show_world", "apps.build.command:show_world"


def show_env(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC|FOLDER [KEY=VALUE]...",
            help="A spec with a world, or a built world, e.g. worlds/towns.",
            show_default=False,
            autocompletion=complete_spec,
        ),
    ],
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
    home = _OF_A_SPEC if is_spec(files[0]) else _OF_A_FOLDER
    if not is_present(home):
        raise RlfError(
            f"{files[0]}: this installation of rlf lacks the part that shows it, rlf.{home.rpartition('.')[0]}."
        )
    load_function(home)(files, overrides, task, as_json)
