"""A fault drill: calls that a model will make sooner or later, and what a tool and its schema make of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rlf.core.plain_json import expanded
from rlf.core.readings import Readings
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.tools.samples import sample_arguments
from rlf.tools.validate import closed
from rlf.types import Outcome, ToolCall, ToolInvoker

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
