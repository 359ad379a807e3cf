"""Child processes: kept running, and given their time again where their parent was stopped meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlf.processes.child import describe_exit, run_to_end, supervised
from rlf.processes.held import Child, Keeper

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see what is left")


class Thing:
    def __init__(self):
        self.has_ended, self.is_closed = False, False

    async def close(self):
        self.has_ended = self.is_closed = True


class Maker:
    """Starts things, each once `may_start` is set; fails as often as it is asked to."""

    def __init__(self, num_failures=0):
        self.made, self.num_begun, self.num_failures, self.may_start = [], 0, num_failures, asyncio.Event()

    async def __call__(self):
        self.num_begun += 1
        await self.may_start.wait()
        if self.num_failures:
            self.num_failures -= 1
            raise OSError("not now")
        self.made.append(Thing())
        return self.made[-1]


def test_who_needs_a_kept_thing_has_the_one_that_runs_and_another_once_that_ended(caplog):
    async def go():
        maker = Maker()
        maker.may_start.set()
        keeper = Keeper(maker, "the thing")
        assert keeper.latest is None
        first = await keeper.get()
        assert await keeper.get() is first is keeper.latest and not caplog.messages
        first.has_ended = True
        second = await keeper.get()
        assert second is not first and first.is_closed and not second.is_closed
        assert caplog.messages == ["the thing ended; it is started again"]
        await keeper.close()
        assert second.is_closed and keeper.latest is None
        await keeper.close()

    asyncio.run(go())


def test_many_wait_for_one_start_which_none_who_gives_up_takes_from_the_others():
    async def go():
        maker = Maker()
        keeper = Keeper(maker, "the thing")
        waiting = [asyncio.create_task(keeper.get()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        maker.may_start.set()
        one, other = await asyncio.gather(*waiting[1:])
        assert one is other and maker.num_begun == 1
        await keeper.close()

    asyncio.run(go())


def test_a_start_that_failed_is_tried_again_by_the_next_who_asks():
    async def go():
        maker = Maker(num_failures=1)
        maker.may_start.set()
        keeper = Keeper(maker, "the thing")
        with pytest.raises(OSError, match="not now"):
            await keeper.get()
        assert keeper.latest is None
        assert await keeper.get() is maker.made[0] and maker.num_begun == 2
        await keeper.close()

    asyncio.run(go())


def test_closing_ends_a_start_that_is_under_way():
    async def go():
        maker = Maker()
        keeper = Keeper(maker, "the thing")
        waiting = asyncio.create_task(keeper.get())
        await asyncio.sleep(0)
        await keeper.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not maker.made

    asyncio.run(go())


SHOW = """
import os, socket, sys
own = int(sys.argv[1])
channel = socket.socket(fileno=own)
found = [int(name) for name in os.listdir("/proc/self/fd")]
open_ = [number for number in found if os.path.exists(f"/proc/self/fd/{number}")]
channel.sendall(repr(sorted(set(open_) - {own})).encode())
channel.recv(1)
"""


@linux
def test_a_child_has_its_streams_and_its_socket_alone_and_its_group_ends_with_it():
    async def go():
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        child = Child([sys.executable, "-c", SHOW])
        try:
            found = await asyncio.to_thread(child.end.recv, 1000)
            assert found == b"[0, 1, 2]", found
            assert os.getsid(child.pid) == child.pid != os.getsid(0)
            assert not child.has_ended and await child.wait(0.01) is None
        finally:
            child.kill()
            await child.wait_killed()
            child.end.close()
            os.close(reading)
            os.close(writing)
        assert child.has_ended and describe_exit(child.exit_code) == "SIGKILL"

    asyncio.run(go())


@pytest.mark.parametrize("number", signal.valid_signals())
def test_every_signal_that_may_end_a_process_has_words(number):
    assert describe_exit(-number).removeprefix("SIG").removeprefix("signal ")


DAEMON = """
import subprocess, sys, time
daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(daemon.pid, flush=True)
time.sleep(600)
"""


@linux
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_supervised_command_ends_with_the_daemons_that_it_started(is_cancelled):
    daemons = []

    async def run():
        async with supervised([sys.executable, "-c", DAEMON], stdout=asyncio.subprocess.PIPE, stderr=None) as process:
            daemons.append(int(await process.stdout.readline()))
            if is_cancelled:
                asyncio.current_task().cancel()
                await asyncio.sleep(60)

    async def go():
        task = asyncio.create_task(run())
        await asyncio.wait([task])
        assert task.cancelled() is is_cancelled

    asyncio.run(go())
    (daemon,) = daemons
    assert not Path(f"/proc/{daemon}").exists()


@linux
def test_a_command_that_is_late_ends_with_what_it_started(tmp_path: Path):
    note = tmp_path / "pid"
    hangs = f"import os, time\nif os.fork() == 0: open({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_end([sys.executable, "-c", hangs], 2.0)
    started = int(note.read_text())
    for _ in range(200):  # killed, and reaped by whoever took it in
        state = Path(f"/proc/{started}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("it runs on")


def test_a_command_that_prints_something_has_its_words_and_its_code():
    done = run_to_end([sys.executable, "-c", "import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)"], 60.0)
    assert (done.stdout, done.stderr, done.returncode) == ("a\n", "b\n", 3)


SANDBOXED = """
import asyncio
from rlf.sandbox import LevelChoice, Request, Sandbox, SandboxLimits, SandboxSpec

async def main():
    limits = SandboxLimits(wall_s=3)
    async with Sandbox(SandboxSpec(level=LevelChoice.PROCESS, allow_unsafe=True, limits=limits)) as sandbox:
        await sandbox.run(Request("1"))
        call = asyncio.ensure_future(sandbox.run(Request("import time; time.sleep(1); print('done')")))
        await asyncio.sleep(0.2)
        print("called", flush=True)
        execution = await call
        print(execution.outcome, execution.stdout.strip())

asyncio.run(main())
"""


@linux
def test_sandboxed_code_is_not_timed_out_for_the_time_that_rlf_itself_was_stopped():
    with subprocess.Popen([sys.executable, "-c", SANDBOXED], stdout=subprocess.PIPE, text=True) as rlf:
        try:
            assert rlf.stdout.readline() == "called\n"
            os.kill(rlf.pid, signal.SIGSTOP)
            time.sleep(4.5)
            os.kill(rlf.pid, signal.SIGCONT)
            answer, _ = rlf.communicate(timeout=60)
        finally:
            rlf.kill()
    assert answer == "ok done\n"


WORLD = '''
import time


class World:
    """A world."""

    def say(self) -> str:
        """Says a word."""
        return "word"

    def think(self) -> str:
        """Takes a while."""
        time.sleep(1)
        return "thought"

    def score(self):
        return 1.0
'''
PROGRAM = """
import asyncio, os, signal, sys
from rlf.environments.processes import ClassProcesses
from rlf.processes import fork_server
from rlf.types import ToolCall
import worldly

fork_server._ORDER_S = 3.0

async def main():
    async with ClassProcesses("worldly:World", worldly.World, {}) as place:
        server = await place._server.get()
        os.kill(server.pid, signal.SIGSTOP)
        making = asyncio.ensure_future(place.make())
        await asyncio.sleep(0.3)
        print(server.pid, flush=True)
        world = await making
        print(await place.call(world, ToolCall("say", {})), await place._server.get() is server)
        await place.discard(world)

asyncio.run(main())
"""


@linux
def test_worlds_are_not_ended_for_the_time_that_rlf_itself_was_stopped(tmp_path: Path):
    (tmp_path / "worldly.py").write_text(WORLD)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *filter(None, sys.path)))}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=environment) as rlf:
        try:
            server = int(rlf.stdout.readline())
            os.kill(rlf.pid, signal.SIGSTOP)
            time.sleep(4.5)
            os.kill(rlf.pid, signal.SIGCONT)
            time.sleep(0.3)  # a deadline that counts the pause is over now
            os.kill(server, signal.SIGCONT)
            answer, _ = rlf.communicate(timeout=60)
        finally:
            rlf.kill()
    assert answer == "word True\n"


EPISODE = """
import asyncio
from rlf.environments import EnvSpec, WorldPool
from rlf.types import Task, ToolCall

async def main():
    env = {"kind": "python", "callable": "worldly:World", "isolation": "process", "limits": {"episode_s": 6}}
    async with WorldPool(EnvSpec.model_validate(env), seed=0) as worlds:
        episode = worlds.open("t", Task("t", ()))
        await episode.reset()
        thinking = asyncio.ensure_future(episode.call(ToolCall("think", {})))
        await asyncio.sleep(0.2)
        print("called", flush=True)
        print((await thinking).text, (await episode.call(ToolCall("say", {}))).text)
        await episode.close()

asyncio.run(main())
"""


@linux
def test_a_world_has_its_episode_s_also_where_rlf_was_stopped_meanwhile(tmp_path: Path):
    (tmp_path / "worldly.py").write_text(WORLD)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *filter(None, sys.path)))}
    with subprocess.Popen([sys.executable, "-c", EPISODE], stdout=subprocess.PIPE, text=True, env=environment) as rlf:
        try:
            assert rlf.stdout.readline() == "called\n"
            os.kill(rlf.pid, signal.SIGSTOP)
            time.sleep(7.5)
            os.kill(rlf.pid, signal.SIGCONT)
            answer, _ = rlf.communicate(timeout=60)
        finally:
            rlf.kill()
    assert answer == "thought word\n"
