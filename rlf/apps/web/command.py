"""`rlf web`: the page."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, Host, Port, RunsFolder
from rlf.cli.envelope import print_event, print_result
from rlf.core.errors import RlfError


def web(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROJECT] | export RUN FOLDER",
            help="Folder with specs, tools and rewards; or a run that is written as pages to share.",
            show_default=False,
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8642,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="RLF_WEB_TOKEN",
            help="Token that visitors must send; '' asks for none.",
            show_default="a new one",
        ),
    ] = None,
    read_only: Annotated[
        bool | None,
        typer.Option(
            "--read-only/--read-write",
            help="Whether the page is read-only.",
            show_default="read-only where others reach it",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Of export: the latest N trajectories.")] = 500,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Open a page in the browser: runs, trajectories, specs, tools, rewards and data. Ctrl-C ends it, and no run.

    `rlf web export RUN FOLDER` writes a run and its trajectories as pages that need no server.
    """
    if words and words[0] == "export":
        return _export_pages(words[1:], limit, runs_folder, as_json=as_json)
    if len(words or ()) > 1:
        raise RlfError(f"got {' '.join(words or ())}; expected one project folder, or `export RUN FOLDER`.")
    from rlf.apps.web.app import serve_page
    from rlf.apps.web.settings import LOOPBACK, WebSettings

    project = Path(words[0] if words else ".")
    if not project.is_dir():
        raise RlfError(f"{project}: is not a folder. Name a project's folder, or make one with `rlf init FOLDER`.")
    is_local = host in LOOPBACK
    if not is_local and token == "":
        raise RlfError(
            f"--token: without one, everybody who reaches {host} could read the project. Remove `--token ''`."
        )
    if not is_local:
        print(f"the token and all pages cross the network to {host} unencrypted.", file=sys.stderr)
    own = project / DEFAULT_RUNS
    if runs_folder != DEFAULT_RUNS and not runs_folder.is_dir():  # that of the project may come with its first run
        raise RlfError(f"--runs: {runs_folder} is not a folder. Name one that has runs, or leave it out for {own}.")
    serve_page(
        WebSettings(
            project=project.resolve(),
            runs_folder=(own if runs_folder == DEFAULT_RUNS else runs_folder).resolve(),
            host=host,
            port=port,
            token=secrets.token_urlsafe(18) if token is None else token or None,
            read_only=not is_local if read_only is None else read_only,
        ),
        lambda address: _announce(address, as_json=as_json),
    )
    raise KeyboardInterrupt  # nothing else ends it


def _export_pages(words: list[str], limit: int, runs_folder: Path, *, as_json: bool) -> None:
    """Writes a run as pages."""
    from rlf.apps.web.bundles import write_bundle
    from rlf.reports.sheets import counted
    from rlf.runs.place import open_reader

    if len(words) != 2:
        raise RlfError(
            f"export: got {' '.join(words) or 'nothing'}; expected a run and a folder that is not there yet."
        )
    with open_reader(runs_folder) as reader:
        found = write_bundle(reader, words[0], Path(words[1]), limit)
    size = f"{counted(found.num_trajectories, 'page')} of trajectories, {found.size_bytes / 1e6:.1f} MB"
    print_result("web", found, as_json, f"{found.folder}/index.html: run {found.run_id}, {size}")


def _announce(address: str, *, as_json: bool) -> None:
    """Prints where the page is."""
    if as_json:
        from rlf.apps.web.settings import OpenedPage

        print_event("web", "open", OpenedPage(address))
    else:
        print(f"rlf web: open {address}", flush=True)
