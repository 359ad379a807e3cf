"""The loop is watched: who holds it up is named, and how late it is can be told."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlf.core.clocks import Deadline, Timers
from rlf.tools import Executor
from rlf.tools.execution.detached import DetachedTasks
from rlf.types import Outcome, ToolCall

OPEN = {"type": "object"}


def test_a_coroutine_that_blocks_the_loop_is_named_once_and_counted(
    declare: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlf.tools.execution.gate.ALARM_S", 0.1)
    told: list[tuple[str, str]] = []

    async def story() -> int:
        tools = [declare("block", OPEN), declare("echo")]
        async with Executor(tools, notify=lambda *words: told.append(words)) as executor:
            for _ in range(2):
                result = await executor.invoke(ToolCall("block", {}), trajectory_id="t")
                assert result.outcome is Outcome.OK
                await asyncio.sleep(0.05)
            assert max(executor.monitor.lags_s) > 0.4
            return executor.monitor.num_blocks.total()

    with caplog.at_level(logging.WARNING):
        blocked = asyncio.run(story())
        assert "blocks the event loop" not in caplog.text
        monkeypatch.setattr("rlf.tools.execution.gate.STUCK_S", 0.2)
        asyncio.run(story())
    assert "tool block blocks the event loop at" in caplog.text  # said while it lasted: it might never have ended
    assert blocked == 2
    assert len(told) == 2  # one in each of two executors
    level, words = told[0]
    assert level == "warning"
    assert "tool block blocked the event loop for" in words
    assert "toolbox.py:" in words


def test_a_coroutine_that_blocks_the_loop_is_logged_where_nobody_is_notified(
    declare: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlf.tools.execution.gate.ALARM_S", 0.1)

    async def story() -> None:
        async with Executor([declare("block", OPEN)]) as executor:
            for _ in range(2):
                await executor.invoke(ToolCall("block", {}), trajectory_id="t")
                await asyncio.sleep(0.05)

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    (record,) = [one for one in caplog.records if one.name == "rlf.tools.execution.gate"]
    assert "tool block blocked the event loop for" in record.message and "toolbox.py:" in record.message


def test_what_blocks_the_loop_outside_of_tools_is_not_blamed_on_one(declare: Any) -> None:
    async def story() -> tuple[int, float]:
        async with Executor([declare("echo")]) as executor:
            await executor.invoke(ToolCall("echo", {"query": "x"}), trajectory_id="t")
            time.sleep(0.8)  # noqa: ASYNC251 - the trajectory's own code
            await asyncio.sleep(0.05)
            return executor.monitor.num_blocks.total(), max(executor.monitor.lags_s)

    blocked, lag_s = asyncio.run(story())
    assert (blocked, lag_s > 0.3) == (0, True)


@pytest.fixture
def busy_processor() -> Iterator[None]:
    """One processor for this process, which two others never leave."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not bind a process to a processor")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        os.sched_setaffinity(0, allowed)


CPU_S = {"type": "object", "properties": {"cpu_s": {"type": "number"}}, "required": ["cpu_s"]}


def computed(declare: Any, *cpu_s: float) -> tuple[int, float]:
    """How often a tool was blamed that computes for so long in each of its calls, all at once, and the longest lag."""

    async def story() -> tuple[int, float]:
        async with Executor([declare("compute", CPU_S, limits={"timeout_s": 300})]) as executor:
            calls = [executor.invoke(ToolCall("compute", {"cpu_s": one}), trajectory_id="t") for one in cpu_s]
            assert {result.outcome for result in await asyncio.gather(*calls)} == {Outcome.OK}
            await asyncio.sleep(0.1)
            return executor.monitor.num_blocks.total(), max(executor.monitor.lags_s)

    return asyncio.run(story())


def test_a_tool_is_not_blamed_for_time_in_which_the_machine_ran_others(declare: Any, busy_processor: None) -> None:
    blocked, lag_s = computed(declare, 0.25)
    assert (blocked, lag_s > 0.3) == (0, True), lag_s


def test_a_tool_that_computes_for_long_is_named_on_a_busy_machine_too(declare: Any, busy_processor: None) -> None:
    assert computed(declare, 1.0)[0] == 1


def test_a_tool_is_not_blamed_for_many_short_steps_in_a_row(declare: Any) -> None:
    blocked, lag_s = computed(declare, *[0.02] * 64)
    assert (blocked, lag_s > 0.5) == (0, True), lag_s


def test_a_busy_thread_is_not_a_blocked_loop(declare: Any) -> None:
    async def story() -> int:
        async with Executor([declare("spin", OPEN, limits={"timeout_s": 0.9})]) as executor:
            result = await executor.invoke(ToolCall("spin", {}), trajectory_id="t")
            assert result.outcome is Outcome.TIMEOUT
            return executor.monitor.num_blocks.total()

    assert asyncio.run(story()) == 0


def test_the_watching_thread_ends_with_the_executor(declare: Any) -> None:
    async def story() -> None:
        async with Executor([declare("echo")]):
            assert any(thread.name == "rlf-loop-monitor" for thread in threading.enumerate())

    asyncio.run(story())
    assert not any(thread.name == "rlf-loop-monitor" for thread in threading.enumerate())


def test_what_a_call_says_of_its_own_limit_counts_though_the_loop_was_busy_beyond_its_deadline() -> None:
    async def main() -> str:
        tasks, timers = DetachedTasks(), Timers()

        async def ask() -> None:
            try:
                await asyncio.sleep(60)
            finally:  # the request is taken back
                await asyncio.sleep(0.01)

        async def call() -> str:
            try:
                with timers.within(0.2):
                    await ask()
            except TimeoutError:
                return "the server answers nothing"
            return "it has answered"

        asyncio.get_running_loop().call_later(0.1, time.sleep, 0.3)
        return await tasks.run(call(), Deadline(0.3), "call")

    assert asyncio.run(main()) == "the server answers nothing"
