"""`isolation: process`: calls that can be killed, and nothing that is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.python import processes
from rlf.types import Outcome, ToolCall, ToolResult

WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


def killable(declare: Any, processes: int = 1, **limits: Any) -> ToolDeclaration:
    target = {"processes": processes}
    return declare("in_process", WHAT, isolation="process", target=target, limits=limits)  # type: ignore[no-any-return]


async def ask(executor: Executor, what: str) -> ToolResult:
    return await executor.invoke(ToolCall("in_process", {"what": what}), trajectory_id="t")


def children() -> set[int]:
    """Processes whose parent is this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see what is left")


def test_a_worker_serves_call_after_call_and_is_gone_at_the_end(declare: Any) -> None:
    before = children()

    async def story() -> list[ToolResult]:
        async with Executor([killable(declare)]) as executor:
            return [await ask(executor, what) for what in ("pid", "pid", "big", "print", "raise", "pid")]

    first, second, big, printed, raised, last = asyncio.run(story())
    assert first.text == second.text == last.text != str(os.getpid())
    assert (first.outcome, first.isolation) == (Outcome.OK, "process")
    assert (big.size_bytes, printed.text) == (3_000_000, "quiet")
    assert (raised.outcome, raised.text) == (Outcome.TOOL_ERROR, "error: ZeroDivisionError: division by zero")
    assert children() <= before


def test_a_loop_that_never_ends_is_killed_at_the_deadline_and_replaced(declare: Any) -> None:
    async def story() -> None:
        async with Executor([killable(declare, timeout_s=2.5)]) as executor:
            pid = int((await ask(executor, "pid")).text)
            started = time.perf_counter()
            result = await ask(executor, "spin")
            assert result.outcome is Outcome.TIMEOUT
            assert time.perf_counter() - started < 4
            assert int((await ask(executor, "pid")).text) != pid
            assert not is_alive(pid)
            assert executor.num_abandoned == 0

    before = children()
    asyncio.run(story())
    assert children() <= before


def test_a_worker_that_ends_during_a_call_is_infrastructure_and_the_next_call_has_another(declare: Any) -> None:
    async def story() -> None:
        async with Executor([killable(declare)]) as executor:
            pid = int((await ask(executor, "pid")).text)
            call = asyncio.create_task(ask(executor, "spin"))
            await asyncio.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
            killed = await call
            assert (killed.outcome, killed.outcome.is_infrastructure) == (Outcome.INFRA, True)
            ended = await ask(executor, "exit")
            assert ended.outcome is Outcome.INFRA
            assert "the process of the tool ended during the call (exit code 3)" in ended.text
            assert (await ask(executor, "print")).text == "quiet"

    asyncio.run(story())


SLOW = """\
import os, resource, signal, threading, time

time.sleep(float(os.environ.get("RLF_TEST_IMPORT_S", "0")))
TOLD = []


def state():
    soft = {name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_NOFILE", "RLIMIT_CORE")}
    umask = os.umask(0o022)
    os.umask(umask)
    timer = signal.getitimer(signal.ITIMER_REAL)[0] > 0
    return repr([os.getcwd(), os.environ.get("RLF_TEST_LEFT"), soft, umask, timer, signal.getsignal(signal.SIGALRM)])


def work(what: str) -> str:
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave":
        os.chdir("/")
        os.environ["RLF_TEST_LEFT"] = "yes"
        os.environ.pop("HOME", None)
        os.umask(0o000)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 3600)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return state()
"""


def slow_to_import(tmp_path: Path, processes: int = 1, **limits: Any) -> ToolDeclaration:
    """A tool in a file of its own, which takes the seconds of RLF_TEST_IMPORT_S to import."""
    (tmp_path / "slow.py").write_text(SLOW)
    target = {"kind": "python", "callable": "slow.py:work", "isolation": "process", "processes": processes}
    mapping = {"name": "in_process", "description": "d", "inputSchema": WHAT, "target": target, "limits": limits}
    return ToolDeclaration.model_validate(mapping, context={"folder": tmp_path})


def test_the_start_of_a_worker_is_not_the_time_of_the_call_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(declaration: ToolDeclaration) -> list[ToolResult]:
        async with Executor([declaration]) as executor:
            asked = ["a", "die", "b", "c", "die", "d", "e", "f"]
            return await asyncio.gather(*(ask(executor, what) for what in asked))

    declaration = slow_to_import(tmp_path, processes=2, timeout_s=1)
    declaration.target.complaints(WHAT)  # imports it here, before that takes its time
    monkeypatch.setenv("RLF_TEST_IMPORT_S", "1.2")
    results = asyncio.run(story(declaration))
    dead = [result for result in results if result.outcome is Outcome.INFRA]
    assert [result.outcome for result in results if result not in dead] == [Outcome.OK] * 6
    assert len(dead) == 2 and all(result.outcome.is_infrastructure for result in dead)
    assert max(result.queue_s for result in results) > 1.2 > max(result.run_s for result in results)


def test_a_worker_that_cannot_start_again_is_infrastructure(tmp_path: Path) -> None:
    async def story(declaration: ToolDeclaration) -> list[ToolResult]:
        async with Executor([declaration]) as executor:
            results = [await ask(executor, "die")]
            (tmp_path / "slow.py").write_text("raise SystemError('no licence')")
            return [*results, await ask(executor, "a")]

    died, absent = asyncio.run(story(slow_to_import(tmp_path)))
    assert (died.outcome, absent.outcome) == (Outcome.INFRA, Outcome.INFRA)
    assert "no licence" in absent.text


def test_what_a_call_changes_of_its_process_is_put_back_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> list[ToolResult]:
        async with Executor([slow_to_import(tmp_path)]) as executor:
            return [await ask(executor, what) for what in ("look", "leave", "look", "leave", "look")]

    before, left, after, *_, last = [result.text for result in asyncio.run(story())]
    assert before == after == last != left
    reports = [record.getMessage() for record in caplog.records if "of its process" in record.getMessage()]
    for name in ("a timer", "signal handlers", "the working folder", "environment variables", "the file mode mask"):
        assert sum(f"changes {name} of its process: restored after each call" in line for line in reports) == 1
    for name in ("the limit RLIMIT_NOFILE", "the limit RLIMIT_CORE", "threads"):
        assert sum(f"changes {name} of its process" in line for line in reports) == 1


def test_what_a_killed_call_started_is_killed_with_it(declare: Any) -> None:
    async def story() -> int:
        async with Executor([killable(declare)]) as executor:
            return int((await ask(executor, "orphan")).text)

    pid = asyncio.run(story())
    deadline = time.perf_counter() + 5
    while is_alive(pid) and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)


def test_calls_beyond_the_processes_wait_for_one(declare: Any) -> None:
    async def story() -> set[str]:
        async with Executor([killable(declare, processes=2)]) as executor:
            results = await asyncio.gather(*(ask(executor, "pid") for _ in range(12)))
            assert {result.outcome for result in results} == {Outcome.OK}
            return {result.text for result in results}

    assert 1 <= len(asyncio.run(story())) <= 2


def test_an_async_function_runs_in_a_process_too(declare: Any, call_once: Any) -> None:
    result = call_once(declare("in_process_async", isolation="process"), query="here")
    assert result.outcome is Outcome.OK
    assert result.text.startswith("here in ")
    assert not result.text.endswith(str(os.getpid()))


def test_a_function_that_only_this_program_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(query: str) -> str:
        return query

    monkeypatch.setattr(sys.modules["__main__"], "own", own, raising=False)
    target = {"kind": "python", "callable": "__main__:own", "isolation": "process"}
    declaration = ToolDeclaration.model_validate({"name": "own", "description": "d", "target": target})
    with pytest.raises(RlfError, match="which no other process can import"):
        asyncio.run(Executor([declaration]).__aenter__())


CARELESS = """\
import os, re, stat, threading, time


def hang():
    time.sleep(0.2)
    re.match(r"(a+)+$", "a" * 60 + "b")  # without letting go of the interpreter


def work(what: str) -> str:
    if what == "write low":
        for number in range(3, 200):
            try:
                os.write(number, b"Loading model... 100%\\n")
            except OSError:
                pass
    if what == "write all":
        for number in range(3, 5000):
            try:
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    os.write(number, b"Loading model... 100%\\n")
            except OSError:
                pass
    if what == "close low":
        os.closerange(3, 200)
    if what == "close all":
        os.closerange(3, 100_000)
    if what == "die":
        if os.fork() == 0:  # it keeps the socket of its parent open
            os.setsid()
            time.sleep(20)
            os._exit(0)
        os._exit(3)
    if what == "huge":
        return "x" * 70_000_000
    if what == "hang later":
        threading.Thread(target=hang, daemon=True).start()
    return str(os.getpid())
"""


def careless(tmp_path: Path, **limits: Any) -> ToolDeclaration:
    (tmp_path / "careless.py").write_text(CARELESS)
    target = {"kind": "python", "callable": "careless.py:work", "isolation": "process", "processes": 1}
    mapping = {"name": "in_process", "description": "d", "inputSchema": WHAT, "target": target, "limits": limits}
    return ToolDeclaration.model_validate(mapping, context={"folder": tmp_path})


@pytest.mark.parametrize(
    ("what", "outcome", "words", "is_kept"),
    [
        ("write low", Outcome.OK, "", True),
        ("close low", Outcome.OK, "", True),
        ("write all", Outcome.INFRA, "code in it wrote to the socket by which it answers", False),
        ("close all", Outcome.INFRA, "the process of the tool ended during the call", False),
        ("die", Outcome.INFRA, "the process of the tool ended during the call (exit code 3)", False),
        ("huge", Outcome.OUTPUT_REJECTED, "the tool returned 70000000 bytes; at most 64000000 are read", True),
    ],
)
def test_what_a_tool_does_to_its_process_is_no_fault_of_the_model_and_the_next_call_is_fine(
    tmp_path: Path, what: str, outcome: Outcome, words: str, is_kept: bool
) -> None:
    async def story() -> None:
        async with Executor([careless(tmp_path, timeout_s=60)]) as executor:
            pid = (await ask(executor, "pid")).text
            started = time.perf_counter()
            result = await ask(executor, what)
            assert (result.outcome, words in result.text) == (outcome, True), result.text
            assert time.perf_counter() - started < 15
            after = await ask(executor, "pid")
            assert (after.outcome, after.text == pid) == (Outcome.OK, is_kept)

    asyncio.run(story())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_between_calls_is_replaced_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(processes, "_PING_S", 2.0)

    async def story() -> None:
        async with Executor([careless(tmp_path, timeout_s=20)]) as executor:
            pid = int((await ask(executor, "pid")).text)
            os.kill(pid, number)
            after = await ask(executor, "pid")
            assert after.outcome is Outcome.OK
            assert int(after.text) != pid
            assert not is_alive(pid)
            assert (await ask(executor, "pid")).text == after.text

    asyncio.run(story())


def test_a_worker_that_hangs_between_calls_is_replaced_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PING_S", 2.0)

    async def story() -> None:
        async with Executor([careless(tmp_path, timeout_s=20)]) as executor:
            pid = (await ask(executor, "hang later")).text
            await asyncio.sleep(1)
            after = await ask(executor, "pid")
            assert after.outcome is Outcome.OK
            assert after.text != pid

    asyncio.run(story())
