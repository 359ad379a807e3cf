"""The open tool of `kind: code`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from rlf.sandbox import Execution, Outcome, RemoteSandbox, Request, Sandbox, open_sandbox
from rlf.tools.kind import CallContext
from rlf.tools.kinds.code import CodeTool
from rlf.tools.results import clean
from rlf.tools.sandboxed import error_of, refuse_failures, usage_of, within_time
from rlf.types import Image, ToolOutput


class CodeRuntime:
    """Runs programs; made by `CodeRuntime.open`."""

    num_abandoned = 0
    """A call that is given up is killed."""

    def __init__(self, tool: CodeTool, sandbox: Sandbox | RemoteSandbox, stack: AsyncExitStack) -> None:
        self._tool = tool
        self._sandbox = sandbox
        self._stack = stack

    @classmethod
    async def open(cls, tool: CodeTool) -> CodeRuntime:
        """Starts the sandbox. Raises RlfError with every reason when no level holds."""
        async with AsyncExitStack() as stack:
            sandbox = open_sandbox(tool.sandbox)
            await stack.enter_async_context(sandbox)
            return cls(tool, sandbox, stack.pop_all())

    @property
    def isolation(self) -> str:
        """The sandbox's level."""
        return self._sandbox.level.value

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one program. Raises ToolFailure for a time that was up, and where the sandbox itself failed."""
        limits = within_time(self._tool.sandbox.limits, context)
        session = context.trajectory_id if self._tool.session else None
        program = None if self._tool.program is None else arguments[self._tool.program]
        request = Request(arguments[self._tool.argument], limits=limits, program=program)
        execution = await self._sandbox.run(request, session=session)
        refuse_failures(execution)
        failed = execution.outcome is not Outcome.OK
        return ToolOutput(
            clean(error_of(execution) if failed else _told(execution)),
            images=tuple(Image(data, "image/png") for data in execution.images),
            structured=_structured(execution),
            is_error=failed,
            usage=usage_of(execution),
        )

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Ends the trajectory's session."""
        if self._tool.session:
            await self._sandbox.end_session(trajectory_id)

    async def close(self) -> None:
        """Ends the sandbox and all that runs in it."""
        await self._stack.aclose()


def _told(execution: Execution) -> str:
    """What a notebook shows: output, warnings, the last value."""
    parts = [execution.stdout, execution.stderr, execution.value or ""]
    return "\n".join(part.rstrip("\n") for part in parts if part) or "The program ran; it printed nothing."


def _structured(execution: Execution) -> dict[str, str | None]:
    told = {"outcome": execution.outcome.value, "stdout": execution.stdout, "stderr": execution.stderr}
    return {**told, "value": execution.value, "error": execution.error}
