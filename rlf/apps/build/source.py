"""`target: {kind: source}`: a function of a Python file that is not trusted, each call of it run in a sandbox."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from rlf.core.identity import hash_json, hash_path
from rlf.core.text import clean
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
from rlf.tools.results import to_text
from rlf.tools.sandboxed import error_of, refuse_failures, usage_of, within_time
from rlf.types import ToolOutput

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
