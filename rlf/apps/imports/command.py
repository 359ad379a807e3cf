"""`rlf tools import`: tool files from what others declare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import AsJson, Force
from rlf.cli.envelope import announced, print_result
from rlf.cli.output import print_note
from rlf.reports.sheets import visible

Source = Literal["mcp", "openapi", "openai", "rl-factory", "python"]


def import_tools(
    kind: Annotated[Source, typer.Argument(metavar="KIND", help="mcp, openapi, openai, rl-factory or python.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="mcp: a url, a command in quotes, or a file with mcpServers; openapi, openai: a file or url; "
            "rl-factory: mcp_tools.pydata; python: a module or file.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the files.")] = Path("tool_specs"),
    force: Force = False,
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix for every name.")] = "",
    target: Annotated[
        str | None,
        typer.Option(
            "--target", show_default=False, help="openai: where calls go: a module, a file, or a url with {name}."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", show_default=False, help="openapi: the service's address, instead of the document's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a tool file for each tool that a server, a document or a module declares.

    A module is imported and a server's command is started; each is named on stderr before it runs.
    """
    from rlf.apps.imports import tools as importing
    from rlf.apps.imports.tools import write_tools

    with announced(no_import=None):
        found = importing.read_source(kind, importing.ImportRequest(source, out, target, url))
    written = write_tools(found, out, source=f"{kind}: {source}", force=force, prefix=prefix)
    print_result("tools import", written, as_json, "\n".join(map(str, written.files)))
    left_out = [f"left out: {reason}" for reason in written.left_out]
    unset = [f"set the environment variable {name}" for name in written.variables]
    for line in () if as_json else (*left_out, *written.notes, *unset):
        print_note(line)


# `rlf env import`: the YAML of a world from what others have.


def import_world_command(
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
    lines = [f"wrote {done.file}", *(f"to do: {note}" for note in done.notes), f"next: rlf env prove {done.file}"]
    print_result("env import", done, as_json, visible("\n".join(lines)))
