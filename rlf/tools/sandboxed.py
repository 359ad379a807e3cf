"""Tools that run in a sandbox: from an execution to the text that the model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlf.core.readings import Readings
from rlf.sandbox import Execution, SandboxLimits, SandboxOutcome
from rlf.tools.kind import CallContext
from rlf.tools.results import ToolFailure, inner_deadline_s
from rlf.types import Outcome as ToolOutcome

_MAX_ERROR_CHARS = 400
"""Longest error printed before the output: the executor cuts the whole soon after."""
_REPORTING_S = 0.25
"""Most of a call's time that is reserved for ending its processes and reading what they wrote, on a loaded machine."""


def within_time(limits: SandboxLimits, context: CallContext) -> SandboxLimits:
    """The limits with less time where the call has less: the sandbox then returns what was written until its end."""
    return limits.model_copy(update={"wall_s": min(limits.wall_s, inner_deadline_s(context, _REPORTING_S))})


def refuse_failures(execution: Execution) -> None:
    """Raises ToolFailure where the sandbox, not the model's code, failed, or where the time was up."""
    if execution.outcome is SandboxOutcome.INFRA:
        raise ToolFailure(ToolOutcome.INFRA, f"the sandbox failed: {execution.error}")
    if execution.outcome is SandboxOutcome.TIMEOUT:
        raise ToolFailure(ToolOutcome.TIMEOUT, error_of(execution))


def error_of(execution: Execution) -> str:
    """The error, the last lines of a long traceback, and the output before it."""
    error = execution.error or execution.outcome.value
    if len(error) > _MAX_ERROR_CHARS:
        error = "…" + error[1 - _MAX_ERROR_CHARS :]
    return f"{error}\noutput:\n{execution.stdout}" if execution.stdout else error


def usage_of(execution: Execution) -> dict[str, float]:
    """Processor time and memory of the call."""
    return {"cpu_s": execution.usage.cpu_s, "peak_memory_mb": execution.usage.peak_memory_bytes / 2**20}


def argument_complaints(name: str, input_schema: Mapping[str, Any]) -> list[str]:
    """Reasons why calls do not bring the one text that the tool takes."""
    properties: Mapping[str, Any] = input_schema.get("properties", {})
    if name not in properties:
        return [
            f"inputSchema has no property {name!r}, which holds what is run; add it, or name another with `argument`"
        ]
    complaints = []
    if not Readings(input_schema).is_text(name):
        complaints.append(f"property {name!r} holds what is run; write `type: string`")
    if name not in input_schema.get("required", ()):
        complaints.append(f"property {name!r} is needed in every call; write `required: [{name}]`")
    return complaints
