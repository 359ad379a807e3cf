"""Where calls of tools that a model wrote are tried: many in one process of the sandbox, and always in a new one."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from rlf.apps.build import frozen
from rlf.apps.build.calls import Call, KnownTool, Play, TriedCall, show_call
from rlf.apps.build.task import BuildTask, ProofFailure
from rlf.core import RunError
from rlf.core.identity import hash_json, hash_path
from rlf.core.redact import clean
from rlf.core.yaml_text import load_document
from rlf.sandbox import (
    Execution,
    RemoteSandbox,
    Request,
    Sandbox,
    SandboxLimits,
    SandboxOutcome,
    SandboxSpec,
    open_sandbox,
)
from rlf.tools.kind import CallContext, Limits, SharedThings, ToolKind, ToolRuntime
from rlf.tools.outputs import to_text
from rlf.tools.sandboxed import error_of, refuse_failures, usage_of, within_time
from rlf.types import ToolOutput

# `target: {kind: source}`: a function of a Python file that is not trusted, each call of it run in a sandbox.

_SANDBOXES = SharedThings[Sandbox | RemoteSandbox]()
"""Those that are open, by their specs."""


def _resolve_file(file: str, info: ValidationInfo) -> str:
    folder: Path | None = (info.context or {}).get("folder")
    return str((folder or Path()) / file)


class SourceTool(ToolKind):
    """A function that a model or a stranger wrote: its file is never imported here, and every call starts fresh."""

    kind: Literal["source"] = "source"
    is_local: ClassVar[bool] = True
    file: Annotated[str, AfterValidator(_resolve_file)]
    """Python file, relative to the file that says so. It has the standard library, and `sandbox.packages`."""
    function: str = Field(pattern=r"^[A-Za-z_]\w*$")
    """The function, which takes the arguments by name and returns a JSON value."""
    sandbox: SandboxSpec = SandboxSpec()

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """The file must be there, be Python, and define the function with the schema's parameters."""
        try:
            module = ast.parse(self._read_source())
        except FileNotFoundError:
            return [f"no such file {self.file}; correct `file`"]
        except (SyntaxError, ValueError) as fault:
            return [f"{self.file} is no Python: {fault}; correct it"]
        found = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == self.function]
        if not found:
            return [f"{self.file} defines no function {self.function!r}; correct `function`"]
        given = found[-1].args
        names = {each.arg for each in (*given.args, *given.kwonlyargs)}
        unknown = [] if given.kwarg else sorted(set(input_schema.get("properties", {})) - names)
        return [f"inputSchema has {name!r}, which the function does not take" for name in unknown]

    def _read_source(self) -> str:
        return Path(self.file).read_text(encoding="utf-8")

    def source_hash(self) -> str:
        """Covers the file and the function's name."""
        return hash_json([hash_path(Path(self.file)), self.function, list(self.sandbox.packages)])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts the sandbox, or joins that of other tools. Raises RlfError."""
        runtime = SourceRuntime(self._read_source(), self.function)
        opened = _SANDBOXES.use(self.sandbox, lambda: open_sandbox(self.sandbox))
        runtime.sandbox, runtime.limits = await runtime.held.enter_async_context(opened), self.sandbox.limits
        runtime.isolation = runtime.sandbox.level.value
        return runtime


class SourceRuntime(ToolRuntime):
    """Calls one function."""

    sandbox: Sandbox | RemoteSandbox
    limits: SandboxLimits

    def __init__(self, source: str, function: str) -> None:
        """Takes the text of the file and the function's name."""
        self._source, self._function = source, function

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call. Raises ToolFailure for a time that was up, and where the sandbox itself failed."""
        limits = within_time(self.limits, context)
        execution = await run_call(self.sandbox, self._source, call_text(self._function, arguments), limits)
        refuse_failures(execution)
        failed = execution.outcome is not SandboxOutcome.OK
        text = error_of(execution) if failed else to_text(returned_value(execution))
        return ToolOutput(clean(text), is_error=failed, usage=usage_of(execution))


async def run_call(sandbox: Sandbox | RemoteSandbox, source: str, expression: str, limits: SandboxLimits) -> Execution:
    """Evaluates an expression over a source, which runs in a process of its own: plain values alone come from it."""
    return await sandbox.run(Request(expression, program=source, limits=limits))


def call_text(function: str, arguments: Mapping[str, Any]) -> str:
    """The expression of a call."""
    return f"{function}(**{dict(arguments)!r})"


def returned_value(execution: Execution) -> Any:
    """The value that a call returned; its text where that is no literal."""
    try:
        return ast.literal_eval(execution.value or "None")
    except (ValueError, SyntaxError, RecursionError):
        return execution.value


_CALLS_IN_TIME = 100
"""Calls that are given the time of one, and as much again for as many more."""
_TRY = """

def _try_calls(calls):
    import json
    found = []
    for name, arguments in calls:
        try:
            found.append([True, json.dumps(globals()[name](**arguments), ensure_ascii=False, default=str)])
        except Exception as fault:
            found.append([False, f"{type(fault).__name__}: {fault}"])
    return found
"""


class SandboxPlays:
    """Plays over the sources of tools, each of which has a process of its own in a play."""

    def __init__(
        self, sandbox: Sandbox | RemoteSandbox, limits: SandboxLimits, source_by_tool: Mapping[str, str]
    ) -> None:
        self._sandbox, self._limits, self._sources = sandbox, limits, source_by_tool

    async def __call__(self, calls: Sequence[Call], moment: tuple[float, float] | None) -> list[TriedCall]:
        """Plays calls. Raises ProofFailure where one ends the process or takes too long."""
        found: dict[int, TriedCall] = {}
        for tool in dict.fromkeys(name for name, _ in calls):
            places = [place for place, (name, _) in enumerate(calls) if name == tool]
            made = await self._try_tool(tool, [calls[place][1] for place in places], moment)
            found.update(zip(places, made, strict=True))
        return [found[place] for place in range(len(calls))]

    async def _try_tool(
        self, tool: str, given: Sequence[Mapping[str, Any]], moment: tuple[float, float] | None
    ) -> list[TriedCall]:
        before = "" if moment is None else f"{_frozen_source()}\nfreeze(*{moment!r})\n"
        asked = [(tool, dict(arguments)) for arguments in given]
        wall_s = self._limits.wall_s * (1 + len(given) // _CALLS_IN_TIME)
        execution = await run_call(
            self._sandbox,
            f"{before}{self._sources[tool]}{_TRY}",
            f"_try_calls({asked!r})",
            self._limits.model_copy(update={"wall_s": wall_s}),
        )
        if execution.outcome is SandboxOutcome.INFRA:
            raise RunError(f"the sandbox failed: {execution.error}. Run it again: what is done is kept.")
        made = returned_value(execution) if execution.outcome is SandboxOutcome.OK else None
        if not isinstance(made, list) or len(made) != len(given):
            raise ProofFailure(
                "probe: a call that the schema allows ends the tool or takes too long",
                f"one of {len(given)} as {show_call(tool, given[-1])}: {execution.outcome}: {execution.error}",
            )
        return [
            TriedCall(arguments, has_result, to_text(json.loads(text)) if has_result else text)
            for arguments, (has_result, text) in zip(given, made, strict=True)
        ]


class SourceTools:
    """The tools of a built world whose code a model wrote."""

    keeps_state = False

    def __init__(self, folder: Path, sandbox: Sandbox | RemoteSandbox, limits: SandboxLimits) -> None:
        files = sorted((folder / "tools").glob("*.yaml"))
        self._documents = {file.stem: load_document(file.read_text(encoding="utf-8")) for file in files}
        self._sources = {file.stem: file.with_suffix(".py").read_text(encoding="utf-8") for file in files}
        self.play: Play = SandboxPlays(sandbox, limits, self._sources)

    def known(self, task: BuildTask, tool: str) -> KnownTool:
        """A tool by its files. Raises ProofFailure."""
        if tool not in self._documents:
            raise ProofFailure("toolset: a tool of the task has no file", tool)
        document = self._documents[tool]
        data, _ = _read_source(self._sources[tool])
        return KnownTool(tool, document["description"], document["inputSchema"], data)

    def code(self, tool: str) -> str:
        """The code without its data."""
        return _read_source(self._sources[tool])[1]


@cache
def _frozen_source() -> str:
    return Path(frozen.__file__).read_text(encoding="utf-8")


def source_of(data: Mapping[str, Any], code: str) -> str:
    """The file of a function: its data, then its code."""
    return f"import json\n\nDATA = json.loads({json.dumps(data, ensure_ascii=False)!r})\n\n\n{code.strip()}\n"


def _read_source(source: str) -> tuple[Any, str]:
    """The data and the code of such a file; no data where it is of another form."""
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="DATA")], value=ast.Call(args=[ast.Constant(value=str(text))])):
                lines = source.splitlines()
                return json.loads(text), "\n".join(lines[node.end_lineno :])
    return {}, source
