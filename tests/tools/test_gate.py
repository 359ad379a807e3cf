"""Permits: how many at once, how often, and in which order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from rlf.tools.execution.gate import ConcurrencyGate
from rlf.tools.execution.windows import StartWindow, TokenWindow


async def hold(gate: ConcurrencyGate, trajectory_id: str, order: list[str], seconds: float = 0.0) -> None:
    if not gate.try_enter():
        await gate.enter(trajectory_id)
    try:
        order.append(trajectory_id)
        await asyncio.sleep(seconds)
    finally:
        gate.leave()


def test_a_thousand_calls_of_one_trajectory_delay_another_by_one_turn() -> None:
    async def story() -> list[str]:
        gate, order = ConcurrencyGate(4), list[str]()
        async with asyncio.TaskGroup() as group:
            for _ in range(1000):
                group.create_task(hold(gate, "greedy", order))
            await asyncio.sleep(0)
            for name in ("b", "c"):
                for _ in range(3):
                    group.create_task(hold(gate, name, order))
        assert (gate.num_held, gate.num_waiting) == (0, 0)
        return order

    order = asyncio.run(story())
    assert Counter(order) == {"greedy": 1000, "b": 3, "c": 3}
    # four run when b and c come; then every third permit goes to each of the three
    assert max(index for index, name in enumerate(order) if name != "greedy") < 4 + 3 * 3 + 4


def test_never_more_hold_a_permit_than_there_are() -> None:
    async def story() -> int:
        gate, most = ConcurrencyGate(3), 0

        async def one(number: int) -> None:
            nonlocal most
            if not gate.try_enter():
                await gate.enter(str(number % 7))
            most = max(most, gate.num_held)
            await asyncio.sleep(0)
            gate.leave()

        await asyncio.gather(*(one(number) for number in range(200)))
        return most

    assert asyncio.run(story()) == 3


def test_who_is_cancelled_while_waiting_or_in_the_moment_of_the_permit_keeps_none() -> None:
    async def story() -> None:
        gate, order = ConcurrencyGate(1), list[str]()
        assert gate.try_enter()
        waiting = [asyncio.create_task(hold(gate, str(number), order)) for number in range(10)]
        await asyncio.sleep(0)
        for task in waiting[:9:2]:
            task.cancel()
        gate.leave()  # the permit goes to the first that is left, before it can run
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert order == ["3", "5", "7", "9"]
        assert (gate.num_held, gate.num_waiting) == (0, 0)
        assert gate.try_enter()

    asyncio.run(story())


def test_a_window_lets_no_more_calls_start_within_its_span() -> None:
    window, now, starts = StartWindow(5, 1.0), 0.0, list[float]()
    while len(starts) < 23:
        now += window.wait_s(now)
        window.note_start(now)
        starts.append(now)
        now += 0.03
    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in zip(starts, starts[5:], strict=False))
    assert starts[4] < 0.2 < starts[5] < 1.1


def test_tokens_of_the_last_span_hold_calls_back_until_they_are_old() -> None:
    window = TokenWindow(100, 60.0)
    window.note_tokens(0.0, 60)
    assert window.wait_s(1.0) == 0.0
    window.note_tokens(10.0, 60)  # 120 >= 100: until the first 60 are 60 s old
    assert window.wait_s(20.0) == pytest.approx(40.0)
    assert window.wait_s(60.0) == 0.0
    window.note_tokens(61.0, 1000)
    assert window.wait_s(62.0) == pytest.approx(59.0)


def test_calls_wait_for_the_rate_in_turn_by_trajectory() -> None:
    async def story() -> tuple[list[str], float]:
        gate, order = ConcurrencyGate(64, [StartWindow(4, 0.2)]), list[str]()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(hold(gate, "a", order))
            for _ in range(2):
                group.create_task(hold(gate, "b", order))
        gate.close()
        return order, time.perf_counter() - started

    order, took = asyncio.run(story())
    assert order[:4] == ["a"] * 4  # nobody else was there
    assert sorted(order[4:8]) == ["a", "a", "b", "b"]
    assert took >= 0.4  # 12 starts at 4 in 0.2 s: two waits
