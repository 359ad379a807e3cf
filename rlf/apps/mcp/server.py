"""The server: each call is a command in a process of its own, so no command can write into the protocol's stdout."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from rlf import __version__
from rlf.apps.mcp.offers import OFFERS, Offer, list_readable, read_resource_text
from rlf.core.errors import CheckError, RlfError
from rlf.core.plain_json import VERSION
from rlf.core.servers import served_stdio
from rlf.processes.child import start_apart, supervised

_LIMIT_S = 600.0
"""Of a command that is waited for."""
_START_S = 120.0
"""In which a run has begun, or has reported why not."""
_LOOK_S = 0.05
_MAX_RUNNING = 4
_MAX_MESSAGE_CHARS = 8_000
_FOLDER = ".mcp"
"""Of what background commands print, in the folder of runs."""
_STOP = Tool(
    name="stop",
    description="Interrupt a run as Ctrl-C does; it can be resumed.",
    input_schema=OFFERS["status"].input_schema,
)
_GUIDE = (
    "rlf trains language models to use tools by reinforcement learning, from YAML. Check a spec after each edit, plan, "
    "test tools and rewards, run, look at status and trajectories, compare runs. Outputs are those of `rlf COMMAND "
    "--json`. Paths are relative to the project. Start with the resource rlf://docs/index.md or rlf://help/check."
)


@dataclass(frozen=True, slots=True)
class ServedProject:
    """What is served."""

    folder: Path
    """Absolute, without links."""
    runs_folder: Path
    """As written, from the project's folder."""
    allow_run: bool
    budget_s: float
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Background commands that this server started."""

    def offers(self) -> dict[str, Offer]:
        """Those that may be called."""
        return {name: offer for name, offer in OFFERS.items() if self.allow_run or not offer.runs_code}

    def command(self, offer: Offer, arguments: Mapping[str, Any]) -> list[str]:
        """The whole command line. Raises RlfError for arguments that may not be."""
        words = [*offer.words(arguments, self.folder), "--json"]
        words += ["--runs", str(self.runs_folder)] if offer.takes_runs else []
        words += ["--no-import"] if offer.takes_no_import and not self.allow_run else []
        return [sys.executable, "-m", "rlf", *words]


async def serve_stdio(project: ServedProject) -> None:
    """Serves until stdin ends; runs that were started continue, for as long as their budget."""
    server = make_server(project)
    async with served_stdio() as streams:
        await server.run(*streams, server.create_initialization_options())


def make_server(project: ServedProject) -> Server[dict[str, Any]]:
    """A server of the offers, and of what can be read."""

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = [_describe(name, offer, project.budget_s) for name, offer in project.offers().items()]
        return ListToolsResult(tools=[*tools, *([_STOP] if project.allow_run else [])])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        arguments = dict(params.arguments or {})
        try:
            if params.name == _STOP.name and project.allow_run:
                return await asyncio.to_thread(_stop, project, str(arguments.get("run", "")))
            return await _call(project, params.name, arguments)
        except RlfError as error:
            return _failed(str(error))

    async def list_resources(context: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        found = [
            Resource(uri=each.uri, name=each.name, mime_type=each.mime_type) for each in list_readable(project.folder)
        ]
        return ListResourcesResult(resources=found)

    async def read_resource(context: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        text, mime_type = await asyncio.to_thread(read_resource_text, str(params.uri), project.folder)
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=mime_type, text=text)])

    return Server(
        "rlf",
        version=__version__,
        instructions=_GUIDE,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _describe(name: str, offer: Offer, budget_s: float) -> Tool:
    schema = offer.input_schema
    if offer.is_background:
        about = f"Seconds after which it is interrupted; at most {budget_s:g}, which is the default."
        limits = {"type": "number", "exclusiveMinimum": 0, "maximum": budget_s, "description": about}
        schema = schema | {"properties": schema["properties"] | {"budget_s": limits}}
    return Tool(
        name=name,
        description=f"{offer.about} (`rlf {offer.command} --json`)",
        input_schema=schema,
        annotations=ToolAnnotations(read_only_hint=not offer.runs_code),
    )


async def _call(project: ServedProject, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Runs the command of a tool. Raises RlfError for a call that may not be."""
    offers = project.offers()
    if name in OFFERS and name not in offers:
        raise RlfError(f"{name}: runs the project's code, and this server is read-only. Start it with `--allow-run`.")
    if name not in offers:
        raise RlfError(f"{name[:80]}: no such tool (known: {', '.join(offers)}).")
    offer = offers[name]
    wanted = arguments.pop("budget_s", project.budget_s) if offer.is_background else project.budget_s
    if not isinstance(wanted, int | float) or not 0 < wanted <= project.budget_s:
        raise RlfError(f"budget_s: got {wanted!r}; expected more than 0 and at most {project.budget_s:g} seconds.")
    _refuse_invalid(offer, arguments)
    command = project.command(offer, arguments)
    if offer.is_background:
        return await _start(project, command, float(wanted))
    # A command that is cancelled, or takes too long, ends with all that it started: servers of tools, worlds, workers.
    async with supervised(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.folder) as process:
        try:
            out, err = await asyncio.wait_for(process.communicate(), _LIMIT_S)
        except TimeoutError as error:
            raise RlfError(f"{name}: has not ended in {_LIMIT_S:g} s, and was stopped.") from error
    code = process.returncode
    return _result(out.decode(errors="replace"), err.decode(errors="replace"), 1 if code is None else code)


def _refuse_invalid(offer: Offer, arguments: Mapping[str, Any]) -> None:
    """Raises RlfError for arguments that the tool's schema refuses: a client need not look at it."""
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator(offer.input_schema).validate(arguments)
    except jsonschema_rs.ValidationError as error:
        raise RlfError(f"{error.message[:300]}. See the tool's inputSchema.") from error


async def _start(project: ServedProject, command: Sequence[str], budget_s: float) -> CallToolResult:
    """Starts a command that continues after the call; its first line, or why it has ended at once.

    Raises RlfError where many run.
    """
    project.running[:] = [child for child in project.running if child.poll() is None]
    if len(project.running) >= _MAX_RUNNING:
        raise RlfError(f"{_MAX_RUNNING} runs are under way, which is the limit. Wait for one, or stop it.")
    child, out, err = _spawn(project, command, budget_s)
    until = time.monotonic() + _START_S
    while time.monotonic() < until and child.poll() is None:
        lines = out.read_text(errors="replace").splitlines(keepends=True)
        if first := next((line for line in lines if line.startswith("{") and line.endswith("\n")), ""):
            return _result(first, "", 0)
        await asyncio.sleep(_LOOK_S)
    code = child.poll()
    if code is None:
        return _failed(f"The command has printed nothing for {_START_S:g} s and still runs; see {out} and {err}.")
    return _result(out.read_text(errors="replace"), err.read_text(errors="replace"), code)


def _spawn(
    project: ServedProject, command: Sequence[str], budget_s: float
) -> tuple[subprocess.Popen[bytes], Path, Path]:
    """The process of a command that continues after the call, and the files of what it prints."""
    folder = project.folder / project.runs_folder / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{time.time_ns():x}"
    out, err = stem.with_suffix(".stdout"), stem.with_suffix(".stderr")
    with out.open("wb") as stdout, err.open("wb") as stderr:
        words = [sys.executable, "-m", "rlf.apps.mcp.background", f"{budget_s}", *command]
        # A client ends the server's session, and the run continues.
        child = start_apart(words, stdout=stdout, stderr=stderr, cwd=project.folder)
    project.running.append(child)
    threading.Thread(target=child.wait, daemon=True).start()  # so that it leaves no zombie
    return child, out, err


def _stop(project: ServedProject, name: str) -> CallToolResult:
    """Interrupts the process that owns a run."""
    from rlf.lineage.process import is_visible
    from rlf.lineage.upkeep import send_signal
    from rlf.runs.place import open_reader

    with open_reader(project.folder / project.runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        process = reader.owner(run_id)
    if process is None or not is_visible(process) or not send_signal(process, signal.SIGINT):
        raise RlfError(f"run {run_id}: no process on this machine runs it.")
    data = {"run_id": run_id, "pid": process.pid, "signal": "SIGINT"}
    return _result(json.dumps({"rlf": VERSION, "command": "stop", "data": data}), "", 0)


def _result(out: str, err: str, code: int) -> CallToolResult:
    """What a command printed: its last line of JSON, and its messages beside it."""
    lines = [line for line in out.splitlines() if line.startswith("{")]
    printed = lines[-1] if lines else out
    texts = [text for text in (printed, err[-_MAX_MESSAGE_CHARS:].strip()) if text]
    return CallToolResult(
        content=[TextContent(type="text", text=text) for text in texts or [f"exit code {code}"]],
        structured_content=json.loads(printed) if lines else None,
        is_error=code not in (0, CheckError.exit_code),
        _meta={"rlf/exit_code": code},
    )


def _failed(words: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=words)], is_error=True)
