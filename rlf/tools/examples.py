"""The `tests:` of a declaration, run through the executor as a model's calls would be; made-up calls without any."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlf.tools.declaration import Expectation, ToolDeclaration, ToolTest
from rlf.tools.failure import shorten
from rlf.tools.samples import sample_arguments
from rlf.tools.validate import OutputCheck
from rlf.types import Outcome, ToolCall, ToolInvoker, ToolOutput, ToolResult

_BUG = re.compile(r"error: (Type|Attribute|Name|UnboundLocal|Import|ModuleNotFound|NotImplemented)Error\b")
"""Errors that a function's own code is to blame for, whatever it was called with."""


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """One test call and its result."""

    test: ToolTest
    result: ToolResult
    shortfalls: tuple[str, ...]
    """Every expectation that does not hold, in words; empty when the test passes."""


async def run_examples(executor: ToolInvoker, declaration: ToolDeclaration) -> list[ExampleRun]:
    """Runs a tool's tests one after the other."""
    runs = []
    for number, test in enumerate(declaration.tests):
        call = ToolCall(declaration.name, test.arguments)
        result = await executor.invoke(call, trajectory_id=f"test-{number}")
        runs.append(ExampleRun(test, result, tuple(shortfalls(test.expect, result))))
    return runs


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One call with made-up arguments and its result."""

    arguments: Mapping[str, Any]
    result: ToolResult

    @property
    def shortfall(self) -> str | None:
        """Why no arguments at all would do; None for a success and for an answer that may be to these alone."""
        is_broken = self.result.outcome is Outcome.OUTPUT_REJECTED or _BUG.match(self.result.text) is not None
        return self._describe_failure if self.result.outcome is not Outcome.OK and is_broken else None

    @property
    def note(self) -> str | None:
        """How the call failed, where that may be because of the arguments or of a service that is not there."""
        return None if self.result.outcome is Outcome.OK or self.shortfall else self._describe_failure

    @property
    def _describe_failure(self) -> str:
        return f"the call failed with {self.result.outcome}: {self.result.text}"


async def run_samples(
    executor: ToolInvoker, declaration: ToolDeclaration, announce: Callable[[Mapping[str, Any]], None]
) -> list[SampleRun]:
    """Calls a tool with arguments made from its inputSchema.

    Args:
        announce: called with the arguments before each call, which may do whatever the tool does.
    """
    runs = []
    for number, arguments in enumerate(sample_arguments(declaration.input_schema)):
        announce(arguments)
        result = await executor.invoke(ToolCall(declaration.name, arguments), trajectory_id=f"sample-{number}")
        runs.append(SampleRun(arguments, result))
    return runs


def shortfalls(expect: Expectation, result: ToolResult) -> list[str]:
    """The parts of the expectation that do not hold, in words."""
    complaints = _time_shortfalls(expect, result)
    failed = result.outcome is not Outcome.OK
    if expect.error is not None:
        if failed and expect.error in result.text:
            return complaints
        return [*complaints, f"expected an error with {expect.error!r}; got {result.outcome}: {result.text[:200]!r}"]
    if failed:
        return [*complaints, f"the call failed with {result.outcome}: {result.text}"]
    found = {
        "contains": expect.contains is None or expect.contains in result.text,
        "equals": expect.equals is None or expect.equals == result.text,
        "matches": expect.matches is None or re.search(expect.matches, result.text) is not None,
    }
    complaints += [
        f"{key} {getattr(expect, key)!r}: got {result.text[:200]!r}" for key, holds in found.items() if not holds
    ]
    if expect.output_schema is not None:
        output = ToolOutput(result.text if result.original is None else result.original, structured=result.structured)
        complaint = OutputCheck(expect.output_schema).complaint(output)
        complaints += [] if complaint is None else [f"schema: {shorten(complaint)}: got {result.text[:200]!r}"]
    return complaints


def _time_shortfalls(expect: Expectation, result: ToolResult) -> list[str]:
    took_ms = 1000 * result.run_s
    if expect.max_ms is None or took_ms <= expect.max_ms:
        return []
    return [f"max_ms {expect.max_ms:g}: took {took_ms:.1f} ms"]
