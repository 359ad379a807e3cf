"""Specs, tool files and reward files: listed, read, saved, checked and planned; and runs started from them."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

from fastapi import Body, Header

from rlf.apps.web.files import FileText, ProjectFile
from rlf.apps.web.jobs import CommandJob, checked_words
from rlf.apps.web.site import Area, Site
from rlf.core.errors import NotFoundError

Text = Annotated[str | None, Body(max_length=1_000_000)]
Words = Annotated[list[str], Body(max_length=100)]
_COMMANDS = {"run": ["run"], "sweep": ["run", "-m"], "rehearse": ["rehearse"]}


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "specs")
    schemas: dict[str, dict[str, Any]] = {}
    making = threading.Lock()

    @area.read("/specs")
    def list_specs() -> tuple[ProjectFile, ...]:
        """The declared files of the project."""
        return site.files.list()

    @area.read("/specs/{path:path}")
    def show_spec(path: str) -> FileText:
        """One file with its ETag."""
        return site.files.read(path)

    @area.read("/schema/{role}")
    def show_schema(role: Literal["spec", "tool", "reward"]) -> dict[str, Any]:
        """The JSON Schema of a kind of file, kinds of installed plugins included."""
        with making:
            if role not in schemas:
                schemas[role] = site.fresh.call("make_schema", role=role)
        return schemas[role]

    @area.act("PUT", "/specs/{path:path}")
    def save_spec(
        path: str, text: Annotated[str, Body(embed=True, max_length=1_000_000)], if_match: Annotated[str, Header()] = ""
    ) -> FileText:
        """Replaces a file whose ETag is `If-Match`; without one, makes a new file. 412 where it was changed."""
        return site.files.write(path, text, if_match.strip('"'))

    @area.act("POST", "/check", task="check_text")
    def check_spec(path: Annotated[str, Body()], text: Text = None, overrides: Words = []) -> Any:  # noqa: B006
        """`rlf check`, of a text that need not be saved. Imports the project's Python in a process of its own."""
        site.files.path(path)
        return site.fresh.call("check_text", path=path, text=text, overrides=checked_words([], overrides))

    @area.act("POST", "/plan", task="plan_text")
    def plan_spec(path: Annotated[str, Body()], text: Text = None, overrides: Words = []) -> Any:  # noqa: B006
        """`rlf plan`, of a text that need not be saved."""
        site.files.path(path)
        return site.fresh.call(
            "plan_text", path=path, text=text, overrides=checked_words([], overrides), runs=str(site.runs_folder)
        )

    @area.act("POST", "/runs", status=202)
    def start_run(
        files: Annotated[list[str], Body(min_length=1, max_length=20)],
        overrides: Words = [],  # noqa: B006
        action: Annotated[Literal["run", "sweep", "rehearse"], Body()] = "run",
    ) -> CommandJob:
        """Starts a run, a sweep or a rehearsal as a process of its own."""
        for file in files:
            if not site.files.path(file).is_file():
                raise NotFoundError(f"{file}: there is no such file.")
        return site.jobs.start(action, [*_COMMANDS[action], *checked_words(files, overrides)])

    return area
