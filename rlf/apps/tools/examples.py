"""The `tests:` of a declaration, run through the executor as a model's calls would be; made-up calls without any."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rlf.core.plain_json import expanded
from rlf.core.readings import Readings
from rlf.core.text import shorten
from rlf.tools.declaration import Expectation, ToolDeclaration, ToolTest
from rlf.tools.execution.executor import Executor
from rlf.tools.samples import sample_arguments
from rlf.tools.validate import OutputCheck, closed
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


# A fault drill: calls that a model will make sooner or later, and what a tool and its schema make of them.

_DEADLINE_S = 0.001
_LATEST_S = 1.0
"""Time after its deadline by which a call must have returned."""
_WRONG: tuple[Any, ...] = (3, "three", [], {})
"""Values of which an argument that is not left open refuses one."""
_UNKNOWN = "no_such_argument"


@dataclass(frozen=True, slots=True)
class DrillRun:
    """One fault and its result."""

    fault: str
    """What was done: `missing 'query'`, `deadline of 1 ms` ..."""
    said: str
    """What the model would read."""
    shortfall: str | None
    """Why that is not as it must be; None when it is."""


async def drill(executor: ToolInvoker, declaration: ToolDeclaration) -> list[DrillRun]:
    """Tries arguments that are missing, wrong and unknown, as far as the schema rules them out, then a deadline.

    The first three reach no tool. The deadline is tried with the first example's arguments, and skipped without one.
    """
    runs = [
        await _drill_refusal(executor, declaration, fault, arguments, name)
        for fault, arguments, name in _list_faulty_calls(declaration)
    ]
    if declaration.tests and declaration.tests[0].expect.error is None:
        runs.append(await _drill_deadline(declaration))
    return runs


def _list_faulty_calls(declaration: ToolDeclaration) -> list[tuple[str, dict[str, Any], str]]:
    """Fault, arguments, and the argument that the answer must name."""
    schema = expanded(declaration.input_schema)
    made = [] if declaration.tests else sample_arguments(declaration.input_schema)[:1]
    right: dict[str, Any] = next((dict(one) for one in [*(t.arguments for t in declaration.tests), *made]), {})
    found: list[tuple[str, dict[str, Any], str]] = []
    for name in list(schema.get("required", ()))[:1]:
        found += [(f"missing {name!r}", {key: value for key, value in right.items() if key != name}, name)]
    readings = Readings(declaration.input_schema)
    refused = (
        (name, value) for name in schema.get("properties", {}) for value in _WRONG if not readings.takes(name, value)
    )
    for name, value in islice(refused, 1):
        found.append((f"{name!r} of another type", right | {name: value}, name))
    if closed(declaration.input_schema).get("additionalProperties") is False:
        found.append(("an unknown argument", right | {_UNKNOWN: 1}, _UNKNOWN))
    return found


async def _drill_refusal(
    executor: ToolInvoker, declaration: ToolDeclaration, fault: str, arguments: Mapping[str, Any], name: str
) -> DrillRun:
    result = await executor.invoke(ToolCall(declaration.name, arguments), trajectory_id="drill")
    if result.outcome is not Outcome.INVALID_ARGUMENTS:
        return DrillRun(fault, result.text, f"expected it to be refused; got {result.outcome}")
    shortfall = None if name in result.text else f"the answer does not name {name!r}"
    return DrillRun(fault, result.text, shortfall)


async def _drill_deadline(declaration: ToolDeclaration) -> DrillRun:
    """Whatever the tool does, the call must return; that it is quicker than its deadline is no fault."""
    limits = declaration.limits.model_copy(update={"timeout_s": _DEADLINE_S, "retries": 0})
    hurried = declaration.model_copy(update={"limits": limits})
    async with Executor([hurried]) as executor:
        started = time.perf_counter()
        call = ToolCall(declaration.name, declaration.tests[0].arguments)
        result = await executor.invoke(call, trajectory_id="drill")
        took_s = time.perf_counter() - started
    shortfall = None if took_s < _DEADLINE_S + _LATEST_S else f"returned after {took_s:.1f} s"
    return DrillRun(
        f"a deadline of {1000 * _DEADLINE_S:g} ms", f"{result.outcome} after {1000 * took_s:.1f} ms", shortfall
    )
