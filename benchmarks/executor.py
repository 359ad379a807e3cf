"""What the executor costs and saves, as ratios of medians taken in turn within one run.

    python benchmarks/executor.py

`bare` is a permit and a deadline that can leave a call behind; its floor is what asyncio needs for that: create_task
and asyncio.wait. Every other line says what it is held against.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rlf.apps.tools.trials import BenchReport, time_calls
from rlf.core.clocks import Deadline
from rlf.core.plain_json import as_json
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.execution.gate import ConcurrencyGate
from rlf.types import ToolCall

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
CONCURRENCY = 64


async def nothing(query: str) -> str:
    return query


def nothing_sync(query: str) -> str:
    return query


async def wait(seconds: float) -> str:
    if seconds < 0:
        await asyncio.Event().wait()
    if seconds > 100:
        raise ValueError("no such thing")
    await asyncio.sleep(seconds)
    return "done"


def declare(name: str, schema: dict, **limits) -> ToolDeclaration:
    target = {"kind": "python", "callable": f"__main__:{name}"}
    mapping = {"name": name, "description": "d", "inputSchema": schema, "target": target, "limits": limits}
    return ToolDeclaration.model_validate(mapping)


async def spread(call: Callable[[], Awaitable[object]], num_calls: int) -> None:
    """Runs calls, CONCURRENCY at a time."""

    async def worker() -> None:
        for _ in range(num_calls // CONCURRENCY):
            await call()

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))


def rates(contenders: dict[str, Callable[[], Awaitable[object]]], num_calls: int, rounds: int) -> dict[str, dict]:
    """Calls per second and CPU seconds per call, medians of rounds in turn."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}

    async def main() -> None:
        for _ in range(rounds):
            for name, call in contenders.items():
                wall, cpu = time.perf_counter(), time.process_time()
                await spread(call, num_calls)
                found[name].append((num_calls / (time.perf_counter() - wall), (time.process_time() - cpu) / num_calls))

    asyncio.run(main())
    return {
        name: {"calls_per_s": statistics.median(r for r, _ in of), "cpu_us": statistics.median(c for _, c in of) * 1e6}
        for name, of in found.items()
    }


def overhead(num_calls: int, rounds: int) -> dict[str, dict]:
    """The whole executor and its bare layer beside what asyncio alone costs, for `async def` and for `def`."""
    gate = ConcurrencyGate(CONCURRENCY)
    state: dict[str, object] = {}

    async def detachable() -> None:
        task = asyncio.get_running_loop().create_task(nothing("x"))
        await asyncio.wait((task,), timeout=10)
        task.result()

    async def bare() -> None:
        if "detached" not in state:
            state["detached"] = DetachedTasks()
        if not gate.try_enter():
            await gate.enter("t")
        try:
            await state["detached"].run(nothing("x"), Deadline(10), "tool x")
        finally:
            gate.leave()

    async def in_pool() -> None:
        await asyncio.get_running_loop().run_in_executor(state["pool"], nothing_sync, "x")

    async def executor() -> Executor:
        if "executor" not in state:
            state["executor"] = await Executor([declare("nothing", QUERY), declare("nothing_sync", QUERY)]).__aenter__()
        return state["executor"]

    async def whole() -> None:
        await (await executor()).invoke(ToolCall("nothing", {"query": "x"}), trajectory_id="t")

    async def whole_sync() -> None:
        await (await executor()).invoke(ToolCall("nothing_sync", {"query": "x"}), trajectory_id="t")

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        state["pool"] = pool
        contenders = {
            "detachable task (asyncio)": detachable,
            "bare": bare,
            "async tool, whole executor": whole,
            "run_in_executor (asyncio)": in_pool,
            "sync tool, whole executor": whole_sync,
        }
        return rates(contenders, num_calls, rounds)


async def many_slow_calls() -> float:
    """Seconds that 128 calls of 0.2 s take."""
    async with Executor([declare("wait", SECONDS, max_concurrency=128)]) as executor:
        started = time.perf_counter()
        call = ToolCall("wait", {"seconds": 0.2})
        await asyncio.gather(*(executor.invoke(call, trajectory_id=str(n)) for n in range(128)))
        return time.perf_counter() - started


def latencies(seed: int = 0) -> list[float]:
    """5,000 calls: 5 % hang (below 0), 10 % fail (above 100), else Pareto(1.3), 20 ms to 0.9 s."""
    draw = random.Random(seed)

    def one() -> float:
        kind = draw.random()
        if kind < 0.05:
            return -1.0
        return 1000.0 if kind < 0.15 else min(0.9, 0.02 * draw.paretovariate(1.3))

    return [one() for _ in range(5_000)]


async def load() -> BenchReport:
    """The mixed load and its floor, as `rlf tools bench` has them."""
    calls = [{"seconds": seconds} for seconds in latencies()]
    tool = declare("wait", SECONDS, max_concurrency=512, timeout_s=1.0)
    return await time_calls(tool, calls, concurrency=512, num_calls=len(calls))


def strategies(num_trajectories: int = 64, num_calls: int = 8, scale: float = 1.0) -> dict[str, float]:
    """Wall seconds of the same calls of 50 to 500 ms under four ways to run them; sampling takes no time here."""
    draw = random.Random(1)
    plan = [[draw.uniform(0.05, 0.5) * scale for _ in range(num_calls)] for _ in range(num_trajectories)]

    async def through_executor() -> None:
        async with Executor([declare("wait", SECONDS, max_concurrency=num_trajectories)]) as executor:

            async def play(number: int) -> None:
                for seconds in plan[number]:
                    await executor.invoke(ToolCall("wait", {"seconds": seconds}), trajectory_id=str(number))

            await asyncio.gather(*(play(number) for number in range(num_trajectories)))

    async def with_barrier() -> None:
        for turn in range(num_calls):
            await asyncio.gather(*(asyncio.sleep(of[turn]) for of in plan))

    async def in_threads() -> None:
        with ThreadPoolExecutor((os.cpu_count() or 1) + 4) as pool:
            loop = asyncio.get_running_loop()

            async def play(of: list[float]) -> None:
                for seconds in of:
                    await loop.run_in_executor(pool, time.sleep, seconds)

            await asyncio.gather(*map(play, plan))

    def timed(make: Callable[[], Awaitable[None]]) -> float:
        started = time.perf_counter()
        asyncio.run(make())
        return time.perf_counter() - started

    return {
        "one at a time": sum(map(sum, plan)),
        "threads, cpus + 4": timed(in_threads),
        "barrier per turn": timed(with_barrier),
        "executor": timed(through_executor),
        "floor: longest trajectory": max(map(sum, plan)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=6_400, help="calls per round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cost = overhead(options.calls, options.rounds)
    task, thread = cost["detachable task (asyncio)"], cost["run_in_executor (asyncio)"]
    mixed, slow, ways = asyncio.run(load()), asyncio.run(many_slow_calls()), strategies()
    ratios = {
        "bare / detachable task": task["calls_per_s"] / cost["bare"]["calls_per_s"],
        "async tool / detachable task": task["calls_per_s"] / cost["async tool, whole executor"]["calls_per_s"],
        "sync tool / run_in_executor": thread["calls_per_s"] / cost["sync tool, whole executor"]["calls_per_s"],
        "load test / floor": mixed.times_floor,
        "executor / one at a time": ways["executor"] / ways["one at a time"],
    }
    if options.json:
        print(
            json.dumps(
                {"cost": cost, "ratios": ratios, "load": as_json(mixed), "128 x 0.2 s": slow, "ways": ways}, indent=1
            )
        )
        return
    for name, of in cost.items():
        print(f"{name:34} {of['calls_per_s']:9,.0f} calls/s {of['cpu_us']:6.1f} us CPU per call")
    for name, ratio in ratios.items():
        print(f"{name:34} {ratio:9.3f}")
    print(f"{'128 calls of 0.2 s':34} {slow:9.3f} s")
    print(f"{'loop lag p99 under load':34} {mixed.lag_p99_s * 1000:9.1f} ms")
    for name, seconds in ways.items():
        print(f"{name:34} {seconds:9.2f} s  {1 - seconds / ways['one at a time']:7.1%} less waiting")


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main())
