"""What a call gives back, at each level; sessions; what happens when a process or the server is killed."""

import asyncio
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rlf.core import RlfError
from rlf.sandbox import Execution, Level, Request, Sandbox, SandboxLimits, SandboxOutcome, SandboxSpec, SqlRequest
from rlf.sandbox import fork_servers as warm
from rlf.sandbox.guest import seccomp
from rlf.sandbox.guest import server as processes
from rlf.sandbox.launch import LevelUnavailable, find_packages
from rlf.sandbox.spec import LevelChoice

from .machine import need, reports

LEVELS = (Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS)
each_level = pytest.mark.parametrize("level", LEVELS)
held = pytest.mark.parametrize("level", LEVELS[:2])


def spec(level, **keys):
    return SandboxSpec(level=LevelChoice(need(level)), allow_unsafe=level is Level.PROCESS, **keys)


def opened(level, play, **keys):
    """The result of an async function of a sandbox."""

    asked = spec(level, **keys)

    async def main():
        async with Sandbox(asked) as sandbox:
            return await play(sandbox)

    return asyncio.run(main())


class Shared:
    """A sandbox of each level, for tests of one call each; they start when they are first asked."""

    def __init__(self):
        self._runner = asyncio.Runner()
        self._sandboxes = {}

    def run(self, level, request) -> Execution:
        return self._runner.run(self._run(spec(level), request))

    async def _run(self, asked, request):
        if asked.level not in self._sandboxes:
            self._sandboxes[asked.level] = await Sandbox(asked).__aenter__()
        return await self._sandboxes[asked.level].run(request)

    def close(self):
        for sandbox in self._sandboxes.values():
            self._runner.run(sandbox.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def run():
    """What a call gives back that shares a sandbox with other calls."""
    shared = Shared()
    yield lambda level, source, **keys: shared.run(level, Request(source, **keys))
    shared.close()


@each_level
def test_a_call_gives_output_value_usage_and_its_level(level, run):
    execution = run(level, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n[1, 2] * 2")
    assert (execution.outcome, execution.error) == (SandboxOutcome.OK, None)
    assert (execution.stdout, execution.stderr, execution.value) == ("out\n", "err\n", "[1, 2, 1, 2]")
    assert execution.level is level
    assert execution.usage.wall_s > 0 and execution.usage.peak_memory_bytes > 2**20


@each_level
def test_files_go_in_and_out_and_stdin_is_read(level, run):
    source = "data = open('in/a.bin', 'rb').read()\nopen('b.txt', 'w').write(input())\nlen(data)"
    execution = run(level, source, files={"in/a.bin": b"\0\xff"}, stdin="line\nrest", fetch=("*.txt", "missing"))
    assert (execution.value, dict(execution.files)) == ("2", {"b.txt": b"line"})


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_a_files_name_stays_in_the_working_folder(name):
    async def play(sandbox):
        with pytest.raises(ValueError, match="expected one within the working folder"):
            await sandbox.run(Request("1", files={name: b""}))

    opened(Level.PROCESS, play)


def test_a_traceback_shows_the_models_lines_alone(run):
    execution = run(Level.PROCESS, "import json\ndef load():\n    return json.loads('{')\nload()")
    assert execution.outcome is SandboxOutcome.ERROR
    assert execution.error is not None
    assert 'File "<code>", line 4' in execution.error and "return json.loads('{')" in execution.error
    assert "decoder.py" not in execution.error and execution.error.endswith("(char 1)")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("1 +", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("'\\ud800'.encode()", "UnicodeEncodeError"),
        ("x = '\ud800'", "UnicodeEncodeError"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "<exception str() failed>"),
        ("class R:\n    def __repr__(self): raise KeyError('r')\nR()", "KeyError: 'r'"),
    ],
)
def test_an_error_is_reported(source, error, run):
    execution = run(Level.PROCESS, source)
    assert execution.outcome is SandboxOutcome.ERROR
    assert error in (execution.error or "")


def test_leaving_with_zero_is_a_good_end(run):
    assert run(Level.PROCESS, "print('x')\nexit(0)").outcome is SandboxOutcome.OK


@each_level
def test_what_was_written_before_the_time_was_up_is_kept(level, run):
    source = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    execution = run(level, source, limits=SandboxLimits(wall_s=1.5))
    assert (execution.outcome, execution.stdout) == (SandboxOutcome.TIMEOUT, "begun\n")
    assert execution.error == "not finished within 1.5 s"


def test_processor_time_is_limited_too(run):
    execution = run(Level.PROCESS, "while True: pass", limits=SandboxLimits(wall_s=60, cpu_s=1))
    assert (execution.outcome, execution.error) == (SandboxOutcome.TIMEOUT, "more than 1 s of processor time")


def test_output_beyond_what_is_kept_is_left_out_and_reported(run):
    execution = run(Level.PROCESS, "print('x' * 1500)", limits=SandboxLimits(output_bytes=1000))
    assert (execution.outcome, len(execution.stdout)) == (SandboxOutcome.OUTPUT_LIMIT, 1000)


def test_a_crash_is_reported_by_its_signal(run):
    execution = run(Level.PROCESS, "import ctypes\nctypes.string_at(0)")
    assert (execution.outcome, execution.error) == (SandboxOutcome.KILLED, "the process was ended by SIGSEGV")


@each_level
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGRTMIN, signal.SIGRTMIN + 1])
def test_no_signal_that_code_sends_itself_breaks_the_verdict_or_is_anothers_fault(number, level, run):
    execution = run(level, f"import os\nos.kill(os.getpid(), {int(number)})")
    assert execution.outcome in (SandboxOutcome.OK, SandboxOutcome.ERROR, SandboxOutcome.KILLED), execution


def test_random_numbers_and_sets_of_texts_are_the_same_in_every_call_and_server(run):
    source = "import random\nrandom.random(), {'a', 'b', 'c', 'd', 'e'}"
    value = run(Level.PROCESS, source).value
    assert value is not None and value == run(Level.PROCESS, source).value
    assert value == opened(Level.PROCESS, lambda sandbox: sandbox.run(Request(source))).value


def test_only_allowed_packages_can_be_imported():
    pytest.importorskip("numpy")
    source = (
        "import numpy\nfound = int(numpy.arange(4).sum())\ntry:\n    import pydantic\nexcept ImportError:\n    found\n"
    )
    source += "try:\n    import pydantic\n    found = 'pydantic'\nexcept ImportError:\n    pass\nfound"
    for level in (level for level in LEVELS if reports()[level].available):
        execution = opened(level, lambda sandbox: sandbox.run(Request(source)), packages=("numpy",))
        assert execution.value == "6", execution


def test_required_distributions_come_along_and_a_missing_one_is_named():
    pytest.importorskip("sympy")
    names = {path.name for path in find_packages(("sympy",)).entries}
    assert {"sympy", "mpmath"} <= names and "numpy" not in names
    assert find_packages(("sympy",)).imports == ("sympy",)
    with pytest.raises(RlfError, match="package 'no-such' is not installed"):
        find_packages(("no-such",))


@held
def test_a_program_starts_others_only_where_a_pid_namespace_ends_them(level, run):
    execution = run(level, "import subprocess\nsubprocess.run(['echo', 'hi'])")
    if level is Level.NAMESPACES:
        assert execution.stdout == "hi\n"
    else:
        assert "PermissionError" in (execution.error or "")


@each_level
def test_a_session_keeps_names_and_each_has_its_own(level):
    async def play(sandbox):
        await sandbox.run(Request("x = 1"), session="a")
        await sandbox.run(Request("x = 10"), session="b")
        cells = [sandbox.run(Request("x += 1\nx"), session=name) for name in ("a", "b", "a")]
        values = [execution.value for execution in await asyncio.gather(*cells)]
        alone = await sandbox.run(Request("x"))
        await sandbox.end_session("a")
        return values, alone.outcome, len(sandbox._sessions._open), await sandbox.run(Request("x"), session="a")

    values, alone, num_sessions, anew = opened(level, play)
    assert (values, alone, num_sessions, anew.outcome) == (
        ["2", "11", "3"],
        SandboxOutcome.ERROR,
        1,
        SandboxOutcome.ERROR,
    )
    assert anew.error.endswith("NameError: name 'x' is not defined")


def test_a_cell_that_is_killed_ends_its_session_and_says_so():
    async def play(sandbox):
        await sandbox.run(Request("x = 1"), session="a")
        hung = await sandbox.run(Request("while True: pass", limits=SandboxLimits(wall_s=0.5)), session="a")
        return hung, await sandbox.run(Request("x"), session="a")

    hung, anew = opened(Level.PROCESS, play)
    assert hung.outcome is SandboxOutcome.TIMEOUT and hung.error.endswith("state is gone; the next call starts fresh.")
    assert anew.outcome is SandboxOutcome.ERROR


def test_a_cell_whose_answer_is_none_ends_its_session_and_says_so():
    forge = """import json\njson.dumps = lambda *_, **__: '{"outcome": "infra"}'\n1"""

    async def play(sandbox):
        return [await sandbox.run(Request(source), session="a") for source in ("x = 1", forge, "2", "x")]

    _, forged, anew, gone = opened(Level.PROCESS, play)
    assert forged.outcome is SandboxOutcome.KILLED and forged.error.endswith(
        "state is gone; the next call starts fresh."
    )
    assert (anew.value, gone.outcome) == ("2", SandboxOutcome.ERROR)


def test_beyond_max_sessions_the_one_idle_longest_is_ended_and_told_by_name():
    async def play(sandbox):
        for name in ("a", "b", "a", "c"):
            await sandbox.run(Request("x = 1"), session=name)
        told = [await sandbox.run(Request("x"), session=name) for name in ("a", "b", "b")]
        return len(sandbox._sessions._open), told

    num_sessions, (kept, ended, anew) = opened(Level.PROCESS, play, max_sessions=2)
    assert (num_sessions, kept.value) == (2, "1")
    assert ended.outcome is SandboxOutcome.INFRA and "session 'b' was ended to make room" in ended.error
    assert anew.outcome is SandboxOutcome.ERROR


@held
def test_between_cells_a_session_does_nothing(level):
    source = "import threading\nn = 0\ndef count():\n    global n\n    while True: n += 1\n"
    source += "threading.Thread(target=count, daemon=True).start()"

    async def play(sandbox):
        await sandbox.run(Request(source), session="a")
        [pid] = [pid for pid in sandboxed(sandbox) if processes_state(pid) == "T"]
        await sandbox.run(Request("n"), session="a")
        return pid

    assert opened(level, play) > 0


def sandboxed(sandbox):
    """Processes of a sandbox, seen from the host, once the last order has been obeyed."""
    time.sleep(0.3)
    return processes.tree(sandbox.server_pid)


def processes_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@held
def test_a_call_killed_from_outside_is_infrastructures_fault_and_the_next_is_fine(level):
    async def play(sandbox):
        before = set(processes.tree(sandbox.server_pid))
        call = asyncio.create_task(sandbox.run(Request("import time\ntime.sleep(60)")))
        await asyncio.sleep(0.5)
        for pid in set(processes.tree(sandbox.server_pid)) - before:
            os.kill(pid, signal.SIGKILL)
        return await call, await sandbox.run(Request("1"))

    killed, following = opened(level, play)
    assert (killed.outcome, following.value) == (SandboxOutcome.INFRA, "1")


@each_level
def test_a_server_killed_from_outside_is_replaced_and_its_calls_are_infrastructures_fault(level):
    async def play(sandbox):
        await sandbox.run(Request("x = 1"), session="a")
        first = sandbox.server_pid
        call = asyncio.create_task(sandbox.run(Request("import time\ntime.sleep(60)")))
        await asyncio.sleep(0.5)
        os.kill(first, signal.SIGKILL)
        killed = await call
        lost = await sandbox.run(Request("x"), session="a")
        return killed, lost, await sandbox.run(Request("1")), first != sandbox.server_pid

    killed, lost, following, replaced = opened(level, play)
    assert (killed.outcome, lost.outcome, following.value, replaced) == (
        SandboxOutcome.INFRA,
        SandboxOutcome.INFRA,
        "1",
        True,
    )


def test_hung_calls_do_not_hold_up_others():
    async def play(sandbox):
        limits = SandboxLimits(wall_s=60)
        hung = [
            asyncio.create_task(sandbox.run(Request("import time\ntime.sleep(60)", limits=limits))) for _ in range(6)
        ]
        async with asyncio.timeout(30):
            values = [(await sandbox.run(Request(str(number)))).value for number in range(3)]
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        return values, sorted(sandboxed(sandbox))

    values, left = opened(Level.PROCESS, play)
    assert values == ["0", "1", "2"]
    assert len(left) == 1, "cancelled calls are killed"


def test_a_call_that_is_cancelled_twice_gives_its_descriptors_back():
    def num_descriptors():
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    async def play(sandbox):
        await sandbox.run(Request("1"))
        before = num_descriptors()
        hung = asyncio.create_task(sandbox.run(Request("import time\ntime.sleep(60)", limits=SandboxLimits(wall_s=60))))
        while num_descriptors() == before:  # noqa: ASYNC110 - nothing tells of the start
            await asyncio.sleep(0.01)
        hung.cancel()
        await asyncio.sleep(0)  # it begins to wait for its process's end
        hung.cancel()
        await asyncio.wait([hung])
        return before, num_descriptors()

    before, after = opened(Level.PROCESS, play)
    assert before == after


def test_closing_leaves_neither_process_nor_descriptor_nor_folder():
    def descriptors():
        return sorted(path.name for path in Path("/proc/self/fd").iterdir())

    asked = spec(Level.PROCESS)

    async def main():
        before = descriptors()
        async with Sandbox(asked) as sandbox:
            await sandbox.run(Request("1"), session="a")
            await sandbox.run(Request("1"))
            pid, scratch = sandbox.server_pid, sandbox.scratch
        return before == descriptors(), pid, scratch

    same, pid, scratch = asyncio.run(main())
    assert same and not Path(f"/proc/{pid}").exists() and not scratch.exists()


def test_process_is_refused_unless_it_is_asked_for_as_unsafe(monkeypatch):
    with pytest.raises(ValueError, match="allow_unsafe: true"):
        SandboxSpec(level=LevelChoice.PROCESS)

    async def refused(launch):
        raise LevelUnavailable(launch.level, "not here")

    monkeypatch.setattr("rlf.sandbox.fork_servers.proven_server", refused)
    with pytest.raises(
        RlfError, match=r"(?s)level namespaces: not here.*level landlock: not here.*apt-get install bubblewrap"
    ):
        asyncio.run(Sandbox(SandboxSpec()).__aenter__())
    assert warm.candidates(SandboxSpec(allow_unsafe=True))[-1] is Level.PROCESS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("alone", [True, False])
def test_every_jump_of_a_filter_lands_within_it_and_it_ends_with_an_answer(machine, alone):
    programs = [seccomp.server_filter(alone=alone, machine=machine)]
    programs.append(seccomp.call_filter(7, alone=alone, machine=machine))
    for program in programs:
        instructions = list(struct.iter_unpack("HBBI", program))
        for place, (code, if_true, if_false, _) in enumerate(instructions):
            assert place + 1 + max(if_true, if_false) < len(instructions) or code == 0x06
        assert instructions[-1] == (0x06, 0, 0, 0x7FFF0000)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "towns.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE town (name TEXT, people INTEGER, crest BLOB)")
        connection.executemany("INSERT INTO town VALUES (?, ?, ?)", [("A", 3, b"xy"), ("B", None, None)])
        connection.commit()
    return path


@each_level
def test_a_query_gives_columns_and_rows(level, database):
    asked = spec(level)

    async def main():
        async with Sandbox(asked, databases=[database]) as sandbox:
            good = await sandbox.sql(database, SqlRequest("SELECT * FROM town ORDER BY name"))
            cut = await sandbox.sql(database, SqlRequest("SELECT name FROM town", max_rows=1))
            schema = await sandbox.sql(database, SqlRequest("PRAGMA table_info(town)"))
            bad = await sandbox.sql(database, SqlRequest("SELECT nam FROM town"))
            written = await sandbox.sql(database, SqlRequest("DELETE FROM town"))
            return good, cut, schema, bad, written

    good, cut, schema, bad, written = asyncio.run(main())
    assert good.table.columns == ("name", "people", "crest")
    assert good.table.rows == (("A", 3, "<2 bytes>"), ("B", None, None))
    assert (len(cut.table.rows), cut.table.truncated, good.table.truncated) == (1, True, False)
    assert [row[1] for row in schema.table.rows] == ["name", "people", "crest"]
    assert (bad.outcome, bad.error) == (SandboxOutcome.ERROR, "no such column: nam")
    assert "the database may only be read" in written.error


@each_level
def test_figures_that_are_open_at_the_end_come_back_as_png(level):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: figures are NOT tested")
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\n1"
    execution = opened(level, lambda sandbox: sandbox.run(Request(source)), packages=("matplotlib",))
    assert [image[:4] for image in execution.images] == [b"\x89PNG", b"\x89PNG"]


def test_what_shows_that_calls_are_contained_runs_where_python_can_make_namespaces(tmp_path):
    """Python 3.12 and later have `os.unshare`, which wants to know what for."""
    unshare = """
import os
def unshare(flags):
    assert flags == 0x10000000
    raise PermissionError
os.unshare, os.CLONE_NEWUSER = unshare, 0x10000000
"""
    source = f"{unshare}{warm._CONTAINED}print(faults)"
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "sockets can be made" in done.stdout and "namespaces" not in done.stdout


def test_what_a_package_writes_when_it_is_imported_is_not_seen_by_calls():
    async def play(sandbox):
        return await sandbox.run(
            Request("import os\nos.listdir(os.environ['HOME']), os.getcwd() == os.environ['HOME']")
        )

    assert opened(Level.NAMESPACES, play).value == "([], True)"
