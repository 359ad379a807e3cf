"""`rlf chaos`: short runs under faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, split_arguments
from rlf.cli.envelope import print_result
from rlf.cli.output import print_note

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.apps.chaos.chaos import Chaos


def chaos(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="SPEC... [KEY=VALUE]...", help="A spec and overrides of it.", show_default=False),
    ],
    only: Annotated[str | None, typer.Option("--only", metavar="NAMES", help="Faults, with commas.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a spec for three steps under each fault of its machine, and look for what was lost.

    Killed, stopped, paused, a full disk, a locked database, dead workers, no descriptors: a run that ends is resumed.
    Exit code 3 where something was lost. Nothing of it stays.
    """
    from rlf.apps.chaos.chaos import chaos as run_chaos

    files, overrides = split_arguments(arguments)
    names = [] if only is None else only.split(",")
    found = run_chaos(files, overrides, only=names, note=print_note)
    print_result("chaos", found, as_json, lambda: _view(found))
    raise typer.Exit(0 if found.holds else 3)


def _view(found: Chaos) -> RenderableType:
    from rlf.reports.sheets import plain_table

    heads = ("fault", "what happens", "verdict", "same numbers", "what does not hold")
    same = {True: "yes", False: "no", None: "not promised"}
    rows = [(one.fault, one.what, one.verdict, same[one.is_equal], "; ".join(one.broken)) for one in found.ordeals]
    return plain_table(heads, rows, left=heads)
