"""`rlf chaos`: short runs under faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, HtmlFile, split_arguments
from rlf.cli.envelope import print_result
from rlf.cli.output import print_note, write_page

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.apps.chaos.chaos import Chaos
    from rlf.reports.sheets import Sheet


def chaos_command(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="SPEC... [KEY=VALUE]...", help="A spec and overrides of it.", show_default=False),
    ],
    only: Annotated[str | None, typer.Option("--only", metavar="NAMES", help="Faults, with commas.")] = None,
    minimise: Annotated[
        bool, typer.Option("--minimise", help="All faults in one run; where it loses something, which of them matter.")
    ] = False,
    html: HtmlFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a spec for three steps under each fault of its machine, and look for what was lost.

    Killed, stopped, paused, a full, slow or failing disk, a database that is locked, refuses rows or is damaged, dead
    workers, no descriptors or memory, a clock that jumps, servers that fail, hang or send garbage: a run that ends is
    resumed. Exit code 3 where something was lost. Nothing of it stays but the certificate: a hash of plan, code, faults
    and verdicts.
    """
    from rlf.apps.chaos.chaos import chaos

    files, overrides = split_arguments(arguments)
    names = [] if only is None else [name.strip() for name in only.split(",")]
    found = chaos(files, overrides, only=names, minimise=minimise, note=print_note)
    print_result("chaos", found, as_json, lambda: _view(found))
    if html is not None:
        write_page(html, _page(found))
    raise typer.Exit(0 if found.holds else 3)


def _sheet(found: Chaos) -> Sheet:
    from rlf.reports.sheets import Sheet

    heads = ("fault", "what happens", "verdict", "same numbers", "what does not hold, or why it is untried")
    same = {True: "yes", False: "no", None: "not promised"}
    rows = [
        (one.fault, one.what, one.verdict, same[one.is_equal], "; ".join(one.broken) or one.why)
        for one in found.ordeals
    ]
    return Sheet(f"{found.name} under faults", f"{found.num_steps} steps each", heads, tuple(rows))


def _view(found: Chaos) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from rlf.reports.sheets import sheet_table

    return Group(sheet_table(_sheet(found)), Text(f"certificate {found.certificate}"))


def _page(found: Chaos) -> str:
    from rlf.reports.pages.render import render_page

    words = "nothing was lost" if found.holds else "something was lost"
    lines = [words, f"certificate {found.certificate}", f"plan {found.plan_hash}, code {found.code_version}"]
    return render_page("sheets.html", title=f"chaos: {found.name}", lines=lines, charts=(), sheets=[_sheet(found)])
