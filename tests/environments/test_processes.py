"""Worlds in processes of their own, by classes that mean harm."""

import asyncio
import os
import signal
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rlf.environments import EnvSpec, WorldPool
from rlf.environments.processes import ClassProcesses
from rlf.processes import fork_server
from rlf.processes.fork_server import ForkServer
from rlf.tools.results import ToolFailure
from rlf.types import Task, ToolCall


class Unreadable(Exception):
    """Can be pickled, and not be read from that."""

    def __init__(self, one, other):
        super().__init__(one)


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
        if what == "unreadable":
            return Unreadable(1, 2)
        if what == "close":
            os.closerange(3, 100_000)
        if what == "close low":
            os.closerange(3, 200)
        if what == "write":
            for number in range(3, 5000):
                with suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(number).st_mode):
                        os.write(number, b"Loading model... 100%")
        if what == "fork and die":
            if os.fork() == 0:  # it keeps the socket of its parent open
                os.setsid()
                time.sleep(20)
                os._exit(0)
            os._exit(3)
        if what == "huge":
            return "x" * 70_000_000
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
    monkeypatch.setattr(fork_server, "_ORDER_S", 0.5)
    assert do("stop", "nothing") == ["done", "done"]


def test_what_a_world_has_started_ends_with_it(do):
    (pid,) = do("start")
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(int(pid), 0)
            time.sleep(0.1)


def test_a_world_has_no_more_memory_than_it_is_given(do):
    broken, after = do("memory", "nothing", memory_mb=200)
    assert broken.startswith("world python: step: MemoryError (test_processes.py:") and after == "done"


def test_a_world_that_closes_what_it_is_asked_by_fails_alone(do):
    closed, after = do("close", "nothing")
    assert "the world's process ended" in closed and after == "done"


def test_what_a_world_does_to_its_process_by_mistake_is_its_own_failure_at_once(do):
    started = time.monotonic()
    written, died, huge, closed, after = do("write", "fork and die", "huge", "close low", "nothing")
    assert time.monotonic() - started < 15
    assert "code in it wrote to the socket by which it answers" in written
    assert "the world's process ended (exit code 3)" in died
    assert "at most 64000000 are read" in huge
    assert (closed, after) == ("done", "done")


def test_what_cannot_be_read_outside_of_its_process_is_a_failure_of_the_world_and_no_refusal(do):
    (unreadable,) = do("unreadable")
    assert unreadable.startswith("world python: step: the result of 'call do' cannot be read outside its process")


async def until(holds):
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never held")


def children(pid):
    """Processes that one has started, the dead among them."""
    stats = [stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists()]
    return sum(fields[1] == str(pid) for fields in stats)


def test_forks_that_nobody_waits_for_any_more_harm_no_world_and_leave_no_process():
    async def go():
        async with ClassProcesses(f"{__name__}:Harmful", Harmful, {}) as place:
            kept = await place.make()
            server = kept.home._server
            async with server._turn:
                given_up = [asyncio.create_task(place.make()) for _ in range(3)]
                await asyncio.sleep(0.05)
                for making in given_up:
                    making.cancel()
                await asyncio.wait(given_up, timeout=1)
                assert all(making.cancelled() for making in given_up)
            assert await place.call(kept, ToolCall("do", {"what": "nothing"})) == "done"
            await until(lambda: not server._ending)
            assert children(server.pid) == 1
            await place.discard(kept)
            assert children(server.pid) == 0 and not server.has_ended

    asyncio.run(go())


def test_a_slow_import_is_not_begun_again_by_each_world_that_gives_up(monkeypatch):
    begun = []
    start = ForkServer.start

    async def slow(server, what):
        begun.append(server)
        await asyncio.sleep(0.5)
        await start(server, what)

    async def go():
        async with ClassProcesses(f"{__name__}:Harmful", Harmful, {}) as place:
            monkeypatch.setattr(ForkServer, "start", slow)
            server = await place._server.get()
            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: server.has_ended)
            begun_by = []
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(place.make(), 0.1)
                begun_by.append(len(begun))
            await place.discard(await place.make())
            assert begun_by[-1] == len(begun) == 1

    asyncio.run(go())
