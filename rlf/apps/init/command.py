"""`rlf init`: a project that runs at once."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from rlf.cli.arguments import AsJson, activation_hint
from rlf.cli.envelope import print_result
from rlf.cli.output import plain_table
from rlf.core.errors import RlfError

_DEFAULT = "search"


def complete_template(incomplete: str) -> list[str]:
    """Names of project templates, for shells."""
    from rlf.apps.init.projects import templates

    return [name for name in templates() if name.startswith(incomplete)]


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[NAME]", help="Folder to make, named like the run; without it, the empty one here."),
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--template",
            autocompletion=complete_template,
            help="`search`, `shop`, `cold-start`, `sql`, `code`, `mcp`, `judge`, or `python` for your own tool.",
        ),
    ] = _DEFAULT,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="For `python`: your own table (CSV, JSON, JSON Lines, Parquet), whose first column names each row. "
            "Questions are made from it.",
        ),
    ] = None,
    list_them: Annotated[
        bool, typer.Option("--list", help="List five recipes: for what, what was measured, how to start.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a project folder: spec, tools, rewards, data and a README."""
    from rlf.apps.init.projects import new_project, templates

    if list_them:
        from rlf.apps.init.projects import RECIPES

        start = "rlf init NAME --template"
        rows = ((each.name, each.have, each.teaches, each.measured, f"{start} {each.template}") for each in RECIPES)
        table = plain_table(("recipe", "you have", "what teaches", "measured with a built-in model", "start"), rows)
        return print_result("init", RECIPES, as_json, Group(table, f"\nTemplates: {', '.join(templates())}."))
    if data and len(data) > 1:
        raise RlfError(f"--data: got {' and '.join(map(str, data))}; a project has one table. Write one of them.")
    project = new_project(folder or Path(), template, data[0] if data else None)
    files = "\n".join(str(project.folder / file) for file in project.files)
    enter = f"cd {shlex.quote(str(folder))} && " if folder is not None else ""
    for warning in project.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return print_result("init", project, as_json, f"{files}\n\n{enter}rlf run {project.spec}{activation_hint()}")
