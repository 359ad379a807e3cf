"""A call is not timed out for the time that rlf itself was stopped."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import rlf
from rlf.core import clocks as pauses
from rlf.core import clocks as timers
from rlf.core.clocks import PauseClock

PROGRAM = """
import asyncio, json, sys
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.executor import Executor
from rlf.types import ToolCall

async def wait() -> str:
    "Waits."
    await asyncio.sleep(float(sys.argv[1]))
    return "done"

async def main():
    declaration = ToolDeclaration.model_validate({
        "name": "wait", "description": "Waits.", "inputSchema": {"type": "object", "properties": {}},
        "target": {"kind": "python", "callable": "__main__:wait"}, "limits": {"timeout_s": 1.5},
    })
    async with Executor([declaration]) as executor:
        call = asyncio.ensure_future(executor.invoke(ToolCall("wait", {}), trajectory_id="t"))
        await asyncio.sleep(0.6)
        print("called", flush=True)
        result = await call
        print(json.dumps([result.outcome, result.text]))

asyncio.run(main())
"""


@pytest.mark.parametrize(("waits_s", "outcome"), [(1.2, "ok"), (60.0, "infra")])
def test_a_process_that_was_stopped_gives_its_calls_their_time_again_and_none_is_the_policys_timeout(waits_s, outcome):
    command = [sys.executable, "-c", PROGRAM, str(waits_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "called\n"
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(process.pid, signal.SIGCONT)
            answer, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert json.loads(answer)[0] == outcome, answer


@pytest.fixture
def times(monkeypatch):
    """What the clocks say."""
    now = {"monotonic": 100.0, "process_time": 1.0, "asleep": 0.0}
    monkeypatch.setattr(pauses.time, "monotonic", lambda: now["monotonic"])
    monkeypatch.setattr(pauses.time, "process_time", lambda: now["process_time"])
    monkeypatch.setattr(pauses, "_asleep_s", lambda: now["asleep"])
    return now


@pytest.fixture
def clock(times):
    made = PauseClock()
    made._thread = object()  # beats only when the test says so
    return made


def test_a_gap_without_work_is_a_pause_and_the_clock_stands_still(clock, times):
    times["monotonic"] += 50.0
    assert clock.now() == 100.0
    assert clock.count_pauses() == 1
    times["monotonic"] += 0.5
    assert clock.now() == 100.5


def test_a_gap_in_which_the_processor_was_used_is_no_pause(clock, times):
    times["monotonic"] += 5.0
    times["process_time"] += 5.0
    assert (clock.now(), clock.count_pauses()) == (105.0, 0)


def test_a_machine_that_was_asleep_is_a_pause_although_the_clock_did_not_move(clock, times):
    times["asleep"] += 3600.0
    assert clock.count_pauses() == 1
    assert clock.now() == 100.0


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_time_limit_of_a_reward_counts_no_pause(is_paused, monkeypatch):
    class Still:
        """The clock of a process that is stopped: a pause shows as time that does not pass."""

        def now(self) -> float:
            return 100.0 if is_paused else time.monotonic()

        def start(self) -> None:
            """Nothing beats."""

    monkeypatch.setattr(timers, "clock", Still())

    async def count() -> int:
        rounds = 0
        with suppress(TimeoutError), timers.within(0.01):
            while rounds < 20:
                await asyncio.sleep(0.002)
                rounds += 1
        return rounds

    assert (asyncio.run(count()) == 20) is is_paused


def test_rewards_worlds_and_processes_have_no_other_time_limit():
    """`asyncio.timeout` counts the time of pauses: a judge's or worker's answer would be late without being slow."""
    allowed = {"panel.py", "openenv.py"}  # the start of a server, and the end of a world, which are no answers
    apps = ("apps/judges", "apps/models", "apps/peers", "apps/sql", "apps/verify")
    folders = ("rewards", "sandbox", "processes", "environments", *apps)
    package = Path(rlf.__file__).parent
    files = [path for folder in folders for path in (package / folder).rglob("*.py")]
    files += [package / "apps/servers" / name for name in ("openenv.py", "world.py")]
    found = {path.name for path in files if "asyncio.timeout(" in path.read_text()}
    assert found == allowed
