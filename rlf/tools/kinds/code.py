"""`target: {kind: code}`: a Python interpreter that runs what the model writes, in a sandbox."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rlf.core.identity import hash_json
from rlf.core.kinds import wrong_value
from rlf.core.redact import clean
from rlf.sandbox import Execution, LevelChoice, Request, SandboxOutcome, SandboxSpec, open_sandbox
from rlf.tools.kind import CallContext, Limits, ToolKind, ToolRuntime
from rlf.tools.sandboxed import argument_complaints, error_of, refuse_failures, usage_of, within_time
from rlf.types import Image, ToolOutput


class CodeTool(ToolKind):
    """Python: what it prints, the value of its last expression, and its figures."""

    kind: Literal["code"] = "code"
    is_local = True
    argument: str = Field(default="code", min_length=1)
    """The argument that holds the program."""
    program: str | None = Field(default=None, min_length=1)
    """The argument with a program that the code tests. It runs in a process of its own, from which the code finds the
    names that it defines; plain values alone go from one to the other, so that no program meddles with its test."""
    session: bool = False
    """Whether names stay from call to call of a trajectory; otherwise each call starts fresh."""
    sandbox: SandboxSpec = SandboxSpec()

    @model_validator(mode="after")
    def _level_can(self) -> Self:
        remote = self.sandbox.level is LevelChoice.REMOTE
        if self.session and remote:
            raise wrong_value("level `remote` keeps no sessions; write `session: false`")
        if self.program is not None and (remote or self.session or self.program == self.argument):
            raise wrong_value(
                "`program` is an argument of its own, without `session`, and at no `level: remote`; remove one of them"
            )
        return self

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Code and program must be arguments."""
        names = [self.argument, *([] if self.program is None else [self.program])]
        return [complaint for name in names for complaint in argument_complaints(name, input_schema)]

    def source_hash(self) -> str:
        """Covers what is asked for, and the versions of Python and of the packages."""
        versions = {name: _package_version(name) for name in self.sandbox.packages}
        return hash_json([self.model_dump(mode="json"), platform.python_version(), versions])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts the sandbox at the strongest level there is. Raises RlfError with every reason when none holds."""
        runtime = CodeRuntime(self)
        await runtime.held.enter_async_context(runtime.sandbox)
        runtime.isolation = runtime.sandbox.level.value
        return runtime


class CodeRuntime(ToolRuntime):
    """Runs programs. A call that is given up is killed."""

    def __init__(self, tool: CodeTool) -> None:
        self._tool, self.sandbox = tool, open_sandbox(tool.sandbox)

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one program. Raises ToolFailure for a time that was up, and where the sandbox itself failed."""
        tool, limits = self._tool, within_time(self._tool.sandbox.limits, context)
        program = None if tool.program is None else arguments[tool.program]
        request = Request(arguments[tool.argument], limits=limits, program=program)
        execution = await self.sandbox.run(request, session=context.trajectory_id if tool.session else None)
        refuse_failures(execution)
        failed = execution.outcome is not SandboxOutcome.OK
        return ToolOutput(
            clean(error_of(execution) if failed else _show_execution(execution)),
            images=tuple(Image(data, "image/png") for data in execution.images),
            structured={
                "outcome": execution.outcome.value,
                "stdout": execution.stdout,
                "stderr": execution.stderr,
                "value": execution.value,
                "error": execution.error,
            },
            is_error=failed,
            usage=usage_of(execution),
        )

    async def end_trajectory(self, trajectory_id: str) -> None:
        if self._tool.session:
            await self.sandbox.end_session(trajectory_id)


def _show_execution(execution: Execution) -> str:
    """Output, warnings and the last value, as a notebook shows them."""
    parts = [execution.stdout, execution.stderr, execution.value or ""]
    return "\n".join(part.rstrip("\n") for part in parts if part) or "The program ran; it printed nothing."


def _package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
