"""`rlf env import`: the YAML of a world from what others have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import AsJson, Force
from rlf.cli.envelope import print_result
from rlf.reports.sheets import visible


def import_world(
    kind: Annotated[
        Literal["python", "mcp", "openenv", "text"],
        typer.Argument(metavar="KIND", help="python, mcp, openenv or text."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="python: `module:Class` or `file.py:Class`; mcp: a command in quotes or a url; openenv: a url; "
            "text: `package:id`.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")] = Path("specs/world.yaml"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the YAML of a world from a class, an MCP server, an OpenEnv server or a package of text worlds."""
    from rlf.apps.imports import worlds as importing

    done = importing.import_world(kind, source, out, force=force)
    lines = [f"wrote {done.file}", *(f"to do: {note}" for note in done.notes), f"next: rlf env test {done.file}"]
    print_result("env import", done, as_json, visible("\n".join(lines)))
