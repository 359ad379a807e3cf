"""Worlds in processes of their own, by classes that mean harm."""

import asyncio
import os
import signal
import subprocess
import time

import pytest

from rlf.environments import EnvSpec, WorldPool, processes
from rlf.tools.failure import ToolFailure
from rlf.types import Task, ToolCall


class Harmful:
    """Does harm."""

    def do(self, what: str) -> str:
        """Does it.

        Args:
            what: what to do.
        """
        if what == "kill":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(5)
        if what == "stop":
            os.kill(os.getppid(), signal.SIGSTOP)
        if what == "start":
            return str(subprocess.Popen(["sleep", "99"]).pid)
        if what == "memory":
            return str(len(bytes(2_000_000_000)))
        if what == "close":
            os.closerange(3, 1000)
        return "done"

    def score(self):
        return 1.0


@pytest.fixture
def do():
    """Has a world of its own do each of some things, and gives what came of them."""

    def run(*things, **keys):
        env = {"kind": "python", "callable": f"{__name__}:Harmful", "isolation": "process", **keys}

        async def one(worlds, number, what):
            episode = worlds.open(f"t{number}", Task("t", ()))
            try:
                await episode.reset()
                return (await episode.call(ToolCall("do", {"what": what}))).text
            except ToolFailure as failure:
                return failure.text
            finally:
                await episode.close()

        async def go():
            async with WorldPool(EnvSpec.model_validate(env), seed=0) as worlds:
                return [await one(worlds, number, what) for number, what in enumerate(things)]

        return asyncio.run(go())

    return run


def test_a_world_that_kills_the_process_it_was_forked_from_fails_alone(do):
    killed, after = do("kill", "nothing")
    assert "the world's process ended" in killed and after == "done"


def test_a_process_that_was_stopped_is_replaced(do, monkeypatch):
    monkeypatch.setattr(processes, "_ORDER_S", 0.5)
    assert do("stop", "nothing") == ["done", "done"]


def test_what_a_world_has_started_ends_with_it(do):
    (pid,) = do("start")
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(int(pid), 0)
            time.sleep(0.1)


def test_a_world_has_no_more_memory_than_it_is_given(do):
    assert do("memory", "nothing", memory_mb=200) == ["world python: step: MemoryError", "done"]


def test_a_world_that_closes_what_it_is_asked_by_fails_alone(do):
    closed, after = do("close", "nothing")
    assert "the world's process ended" in closed and after == "done"
