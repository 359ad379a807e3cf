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
    minimise: Annotated[
        bool, typer.Option("--minimise", help="All faults in one run; where it loses something, which of them matter.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a spec for three steps under each fault of its machine, and look for what was lost.

    Killed, stopped, paused, a full, slow or failing disk, a locked database, dead workers, no descriptors or memory, a
    clock that jumps, servers that fail, hang or send garbage: a run that ends is resumed. Exit code 3 where something
    was lost. Nothing of it stays but the certificate: a hash of plan, code, faults and verdicts.
    """
    from rlf.apps.chaos.chaos import chaos as run_chaos

    files, overrides = split_arguments(arguments)
    names = [] if only is None else only.split(",")
    found = run_chaos(files, overrides, only=names, minimise=minimise, note=print_note)
    print_result("chaos", found, as_json, lambda: _view(found))
    raise typer.Exit(0 if found.holds else 3)


def _view(found: Chaos) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from rlf.reports.sheets import plain_table

    heads = ("fault", "what happens", "verdict", "same numbers", "what does not hold")
    same = {True: "yes", False: "no", None: "not promised"}
    rows = [(one.fault, one.what, one.verdict, same[one.is_equal], "; ".join(one.broken)) for one in found.ordeals]
    return Group(plain_table(heads, rows, left=heads), Text(f"certificate {found.certificate}"))
