"""How fast one tool answers under load, through the executor that training uses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from rlf.tools.declaration import CacheSpec, ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.types import ToolCall, ToolResult


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


async def bench(
    declaration: ToolDeclaration, arguments: Sequence[Mapping[str, Any]], *, concurrency: int, num_calls: int
) -> BenchReport:
    """Makes calls with the given arguments in turn, so many at once; the tool's limits hold, its cache is left out."""
    plain = declaration.model_copy(update={"cache": CacheSpec()})
    calls = iter([ToolCall(plain.name, of) for of in islice(cycle(arguments), num_calls)])
    results: list[ToolResult] = []
    async with Executor([plain]) as executor:

        async def work(number: int) -> None:
            results.extend([await executor.invoke(call, trajectory_id=f"bench-{number}") for call in calls])

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(concurrency):
                group.create_task(work(number))
        wall_s = time.perf_counter() - started
        lags = list(executor.monitor.lags_s)
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
    )


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max by the nearest rank; 0 where there is no value."""
    ordered = sorted(values) or [0.0]
    ranks = {name: ordered[max(0, -(-len(ordered) * share // 100) - 1)] for name, share in _SHARES.items()}
    return ranks | {"max": ordered[-1]}


_SHARES = {"p50": 50, "p95": 95, "p99": 99}
