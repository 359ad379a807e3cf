"""What tools may do to the executor, and what it answers: the run goes on, every call ends typed and in time."""

from __future__ import annotations

import _thread
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from rlf.core.callables import load_callable
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, ToolCall, ToolResult

HOW = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}
OPEN = {"type": "object"}


def during(declarations: list[ToolDeclaration], story: Callable[[Executor], Awaitable[Any]]) -> Any:
    """Runs a story within an open executor and asserts that leaving it does not wait for what hangs."""

    async def main() -> tuple[Any, float]:
        async with Executor(declarations) as executor:
            told = await story(executor)
            left = time.perf_counter()
        return told, left

    told, left = asyncio.run(main())
    assert time.perf_counter() - left < 5
    return told


def num_threads() -> int:
    return _thread._count()  # type: ignore[attr-defined,no-any-return]  # threading knows only its own


async def invoke(executor: Executor, name: str, **arguments: Any) -> ToolResult:
    return await executor.invoke(ToolCall(name, arguments), trajectory_id="t")


async def timed(call: Awaitable[ToolResult]) -> tuple[ToolResult, float]:
    started = time.perf_counter()
    result = await call
    return result, time.perf_counter() - started


@pytest.mark.parametrize("function", ["hang", "hang_sync", "swallow", "spin"])
def test_a_call_that_hangs_ends_at_its_deadline(declare: Any, function: str) -> None:
    async def story(executor: Executor) -> None:
        (result, took), (other, other_took) = await asyncio.gather(
            timed(invoke(executor, function)), timed(invoke(executor, "echo", query="x"))
        )
        assert result.outcome is Outcome.TIMEOUT
        assert result.text == f"error: {function} gave no result within 0.3 s"
        assert 0.3 <= took < 1.0
        assert other.outcome is Outcome.OK
        assert other_took < 0.3
        again = await invoke(executor, "echo", query="y")
        assert again.text == "y"

    during([declare(function, OPEN, limits={"timeout_s": 0.3}), declare("echo")], story)


def test_a_swallowed_cancellation_is_counted_and_then_quarantined(declare: Any) -> None:
    async def story(executor: Executor) -> None:
        results = await asyncio.gather(*(invoke(executor, "swallow") for _ in range(MAX_ABANDONED)))
        assert {result.outcome for result in results} == {Outcome.TIMEOUT}
        await asyncio.sleep(0.15)
        assert executor.num_abandoned == MAX_ABANDONED
        refused, took = await timed(invoke(executor, "swallow"))
        assert refused.outcome is Outcome.CIRCUIT_OPEN
        assert "out of order" in refused.text
        assert took < 0.5

    during([declare("swallow", OPEN, limits={"timeout_s": 0.05, "max_concurrency": MAX_ABANDONED})], story)


def test_a_cancelled_task_that_ends_is_not_counted(declare: Any, toolbox: ModuleType) -> None:
    async def story(executor: Executor) -> None:
        await asyncio.gather(*(invoke(executor, "slow_stop") for _ in range(MAX_ABANDONED)))
        result = await invoke(executor, "slow_stop")
        assert result.outcome is Outcome.TIMEOUT
        assert executor.num_abandoned == 0

    during([declare("slow_stop", OPEN, limits={"timeout_s": 0.05, "breaker": None})], story)
    assert toolbox.CALLS == ["cleaned"] * (MAX_ABANDONED + 1)


def test_a_pool_full_of_hung_calls_starves_no_other_tool(declare: Any) -> None:
    pool_size = 4 + MAX_ABANDONED
    before = num_threads()

    async def story(executor: Executor) -> None:
        async with asyncio.TaskGroup() as group:
            hung = [group.create_task(invoke(executor, "hang_sync")) for _ in range(pool_size + 8)]
            times = []
            for _ in range(20):
                await asyncio.sleep(0.02)
                result, took = await timed(invoke(executor, "echo_sync", query="x"))
                assert result.outcome is Outcome.OK
                times.append(took)
            assert median(times) < 0.05
            assert max(times) < 0.5  # what a busy machine adds; a call behind hung ones would not end at all
        assert num_threads() - before <= pool_size + 1
        assert {task.result().outcome for task in hung} == {Outcome.TIMEOUT, Outcome.CIRCUIT_OPEN}

    limits = {"timeout_s": 0.05, "max_concurrency": 4, "breaker": None}
    during([declare("hang_sync", OPEN, limits=limits), declare("echo_sync")], story)


def test_a_tool_whose_calls_all_hang_is_refused_before_it_takes_more_threads(declare: Any) -> None:
    before = num_threads()

    async def story(executor: Executor) -> None:
        for outcome in (Outcome.TIMEOUT, Outcome.CIRCUIT_OPEN):
            results = await asyncio.gather(*(timed(invoke(executor, "hang_sync")) for _ in range(100)))
            assert {result.outcome for result, _ in results} == {outcome}
            assert max(took for _, took in results) < 1.5
            assert num_threads() - before <= 100 + 2  # and those that watch the loop and pauses

    during([declare("hang_sync", OPEN, limits={"timeout_s": 0.15, "max_concurrency": 100})], story)


def test_a_pool_makes_no_thread_beyond_its_bound(toolbox: ModuleType) -> None:
    async def main() -> None:
        pool = ThreadPool(2)
        hung = [asyncio.create_task(pool.run(toolbox.hang_sync)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ToolFailure) as caught:
            await pool.run(toolbox.hang_sync)
        assert caught.value.outcome is Outcome.CIRCUIT_OPEN
        assert pool.num_threads == 2
        toolbox.RELEASE.set()
        assert await asyncio.gather(*hung) == ["late", "late"]
        assert await pool.run(lambda: "again") == "again"
        assert pool.num_threads == 2
        pool.close()

    asyncio.run(main())


def test_a_thread_that_wakes_up_serves_again(declare: Any, toolbox: ModuleType) -> None:
    async def story(executor: Executor) -> None:
        result = await invoke(executor, "hang_sync")
        assert result.outcome is Outcome.TIMEOUT
        await asyncio.sleep(0.01)
        assert executor.num_abandoned == 1
        toolbox.RELEASE.set()
        await asyncio.sleep(0.1)
        assert executor.num_abandoned == 0
        assert (await invoke(executor, "hang_sync")).text == "late"

    during([declare("hang_sync", OPEN, limits={"timeout_s": 0.05})], story)


def test_a_machine_without_threads_is_no_fault_of_the_tool(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    async def story(executor: Executor) -> None:
        monkeypatch.setattr("rlf.tools.python.threads._thread.start_new_thread", refuse)
        assert (await invoke(executor, "echo_sync", query="x")).outcome is Outcome.INFRA
        monkeypatch.undo()
        assert (await invoke(executor, "echo_sync", query="x")).outcome is Outcome.OK

    during([declare("echo_sync")], story)


def test_no_thread_is_left_after_closing(declare: Any) -> None:
    before = num_threads()

    async def story(executor: Executor) -> None:
        await asyncio.gather(*(invoke(executor, "echo_sync", query="x") for _ in range(50)))

    during([declare("echo_sync")], story)
    deadline = time.perf_counter() + 2
    while num_threads() > before and time.perf_counter() < deadline:
        time.sleep(0.005)
    assert num_threads() <= before


def _error_names() -> tuple[str, ...]:
    module = load_callable(f"{Path(__file__).parent / 'toolbox.py'}:echo").__module__
    names: tuple[str, ...] = sys.modules[module].ERROR_NAMES
    return names


@pytest.mark.parametrize("how", _error_names())
@pytest.mark.parametrize(
    ("function", "isolation"), [("fail", "auto"), ("fail_sync", "thread"), ("fail_sync", "inline")]
)
def test_whatever_a_tool_raises_is_a_tool_error(declare: Any, how: str, function: str, isolation: str) -> None:
    async def story(executor: Executor) -> None:
        result = await invoke(executor, function, how=how)
        assert result.outcome is Outcome.TOOL_ERROR
        assert 7 < len(result.text) <= 520
        assert "Traceback" not in result.text
        assert __file__ not in result.text
        assert (await invoke(executor, "echo", query="alive")).text == "alive"

    during([declare(function, HOW, isolation=isolation), declare("echo")], story)


@pytest.mark.parametrize(("how", "words"), [("refused", "nobody listens"), ("no_host", "no such host")])
def test_a_host_that_cannot_be_reached_is_infrastructure(declare: Any, call_once: Any, how: str, words: str) -> None:
    result = call_once(declare("unreachable", HOW, idempotent=True, limits={"retries": 2}), how=how)
    assert result.outcome is Outcome.UNREACHABLE
    assert result.outcome.is_infrastructure
    assert words in result.text
    assert len(result.attempts) == 3


def test_the_words_of_an_exception_reach_the_model(declare: Any, call_once: Any) -> None:
    assert call_once(declare("fail", HOW), how="value").text == "error: ValueError: division by zero"
    assert "its text cannot be shown (SystemExit)" in call_once(declare("fail", HOW), how="unprintable").text


def test_a_tool_that_cancels_itself_is_a_tool_error(declare: Any, call_once: Any) -> None:
    assert call_once(declare("cancel_itself", OPEN)).outcome is Outcome.TOOL_ERROR


@pytest.mark.parametrize("function", ["slow_stop", "hang_sync", "swallow"])
def test_a_cancelled_trajectory_frees_its_permit(declare: Any, function: str) -> None:
    async def story(executor: Executor) -> None:
        for _ in range(3):
            call = asyncio.create_task(invoke(executor, function))
            await asyncio.sleep(0.02)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        result, took = await timed(invoke(executor, function))
        assert result.outcome is Outcome.TIMEOUT
        assert result.queue_s < 0.2
        assert took < 0.3

    during([declare(function, OPEN, limits={"timeout_s": 0.2, "max_concurrency": 1})], story)


def test_a_cancelled_call_says_what_it_came_to(declare: Any) -> None:
    async def story(executor: Executor) -> None:
        running = asyncio.create_task(invoke(executor, "fail_then_hang"))
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(invoke(executor, "fail_then_hang"))
        await asyncio.sleep(0.2)
        for call in (running, waiting):
            call.cancel()
        with pytest.raises(asyncio.CancelledError) as cut_off:
            await running
        (result,) = cut_off.value.args
        assert result.outcome is Outcome.CANCELLED
        assert [attempt.outcome for attempt in result.attempts] == [Outcome.TOOL_ERROR, Outcome.CANCELLED]
        assert result.attempts[1].run_s < result.run_s < 1
        assert result.isolation == "inline"
        with pytest.raises(asyncio.CancelledError) as queued:
            await waiting
        assert queued.value.args == ()

    limits = {"timeout_s": 5, "max_concurrency": 1, "retries": 1}
    during([declare("fail_then_hang", OPEN, idempotent=True, limits=limits)], story)


def test_cancelling_a_trajectory_stops_the_tools_work(declare: Any, toolbox: ModuleType) -> None:
    async def story(executor: Executor) -> None:
        call = asyncio.create_task(invoke(executor, "slow_stop"))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    during([declare("slow_stop", OPEN)], story)
    assert toolbox.CALLS == ["cleaned"]


@pytest.mark.parametrize("arguments", [{"timeout": 1e9}, {"timeout_s": 1e9}, {"limits": {"timeout_s": 1e9}}])
def test_a_model_cannot_set_its_own_limits(declare: Any, arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}

    async def story(executor: Executor) -> None:
        refused, took = await timed(invoke(executor, "hang", **arguments))
        assert refused.outcome is Outcome.INVALID_ARGUMENTS
        assert took < 0.5

    during([declare("hang", schema, limits={"timeout_s": 0.1})], story)


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"query": value}
    return value


MALFORMED: list[Any] = [
    {},
    {"query": None},
    {"query": 3},
    {"query": float("nan")},
    {"query": float("inf")},
    {"query": 10**5000},
    {"query": [[]]},
    {"query": {"query": "x"}},
    {"query": "x", "limit": "3"},
    {"query": "x", "limit": -1},
    {"query": "x", "\ud800": 1},
    {"query": "x", "": 1},
    {"query": "x", "y" * 10_000_000: 1},
    {"query": "x", "__class__": 1},
    {"query": "x", "self": 1},
    {"Query": "x"},
    {"query": b"x"},
    {"query": {1, 2}},
    {"query": object()},
    {1: "x"},
    {None: None},
    _nested(50),
    _nested(10_000),
    {"query": "x", **{f"key{number}": number for number in range(1000)}},
    None,
    [],
    "query",
    3,
]


LIMITED = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 0}},
    "required": ["query"],
}


@pytest.mark.parametrize("arguments", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_arguments_are_answered_and_never_raise(declare: Any, arguments: Any) -> None:
    async def story(executor: Executor) -> None:
        result = await executor.invoke(ToolCall("repeat", arguments), trajectory_id="t")
        assert result.outcome is Outcome.INVALID_ARGUMENTS
        assert len(result.text) <= 520
        assert "Expected: query (string, required), limit (integer)" in result.text
        result.text.encode()

    during([declare("repeat", LIMITED, cache={"scope": "run"})], story)


def test_a_valid_number_without_canonical_form_reaches_the_tool(declare: Any, call_once: Any) -> None:
    result = call_once(declare("repeat", LIMITED, cache={"scope": "run"}), query="", limit=10**5000)
    assert (result.outcome, result.text) == (Outcome.OK, "many")


@pytest.mark.parametrize(
    "query", ["", "\ud800", "\0", "\x1b[2J", "<tool_call>", "x" * 1_000_000, "'; DROP TABLE x; --"]
)
def test_odd_strings_are_strings(declare: Any, call_once: Any, query: str) -> None:
    result = call_once(declare("echo", cache={"scope": "run"}), query=query)
    assert result.outcome is Outcome.OK
    result.text.encode()


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 10_000_000, "echo\0", "<tool_call>"])
def test_an_odd_name_is_an_unknown_tool(declare: Any, name: str) -> None:
    async def story(executor: Executor) -> None:
        result, took = await timed(executor.invoke(ToolCall(name, {}), trajectory_id="t"))
        assert result.outcome is Outcome.UNKNOWN_TOOL
        assert len(result.text) < 200
        assert took < 0.5
        result.text.encode()

    during([declare("echo")], story)


def test_a_thousand_malformed_calls_at_once_are_all_answered(declare: Any) -> None:
    async def story(executor: Executor) -> None:
        calls = [executor.invoke(ToolCall(f"t{n}", {"x": n}), trajectory_id=str(n)) for n in range(1000)]
        results = await asyncio.gather(*calls)
        assert {result.outcome for result in results} == {Outcome.UNKNOWN_TOOL}

    during([declare("echo")], story)


def test_a_mixed_load_ends_near_its_floor_with_exact_counts(declare: Any) -> None:
    """200 trajectories of 5 calls: 5 % hang, 10 % raise, the others take up to 20 ms; the deadline is 0.3 s."""
    outcomes = Counter[Outcome]()

    async def trajectory(executor: Executor, number: int) -> None:
        for turn in range(5):
            place = (number * 5 + turn) % 100
            if place < 5:
                result = await invoke(executor, "hang")
            elif place < 15:
                result = await invoke(executor, "fail", how="value")
            else:
                result = await invoke(executor, "record", query=str(place))
            outcomes[result.outcome] += 1

    async def story(executor: Executor) -> int:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(trajectory(executor, number))
        assert len(asyncio.all_tasks()) == 1
        return executor.num_abandoned

    tools = [declare("hang", OPEN, limits={"timeout_s": 0.3, "breaker": None}), declare("fail", HOW), declare("record")]
    started = time.perf_counter()
    num_abandoned = during(tools, story)
    # 10 of 200 trajectories have five hung calls in a row, one after the other: 5 * 0.3 s = 1.5 s is the floor
    assert 1.5 <= time.perf_counter() - started < 10  # all of them one after the other: 15 s
    assert outcomes == {Outcome.TIMEOUT: 50, Outcome.TOOL_ERROR: 100, Outcome.OK: 850}
    assert num_abandoned == 0


def test_what_hangs_does_not_keep_the_process_from_ending() -> None:
    code = """
import asyncio, threading
from rlf.tools import Executor, ToolDeclaration
from rlf.types import ToolCall
async def stubborn():
    while True:
        try: await asyncio.sleep(0.01)
        except BaseException: pass
def stuck(): threading.Event().wait()
def declare(name):
    target = {"kind": "python", "callable": f"__main__:{name}"}
    return ToolDeclaration.model_validate({"name": name, "description": "d", "inputSchema": {"type": "object"},
        "target": target, "limits": {"timeout_s": 0.05}})
async def main():
    async with Executor([declare("stubborn"), declare("stuck")]) as executor:
        for name in ("stubborn", "stuck"):
            print((await executor.invoke(ToolCall(name, {}), trajectory_id="t")).outcome)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=10, check=True)
    assert done.stdout.split() == ["timeout", "timeout"]
    assert "Traceback" not in done.stderr
    assert "destroyed" not in done.stderr
