"""`rlf mcp`: check, run and compare from an MCP client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, RunsFolder


def serve_commands(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The project: paths are relative to it, and stay in it.")
    ] = Path(),
    allow_run: Annotated[
        bool,
        typer.Option("--allow-run", help="Also offer what runs the project's code: its tools, rewards, worlds, runs."),
    ] = False,
    budget_s: Annotated[
        float, typer.Option("--budget-s", min=1, help="Seconds after which a run that was started is interrupted.")
    ] = 3600.0,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Serve rlf's commands to an MCP client over stdio, until it leaves. Read-only without `--allow-run`.

    Then nothing of the project is imported, started or written. A tool's output is what its command prints with
    `--json`. Documents, schemas and the project's YAML files are resources.
    """
    import asyncio

    from rlf.apps.mcp.server import ServedProject, serve_stdio
    from rlf.core.errors import RlfError

    if not folder.is_dir():
        raise RlfError(f"{folder}: is no folder. Write the folder of a project, or of one to come.")
    asyncio.run(serve_stdio(ServedProject(folder.resolve(), runs_folder, allow_run=allow_run, budget_s=budget_s)))
