"""`rlf web`: the page."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, RunsFolder
from rlf.core.errors import RlfError


def web(
    project: Annotated[
        Path, typer.Argument(metavar="[PROJECT]", help="Folder with specs, tools and rewards.", show_default=False)
    ] = Path(),
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes any that is free.")] = 8642,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="RLF_WEB_TOKEN",
            help="What visitors must bring; '' asks for nothing.",
            show_default="a new one",
        ),
    ] = None,
    read_only: Annotated[
        bool | None,
        typer.Option(
            "--read-only/--read-write",
            help="Whether the page only shows.",
            show_default="read-only where others reach it",
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Open a page in the browser: runs, trajectories, specs, tools, rewards and data. Ctrl-C ends it, and no run."""
    from rlf.web.serve import serve_page
    from rlf.web.settings import LOOPBACK, WebSettings

    if not project.is_dir():
        raise RlfError(f"{project}: is no folder. Name a project's folder, or make one with `rlf init FOLDER`.")
    is_local = host in LOOPBACK
    if not is_local and token == "":
        raise RlfError(f"--token: without one, everybody who reaches {host} could read the project. Leave it out.")
    if not is_local:
        print(f"the token and all pages cross the network to {host} unencrypted.", file=sys.stderr)
    folder = runs_folder if runs_folder.is_absolute() else project / runs_folder
    serve_page(
        WebSettings(
            project=project.resolve(),
            runs_folder=folder.resolve(),
            host=host,
            port=port,
            token=secrets.token_urlsafe(18) if token is None else token or None,
            read_only=not is_local if read_only is None else read_only,
        ),
        lambda address: print(f"rlf web: open {address}", flush=True),
    )
    raise KeyboardInterrupt  # nothing else ends it
