"""`rlf env show` and `prove`: one word for a spec's world and for a world that was built, each the work of its app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import AsJson, split_arguments
from rlf.cli.commands import is_present, load_function
from rlf.cli.completion import complete_spec
from rlf.core.errors import RlfError

_PROOF_OF_A_FOLDER = "apps.build.command:prove_world"
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
    _load(files[0], _OF_A_SPEC if is_spec(files[0]) else _OF_A_FOLDER)(files, overrides, task, as_json)


def prove_env(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A built world, e.g. worlds/towns.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Prove each task of a built world again, as its files are; exit code 3 where one does not hold.

    Where files were edited and every task holds, the certificate is written again.
    """
    _load(folder, _PROOF_OF_A_FOLDER)(folder, as_json)


def _load(file: Path, home: str) -> Callable[..., None]:
    """The function of an app. Raises RlfError where this installation lacks it."""
    if not is_present(home):
        raise RlfError(f"{file}: this installation of rlf lacks the part that does it, rlf.{home.rpartition('.')[0]}.")
    return load_function(home)
