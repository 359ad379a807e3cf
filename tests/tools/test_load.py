"""Many trajectories at once: exact counts, nothing left over, and room where the machine has little."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlf.tools import Executor
from rlf.types import Outcome, ToolCall, ToolResult

SECONDS = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
HANG, FAIL = -1.0, 1000.0
DESCRIPTORS = Path("/proc/self/fd")


def num_descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.is_dir() else 0


def latencies(num_trajectories: int) -> list[list[float]]:
    """5 calls each: 5 % hang, 10 % raise, the others take Pareto(1.3) from 20 ms, at most 0.9 s."""
    draw = random.Random(0)
    drawn = [[draw.random() for _ in range(5)] for _ in range(num_trajectories)]

    def one(place: float) -> float:
        if place < 0.05:
            return HANG
        return FAIL if place < 0.15 else min(0.9, 0.02 * draw.paretovariate(1.3))

    return [[one(place) for place in of] for of in drawn]


def test_a_thousand_trajectories_have_exact_counts_and_leave_nothing(declare: Any) -> None:
    plan = latencies(1000)
    num_hung = sum(seconds == HANG for of in plan for seconds in of)
    num_failed = sum(seconds == FAIL for of in plan for seconds in of)
    results: list[ToolResult] = []

    async def story() -> int:
        limits = {"timeout_s": 1.6, "max_concurrency": 256}
        async with Executor([declare("take", SECONDS, limits=limits)], max_concurrency=200) as executor:

            async def play(number: int) -> None:
                for seconds in plan[number]:
                    call = ToolCall("take", {"seconds": seconds})
                    results.append(await executor.invoke(call, trajectory_id=str(number)))

            async with asyncio.TaskGroup() as group:
                for number in range(len(plan)):
                    group.create_task(play(number))
            assert len(asyncio.all_tasks()) == 1
            return executor.num_abandoned

    threads, descriptors = set(threading.enumerate()), num_descriptors()
    assert asyncio.run(story()) == 0
    outcomes = {Outcome.TIMEOUT: num_hung, Outcome.TOOL_ERROR: num_failed, Outcome.OK: 5000 - num_hung - num_failed}
    assert Counter(result.outcome for result in results) == outcomes
    assert {r.outcome for r in results if r.run_s < 0.02} == {Outcome.TOOL_ERROR}
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert left <= {"rlf-pause-clock"}, left  # which is one for the whole process
    assert num_descriptors() <= descriptors


def test_calls_over_all_tools_stay_within_the_specs_limit(declare: Any) -> None:
    async def story() -> None:
        tools = [declare("wait_200_ms", {"type": "object"}, name=f"tool_{n}") for n in range(3)]
        async with Executor(tools, max_concurrency=5) as executor:

            async def one(number: int) -> ToolResult:
                return await executor.invoke(ToolCall(f"tool_{number % 3}", {}), trajectory_id=str(number))

            results = await asyncio.gather(*(one(number) for number in range(15)))
            starts = sorted(result.queue_s for result in results)
            assert [round(at / 0.2) for at in starts] == [0] * 5 + [1] * 5 + [2] * 5

    asyncio.run(story())


def test_five_hundred_calls_never_pass_the_tools_limit(declare: Any, tmp_path: Path) -> None:
    code = """
        import asyncio
        running = most = 0
        async def count(query):
            global running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return str(most)
    """
    (tmp_path / "counting.py").write_text(textwrap.dedent(code))
    declaration = declare("echo", limits={"max_concurrency": 7}, target={"callable": f"{tmp_path}/counting.py:count"})

    async def story() -> int:
        async with Executor([declaration]) as executor:
            calls = [executor.invoke(ToolCall("echo", {"query": "x"}), trajectory_id=str(n)) for n in range(512)]
            return max(int(result.text) for result in await asyncio.gather(*calls))

    assert asyncio.run(story()) == 7


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="reads /proc to know how many files are open")
def test_with_256_file_descriptors_calls_wait_and_nothing_breaks() -> None:
    code = f"""
        import asyncio, logging, resource
        logging.basicConfig()
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        from pathlib import Path
        from rlf.tools import Executor, ToolDeclaration
        from rlf.types import ToolCall
        schema = {{"type": "object", "properties": {{"query": {{"type": "string"}}}}, "required": ["query"]}}
        target = {{"kind": "python", "callable": "toolbox.py:hold_a_file"}}
        mapping = {{"name": "hold", "description": "d", "inputSchema": schema, "target": target,
                    "limits": {{"max_concurrency": 1000}}}}
        folder = Path({str(Path(__file__).parent)!r})
        declaration = ToolDeclaration.model_validate(mapping, context={{"folder": folder}})
        async def main():
            async with Executor([declaration]) as executor:
                calls = [executor.invoke(ToolCall("hold", {{"query": "x"}}), trajectory_id=str(n)) for n in range(1000)]
                print({{r.outcome.value for r in await asyncio.gather(*calls)}})
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "{'ok'}\n"
    assert "raise `ulimit -n`" in done.stderr


def test_a_call_that_finds_no_descriptor_is_infrastructure(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    async def starve(**_: Any) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("rlf.tools.kinds.python.load_callable", lambda name: starve)

    async def story() -> ToolResult:
        async with Executor([declare("echo")]) as executor:
            return await executor.invoke(ToolCall("echo", {"query": "x"}), trajectory_id="t")

    assert asyncio.run(story()).outcome is Outcome.INFRA
