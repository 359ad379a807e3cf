"""A dead dependency is left alone, probed, and taken back."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from rlf.tools import Executor
from rlf.tools.execution.gate import Breaker
from rlf.tools.kind import BreakerSpec
from rlf.types import Outcome, ToolCall, ToolResult


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_failures_in_a_row_and_a_success_between_starts_anew() -> None:
    breaker = Breaker(BreakerSpec(failures=3), Clock())
    for outcome in (Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.TOOL_ERROR, Outcome.INFRA, Outcome.UNKNOWN):
        assert breaker.refuses() is None
        assert not breaker.note(outcome, 0.0)
    assert breaker.note(Outcome.RATE_LIMITED, 0.0)
    assert breaker.refuses() == "3 calls in a row failed; it is tried again every 5 s"


def test_calls_that_fail_together_open_nothing_where_others_were_answered_meanwhile() -> None:
    clock = Clock()
    breaker = Breaker(BreakerSpec(failures=3), clock)
    clock.now = 0.5
    breaker.note(Outcome.OK, 0.0)
    clock.now = 1.0
    assert not any(breaker.note(Outcome.TIMEOUT, 0.0) for _ in range(50))
    clock.now = 2.0
    assert [breaker.note(Outcome.TIMEOUT, 1.0) for _ in range(3)] == [False, False, True]


def test_after_the_pause_one_call_probes_and_its_end_decides() -> None:
    clock = Clock()
    breaker = Breaker(BreakerSpec(failures=1, pause_s=5), clock)
    breaker.note(Outcome.UNREACHABLE, clock.now)
    clock.now = 5.0
    assert breaker.refuses() is None
    assert breaker.refuses() is not None  # the probe is under way
    assert not breaker.note(Outcome.UNREACHABLE, clock.now)
    assert breaker.refuses() is not None
    clock.now = 10.0
    assert breaker.refuses() is None
    breaker.forget()  # the probe was cancelled: another may go
    assert breaker.refuses() is None
    breaker.note(Outcome.OK, clock.now)
    assert breaker.refuses() is None
    assert breaker.refuses() is None


def test_timeouts_count_unless_the_arguments_decide_how_long_a_call_takes() -> None:
    for timeouts in (True, False):
        breaker = Breaker(BreakerSpec(failures=1, timeouts=timeouts), Clock())
        assert breaker.note(Outcome.TIMEOUT, 0.0) is timeouts


def test_a_dead_dependency_fails_fast_unscorable_and_comes_back(declare: Any, toolbox: ModuleType) -> None:
    told: list[str] = []
    limits = {"breaker": {"failures": 4, "pause_s": 0.2}}

    async def story() -> None:
        async with Executor([declare("depend", limits=limits)], notify=lambda _, text: told.append(text)) as executor:

            async def ask() -> ToolResult:
                return await executor.invoke(ToolCall("depend", {"query": "x"}), trajectory_id="t")

            toolbox.DEAD[0] = True
            dead = [await ask() for _ in range(10)]
            assert [r.outcome for r in dead] == [Outcome.UNREACHABLE] * 4 + [Outcome.CIRCUIT_OPEN] * 6
            assert all(r.outcome.is_infrastructure for r in dead)
            assert len(toolbox.CALLS) == 4
            await asyncio.sleep(0.25)
            assert [(await ask()).outcome for _ in range(3)] == [Outcome.UNREACHABLE, *[Outcome.CIRCUIT_OPEN] * 2]
            toolbox.DEAD[0] = False
            await asyncio.sleep(0.25)
            assert [(await ask()).text for _ in range(3)] == ["alive"] * 3

    try:
        asyncio.run(story())
    finally:
        toolbox.DEAD[0] = False
    assert len(told) == 1
    assert "tool depend: too many calls failed in a row" in told[0]
    assert "nobody listens" in told[0]


def test_calls_that_are_refused_give_the_reason_why_nobody_has_to_wait_for_the_tool(
    declare: Any, toolbox: ModuleType
) -> None:
    async def story() -> list[ToolResult]:
        async with Executor([declare("leave", limits={"breaker": {"failures": 1, "pause_s": 60}})]) as executor:
            call = ToolCall("leave", {"query": "x"})
            return [await executor.invoke(call, trajectory_id="t") for _ in range(3)]

    results = asyncio.run(story())
    assert [result.outcome for result in results] == [Outcome.GONE] * 3
    assert len({result.text for result in results}) == 1
    assert "there is no model" in results[0].text
