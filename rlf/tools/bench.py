"""How fast one tool answers under load, through the executor that training uses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from rlf.tools.declaration import CacheSpec, ToolDeclaration
from rlf.tools.execution.detached import Detached
from rlf.tools.execution.executor import Executor
from rlf.tools.kind import CallContext
from rlf.types import Outcome, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Results of a load test. Times are in seconds."""

    num_calls: int
    concurrency: int
    wall_s: float
    calls_per_s: float
    run_s: Mapping[str, float]
    """From permit to result: p50, p95, p99, max."""
    queue_s: Mapping[str, float]
    """Waiting for a permit: p50, p95, p99, max."""
    num_by_outcome: Mapping[str, int]
    first_error: str | None
    lag_p99_s: float
    """How late the event loop was."""
    floor_s: float | None
    """What the same calls take without the executor, as tasks with a deadline, as many at once as the tool's permits
    allow. None: the tool is elsewhere, has a rate, left calls behind, or takes other arguments.
    """
    times_floor: float | None
    """`wall_s / floor_s`."""


async def bench(
    declaration: ToolDeclaration, arguments: Sequence[Mapping[str, Any]], *, concurrency: int, num_calls: int
) -> BenchReport:
    """Makes calls with the given arguments in turn, so many at once; the tool's limits hold, its cache is left out.

    A tool of this machine without a rate is called as often again, for the floor, and once before each time, so
    that what it loads at its first call counts on neither side.
    """
    plain = declaration.model_copy(update={"cache": CacheSpec()})
    calls = list(islice(cycle(arguments), num_calls))
    results: list[ToolResult] = []
    has_floor = plain.target.is_local and plain.limits.rate is None
    async with Executor([plain]) as executor:

        async def call(of: Mapping[str, Any], trajectory_id: str) -> None:
            results.append(await executor.invoke(ToolCall(plain.name, of), trajectory_id=trajectory_id))

        if has_floor:
            await executor.invoke(ToolCall(plain.name, calls[0]), trajectory_id="bench-first")
        wall_s = await _spread(call, calls, concurrency)
        lags, num_abandoned = list(executor.monitor.lags_s), executor.counters["abandoned"]
    took_arguments = all(result.outcome is not Outcome.INVALID_ARGUMENTS and not result.coerced for result in results)
    has_floor = has_floor and took_arguments and not num_abandoned
    floor_s = await time_plain_calls(plain, calls, concurrency) if has_floor else None
    failed = [result.text for result in results if result.outcome != "ok"]
    return BenchReport(
        num_calls=num_calls,
        concurrency=concurrency,
        wall_s=wall_s,
        calls_per_s=num_calls / wall_s,
        run_s=percentiles([result.run_s for result in results]),
        queue_s=percentiles([result.queue_s for result in results]),
        num_by_outcome=dict(Counter(str(result.outcome) for result in results).most_common()),
        first_error=failed[0] if failed else None,
        lag_p99_s=percentiles(lags)["p99"],
        floor_s=floor_s,
        times_floor=None if floor_s is None else wall_s / floor_s,
    )


async def time_plain_calls(declaration: ToolDeclaration, calls: Sequence[Mapping[str, Any]], concurrency: int) -> float:
    """Seconds of calls that go to the tool without the executor: a task with a deadline each, and nothing else.

    The first call is made once more before them.
    """
    limits = declaration.limits
    runtime, detached = await declaration.target.open(limits), Detached()

    async def call(of: Mapping[str, Any], trajectory_id: str) -> None:
        await runtime.make_ready(trajectory_id)
        context = CallContext(trajectory_id, limits.timeout_s, idempotent=declaration.idempotent)
        await detached.fault_of(runtime.invoke(of, context), limits.timeout_s, declaration.name)

    try:
        await call(calls[0], "bench-first")
        return await _spread(call, calls, min(concurrency, declaration.target.concurrency(limits)))
    finally:
        await detached.close()
        await runtime.close()


async def _spread(
    call: Callable[[Mapping[str, Any], str], Awaitable[None]], calls: Sequence[Mapping[str, Any]], num_at_once: int
) -> float:
    """Makes calls, so many at once, and returns the seconds that they took."""
    left = iter(calls)

    async def work(number: int) -> None:
        for arguments in left:
            await call(arguments, f"bench-{number}")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(num_at_once):
            group.create_task(work(number))
    return time.perf_counter() - started


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max by the nearest rank; 0 where there is no value."""
    ordered = sorted(values) or [0.0]
    ranks = {name: ordered[max(0, -(-len(ordered) * share // 100) - 1)] for name, share in _SHARES.items()}
    return ranks | {"max": ordered[-1]}


_SHARES = {"p50": 50, "p95": 95, "p99": 99}
