"""`rlf env import`: the YAML of a world from what others have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import AsJson
from rlf.cli.envelope import print_result
from rlf.reports.quantities import visible

_OUT = Path("specs/world.yaml")


class WorldSource(StrEnum):
    """What a world is imported from."""

    PYTHON = "python"
    MCP = "mcp"
    OPENENV = "openenv"
    TEXT = "text"


def import_world(
    kind: Annotated[WorldSource, typer.Argument(metavar="KIND", help="python, mcp, openenv or text.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="python: `module:Class` or `file.py:Class`; mcp: a command in quotes or a url; openenv: a url; "
            "text: `package:id`.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")] = Path("specs/world.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the YAML of a world from a class, an MCP server, an OpenEnv server or a package of text worlds."""
    from rlf.api.env import importing

    done = importing.import_world(kind.value, source, out, force=force)
    lines = [f"wrote {done.file}", *(f"to do: {note}" for note in done.notes), f"next: rlf env test {done.file}"]
    print_result("env import", done, as_json, visible("\n".join(lines)))
