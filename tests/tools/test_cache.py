"""Kept results: which calls share one, and which never do."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

from rlf.tools import Executor
from rlf.tools.execution.cache import MAX_RESULTS, CacheKey, RunCache, canonical_arguments
from rlf.types import Outcome, ToolCall, ToolResult

CACHED = {"scope": "run"}
OPTIONS = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "options": {"type": "object"}},
    "required": ["query"],
}


async def ask(executor: Executor, name: str, **arguments: Any) -> ToolResult:
    return await executor.invoke(ToolCall(name, arguments), trajectory_id="t")


def test_an_identical_call_is_answered_from_the_cache(declare: Any, toolbox: ModuleType) -> None:
    async def main() -> None:
        async with Executor([declare("record", OPTIONS, cache=CACHED)]) as executor:
            first = await ask(executor, "record", query="a", options={"x": 1, "y": 2})
            second = await ask(executor, "record", options={"y": 2, "x": 1}, query="a")
            third = await ask(executor, "record", query="a", options={"x": 1, "y": 3})
        assert (first.cached, second.cached, third.cached) == (False, True, False)
        assert (second.text, second.attempts, second.run_s) == (first.text, (), 0.0)

    asyncio.run(main())
    assert toolbox.CALLS == ["a", "a"]


def test_nothing_is_kept_unless_declared(declare: Any, toolbox: ModuleType) -> None:
    async def main() -> None:
        async with Executor([declare("record")]) as executor:
            await asyncio.gather(*(ask(executor, "record", query="a") for _ in range(3)))

    asyncio.run(main())
    assert len(toolbox.CALLS) == 3


def test_identical_calls_in_flight_become_one(declare: Any, toolbox: ModuleType) -> None:
    async def main() -> list[ToolResult]:
        async with Executor([declare("record", cache=CACHED)]) as executor:
            return await asyncio.gather(*(ask(executor, "record", query="a") for _ in range(20)))

    results = asyncio.run(main())
    assert toolbox.CALLS == ["a"]
    assert [result.cached for result in results] == [False] + [True] * 19


def test_an_error_is_shared_in_flight_and_never_kept(declare: Any, toolbox: ModuleType) -> None:
    async def main() -> tuple[list[ToolResult], ToolResult, ToolResult]:
        async with Executor([declare("flaky", cache=CACHED)]) as executor:
            both = await asyncio.gather(*(ask(executor, "flaky", query="a") for _ in range(2)))
            return both, await ask(executor, "flaky", query="a"), await ask(executor, "flaky", query="a")

    both, second, third = asyncio.run(main())
    assert [result.outcome for result in both] == [Outcome.UNKNOWN] * 2
    assert (second.outcome, third.outcome) == (Outcome.UNKNOWN, Outcome.OK)
    assert len(toolbox.CALLS) == 3


def test_who_waits_outlives_the_cancellation_of_who_called_first(declare: Any, toolbox: ModuleType) -> None:
    async def main() -> list[ToolResult]:
        async with Executor([declare("record", cache=CACHED)]) as executor:
            first = asyncio.create_task(ask(executor, "record", query="a"))
            others = [asyncio.create_task(ask(executor, "record", query="a")) for _ in range(3)]
            await asyncio.sleep(0.005)
            first.cancel()
            others[0].cancel()
            return await asyncio.gather(*others[1:])

    results = asyncio.run(main())
    assert {result.outcome for result in results} == {Outcome.OK}
    assert sorted(result.cached for result in results) == [False, True]
    assert len(toolbox.CALLS) == 2


@pytest.mark.parametrize(("one", "other"), [({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ({"a": "1"}, {"a": 1})])
def test_arguments_of_different_types_are_different_calls(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert canonical_arguments(one) != canonical_arguments(other)


def test_what_has_no_canonical_json_is_never_kept() -> None:
    assert canonical_arguments({"a": float("nan")}) is None


def test_the_oldest_result_goes_when_the_cache_is_full() -> None:
    async def main() -> None:
        cache, runs = RunCache(), 0

        async def run() -> ToolResult:
            nonlocal runs
            runs += 1
            return ToolResult(Outcome.OK, "")

        for number in range(MAX_RESULTS + 1):
            await cache.get(CacheKey("t", "", str(number)), run)
        await cache.get(CacheKey("t", "", "1"), run)
        assert runs == MAX_RESULTS + 1
        await cache.get(CacheKey("t", "", "0"), run)
        assert runs == MAX_RESULTS + 2

    asyncio.run(main())
