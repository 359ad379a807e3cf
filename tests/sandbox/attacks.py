"""Attacks of hostile code, and the levels that say they stop them.

The code of an attack evaluates to the text of what it achieved; `''` when nothing. What an attack does without saying
so is seen from outside. Codes find KEY_FILE, a file of the host's user with a secret in it,
FOLDER, its folder, PORT, where the host listens, and BYSTANDER, a process of that user with the secret in its
environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, thread_time

from rlf.sandbox.guest import server as processes
from rlf.sandbox.sandbox import Sandbox
from rlf.sandbox.spec import (
    Execution,
    Level,
    LevelChoice,
    Request,
    SandboxLimits,
    SandboxOutcome,
    SandboxSpec,
    SqlRequest,
)

_CONTAINED = frozenset({Level.NAMESPACES, Level.LANDLOCK})
_LIMITED = _CONTAINED | {Level.PROCESS}
_OK = frozenset({SandboxOutcome.OK})


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that hostile code tries."""

    name: str
    text: str
    """Python, or SQL where `sql`."""
    outcomes: frozenset[SandboxOutcome] = _OK
    """How it may end."""
    levels: frozenset[Level] = _CONTAINED
    """Those that say they stop it; at others it is never run."""
    wall_s: float = 20.0
    """Long for what ends by itself, so that a busy machine does not end it before it has tried."""
    sql: bool = False
    after: str | None = None
    """Python of a second call, which evaluates to what the first has left to it."""
    session: bool = False
    """Whether the second call is the next cell of the same session."""


_REFUSED = """
def tried(what, attempt, *arguments, **named):
    try:
        attempt(*arguments, **named)
    except (OSError, AttributeError, ValueError):
        return ""
    return what + " "
"""
_LIBC = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return "" if result == -1 else name + " "
"""


# The channel between a call and rlf is descriptor 3. `rlf.sandbox.guest.wire` describes a frame; its number is the
# request's, which hostile code finds in the frames of the code that serves it.
_CHANNEL = """
import json, os, struct, sys, time
def asked():
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("frame"), "number"):
        frame = frame.f_back
    return frame.f_locals["frame"].number
def send(head, body=b"", number=None, body_bytes=None):
    head = head if isinstance(head, bytes) else json.dumps(head).encode()
    number, body_bytes = asked() if number is None else number, len(body) if body_bytes is None else body_bytes
    data = memoryview(struct.pack("!QII", number, len(head), body_bytes) + head + body)
    while data:
        data = data[os.write(3, data):]
ok = {"outcome": "ok", "error": None, "value": "'forged'", "files": []}
"""


def _outcome_set(*outcomes: SandboxOutcome) -> frozenset[SandboxOutcome]:
    return frozenset(outcomes)


_TIMEOUT = _outcome_set(SandboxOutcome.TIMEOUT)
_PYTHON = (
    Attack("cpu loop", "while True: pass", _TIMEOUT, _LIMITED, wall_s=0.3),
    Attack(
        "ignored signals",
        "import signal\nfor number in set(signal.Signals) - {9, 19}:\n    signal.signal(number, signal.SIG_IGN)\n"
        "while True: pass",
        _TIMEOUT,
        _LIMITED,
        wall_s=0.3,
    ),
    Attack(
        "fork bomb",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        _TIMEOUT,
        wall_s=0.3,
    ),
    Attack(
        "thread bomb",
        "import threading, time\ntry:\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nexcept RuntimeError:\n"
        "    pass\n''",
    ),
    Attack(
        "memory bomb",
        "hoard = []\nwhile True:\n    hoard.append(bytearray(1 << 20))",
        _outcome_set(SandboxOutcome.MEMORY),
        _LIMITED,
    ),
    Attack(
        "memory bomb of many processes",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        hoard = bytearray(30 << 20)\n"
        "        time.sleep(60)\ntime.sleep(60)",
        _outcome_set(SandboxOutcome.MEMORY, SandboxOutcome.ERROR),
    ),
    Attack(
        "memory of no process",
        _REFUSED + _LIBC + "import os\ntried('memfd', os.memfd_create, 'x') + called('shmget', 0, 1 << 20, 0o1600)"
        " + called('msgget', 0, 0o1600)",
    ),
    Attack(
        "disk bomb",
        "number = 0\nwhile True:\n    number += 1\n    open(str(number), 'wb').write(bytes(1 << 20))",
        _outcome_set(SandboxOutcome.ERROR, SandboxOutcome.KILLED),
    ),
    Attack(
        "a bomb of empty files",
        "number = 0\nwhile True:\n    number += 1\n    open(str(number), 'wb').close()",
        _outcome_set(SandboxOutcome.ERROR, SandboxOutcome.KILLED),
    ),
    Attack("output bomb", "while True: print('x' * 1000)", _outcome_set(SandboxOutcome.OUTPUT_LIMIT), _LIMITED),
    Attack(
        "daemon",
        "import os, time\ntry:\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(600)\n        os._exit(0)\nexcept OSError:\n    pass\n''",
    ),
    Attack("kill(-1)", _REFUSED + "import os\ntried('', os.kill, -1, 9)\ntried('', os.kill, -1, 15)\n''"),
    Attack(
        "kill(parent) and others",
        _REFUSED + "import os\nfor victim in (os.getppid(), BYSTANDER, 0):\n    tried('', os.kill, victim, 9)\n"
        "tried('', os.killpg, BYSTANDER, 9)\n''",
        _outcome_set(SandboxOutcome.OK),
    ),
    Attack(
        "limits of others",
        _REFUSED + "import os, resource\n"
        "tried('prlimit', resource.prlimit, BYSTANDER, resource.RLIMIT_NOFILE, (1, 1))"
        " + tried('affinity', os.sched_setaffinity, BYSTANDER, {0})"
        " + tried('priority', os.setpriority, os.PRIO_PROCESS, BYSTANDER, 19)",
    ),
    Attack(
        "own limits",
        _REFUSED + "import resource\n''.join(tried(str(limit), resource.setrlimit, limit, (1 << 40, 1 << 40))"
        " for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE))",
        levels=_CONTAINED,
    ),
    Attack(
        "host environment",
        "import os\nfound = [str(dict(os.environ))]\n"
        "for pid in ('self', '1', '2', str(os.getppid()), str(BYSTANDER)):\n"
        "    for name in ('environ', 'cmdline', 'maps'):\n        try:\n"
        "            found.append(open(f'/proc/{pid}/{name}').read())\n"
        "        except OSError:\n            pass\n"
        "'/proc' if len(found) > 1 else 'RLF' if 'RLF_SECRET' in found[0] else ''",
    ),
    Attack(
        "keys and files of the host",
        "import os\nfound = ''\n"
        "for name in (KEY_FILE, '/etc/shadow', '/etc/passwd', '/etc/hostname', '/root/.bashrc'):\n"
        "    try:\n        found += open(name).read()\n    except OSError:\n        pass\n"
        "for name in (FOLDER, '/home', '/var', '/proc/1'):\n    try:\n        found += str(os.listdir(name))\n"
        "    except OSError:\n        pass\nfound[:200]",
    ),
    Attack(
        "changes of the host's files",
        _REFUSED + "import os\n"
        "for attempt in ((os.chmod, KEY_FILE, 0o777), (os.truncate, KEY_FILE, 0), (os.remove, KEY_FILE),\n"
        "        (os.utime, KEY_FILE, (1, 1)), (os.rename, KEY_FILE, 'here'), (os.link, KEY_FILE, 'here'),\n"
        "        (os.setxattr, KEY_FILE, 'user.x', b'x'), (open, KEY_FILE, 'a'), (os.mkdir, FOLDER + '/new')):\n"
        "    tried('', *attempt)\n''",
    ),
    Attack(
        "inherited descriptors",
        _REFUSED + "import os\n''.join(tried(str(number), os.fstat, number) for number in range(4, 1024))",
    ),
    Attack(
        "network",
        "import socket\nfound = ''\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n        try:\n"
        "            end = socket.socket(family, kind)\n            found += f'{family.name} '\n"
        "            end.connect(('127.0.0.1', PORT))\n        except OSError:\n            pass\nfound",
    ),
    Attack(
        "privileges",
        _LIBC + "called('unshare', 0x10000000) + called('unshare', 0x20000) + called('mount', b'x', b'/work',"
        " b'tmpfs', 0, 0)"
        " + called('umount2', b'/proc', 2) + called('chroot', b'/') + called('setns', 0, 0) + called('ptrace',"
        " 0, 0, 0, 0)"
        " + called('ptrace', 16, BYSTANDER, 0, 0)",
    ),
    Attack(
        "the user root",
        _REFUSED + "import os\ntried('setuid', os.setuid, 0) + tried('setgid', os.setgid, 0)"
        " + tried('groups', os.setgroups, [0]) + ('root' if 0 in os.getresuid() + os.getresgid() else '')",
        levels=_CONTAINED,
    ),
    Attack(
        "writing where a sibling reads",
        "import os\nfor place in ('/', '/tmp', '/dev/shm', '/dev', '/var/tmp', '/usr', '/packages', '/data', '/guest',"
        " os.getcwd(), os.path.dirname(os.getcwd())):\n"
        "    try:\n        open(place + '/rlf-mark', 'w').write('seen')\n    except OSError:\n        pass\n''",
        after="import os\n"
        "' '.join(place for place in ('/', '/tmp', '/dev/shm', '/dev', '/var/tmp', '/usr', '/packages',"
        " '/data', '/guest', os.getcwd(), os.path.dirname(os.getcwd())) if os.path.exists(place + '/rlf-mark'))",
    ),
    Attack("a link to a key as its file", "import os\nos.symlink(KEY_FILE, 'link')\n''"),
)
_KILLED = _outcome_set(SandboxOutcome.KILLED)
_WRONG_ANSWERS = {
    "a failure of the sandbox": "ok | {'outcome': 'infra'}",
    "no outcome": "{'value': 'x'}",
    "a list": "[1, 2]",
    "no JSON": "b'{'",
    "no text": "b'\\xff\\xfe'",
    "nothing": "b''",
    "deep nesting": "b'[' * 100_000",
    "half a character": 'b\'{"outcome": "ok", "value": "\\\\ud800"}\'',
    "a number as value": "ok | {'value': 5}",
    "an object as error": "ok | {'outcome': 'error', 'error': {'a': 1}}",
    "a number as files": "ok | {'files': 5}",
    "files that are not there": "ok | {'files': ['a', 'b']}",
    "files of other folders": "ok | {'files': ['../../x']}, struct.pack('!I', 1) + b'x'",
    "a file twice": "ok | {'files': ['x', 'x']}, struct.pack('!II', 0, 0)",
    "rows": "ok | {'columns': ['a'], 'rows': [[1]], 'truncated': False}",
    "a key too many": "ok | {'sizes': [-1, 1]}",
    "lengths beyond its end": "ok, struct.pack('!I', 1 << 31) + b'x'",
    "a length cut short": "ok, b'xx'",
    "a million empty parts": "ok, bytes(4_000_000)",
}
_CHANNEL_ATTACKS = (
    *(
        Attack(f"answer: {name}", f"{_CHANNEL}send({what})\nos._exit(0)", _KILLED, _LIMITED)
        for name, what in _WRONG_ANSWERS.items()
    ),
    Attack("answers without end", _CHANNEL + "while True:\n    send(ok)", _KILLED, _LIMITED),
    Attack("answers to nothing, without end", _CHANNEL + "while True:\n    send(ok, number=7)", _KILLED, _LIMITED),
    Attack(
        "an answer of 2 GB",
        _CHANNEL + "send(ok, number=asked(), body_bytes=2_000_000_000)\nwhile True:\n    os.write(3, bytes(1 << 20))",
        _KILLED,
        _LIMITED,
    ),
    Attack(
        "an answer of all that one may have",
        _CHANNEL + "send(ok, struct.pack('!I', 16 << 20) + bytes(16 << 20), body_bytes=(16 << 20) + 8)\n''",
        _KILLED,
        _LIMITED,
    ),
    Attack("an answer before the real one", _CHANNEL + "send(ok)\n''", _KILLED, _LIMITED),
    Attack("bytes that are no answer", _CHANNEL + "os.write(3, b'Loading model... 100%\\n')\n''", _KILLED, _LIMITED),
    Attack(
        "half an answer",
        _CHANNEL + "os.write(3, struct.pack('!QII', asked(), 500, 0) + b'{')\ntime.sleep(60)",
        _TIMEOUT,
        _LIMITED,
        wall_s=0.5,
    ),
    Attack(
        "a closed channel",
        "import os, time\nos.close(3)\ntime.sleep(60)",
        _KILLED | _TIMEOUT,
        _LIMITED,
        wall_s=0.5,
    ),
    Attack(
        "an answer ahead of the next cell",
        _CHANNEL + "send(ok | {'value': \"''\"})\nsend(ok)\n''",
        _KILLED | _OK,
        _LIMITED,
        after="''",
        session=True,
    ),
    Attack(
        "an answer from a thread of the last cell",
        _CHANNEL + "import threading\nlast = asked()\ndef late():\n    time.sleep(0.3)\n    send(ok, number=last)\n"
        "threading.Thread(target=late, daemon=True).start()\n''",
        _KILLED | _OK,
        _LIMITED,
        after="import time\ntime.sleep(0.6)\n''",
        session=True,
    ),
)
_ERROR = _outcome_set(SandboxOutcome.ERROR)
_RECURSIVE = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
_JOIN = "t a, t b, t c, t d, t e WHERE a.x + b.x + c.x > d.x + e.x"
_SQL = (
    Attack("SQL write", "INSERT INTO t VALUES (2)", _ERROR, sql=True),
    Attack("SQL drop", "DROP TABLE t", _ERROR, sql=True),
    Attack("SQL two statements", "SELECT 1; DELETE FROM t", _ERROR, sql=True),
    Attack("SQL ATTACH", "ATTACH DATABASE 'other.db' AS other", _ERROR, sql=True),
    Attack("SQL VACUUM INTO", "VACUUM INTO 'copy.db'", _ERROR, sql=True),
    Attack("SQL PRAGMA", "PRAGMA writable_schema = 1", _ERROR, sql=True),
    Attack("SQL load_extension", "SELECT load_extension('/work/x.so')", _ERROR, sql=True),
    Attack("SQL printf bomb", "SELECT printf('%.*c', 900000000, 'x')", _TIMEOUT, sql=True, wall_s=0.3),
    Attack(
        "SQL memory bomb", f"{_RECURSIVE} SELECT x FROM n ORDER BY -x", _outcome_set(SandboxOutcome.MEMORY), sql=True
    ),
    Attack("SQL endless rows", f"{_RECURSIVE} SELECT x FROM n", sql=True),
    Attack("SQL runaway join", f"SELECT count(*) FROM {_JOIN}", _TIMEOUT, sql=True, wall_s=0.3),
)
ATTACKS = (*_PYTHON, *_CHANNEL_ATTACKS, *_SQL)

# Runs the attacks on this machine and sees from outside what each achieved.

MAX_GROWTH_BYTES = 50 << 20
"""Memory of rlf and its server that an attack may leave behind, and of rlf that it may take for a moment."""
_MAX_STANDSTILL_S = 1.0
"""Processor time of rlf between two turns of its event loop: no deadline fires meanwhile."""
_SESSION = "attack"
_LIMITS = SandboxLimits(wall_s=20, cpu_s=20, memory_mb=64, processes=8, disk_mb=4, output_bytes=10_000)
_SETTLE_S = 5.0
"""Time that what was killed has to be gone."""
_SECRET_NAME = "RLF_SECRET"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Result of one attack."""

    attack: str
    level: Level
    outcome: SandboxOutcome
    wall_s: float
    escaped: tuple[str, ...]
    """What it achieved, or what was wrong afterwards; empty when it was contained."""


async def run_battery(level: Level, attacks: Sequence[Attack] = ATTACKS) -> AsyncIterator[AttackResult]:
    """Runs the attacks that a level says it stops, one after the other. Raises RlfError where it cannot be started."""
    spec = SandboxSpec(level=LevelChoice(level), limits=_LIMITS, allow_unsafe=level is Level.PROCESS)
    with _open_host() as host:
        async with Sandbox(spec, databases=[host.database]) as sandbox:
            await sandbox.run(Request("1"))
            for attack in attacks:
                if level in attack.levels:
                    yield await _try_attack(sandbox, host, attack)


@dataclass(frozen=True, slots=True)
class _Host:
    """The host as attacks find it."""

    secret: str
    folder: Path
    bystander: subprocess.Popen[bytes]
    listener: socket.socket

    @property
    def key_file(self) -> Path:
        return self.folder / "key"

    @property
    def database(self) -> Path:
        return self.folder / "database.sqlite"

    @property
    def facts(self) -> str:
        """The facts that attacks know, in Python."""
        names = {"KEY_FILE": str(self.key_file), "FOLDER": str(self.folder), "BYSTANDER": self.bystander.pid}
        names["PORT"] = self.listener.getsockname()[1]
        return "".join(f"{name} = {value!r}\n" for name, value in names.items())

    def state(self, sandbox: Sandbox) -> dict[str, object]:
        """The state that no attack may change."""
        key = self.key_file.stat() if self.key_file.exists() else None
        return {
            "the key file": key and (key.st_mode, key.st_mtime_ns, key.st_size, key.st_nlink),
            "its folder": sorted(path.name for path in self.folder.iterdir()),
            "the database": self.database.read_bytes(),
            "a process of the host": self.bystander.poll(),
            "mounts of the host": Path("/proc/self/mounts").read_bytes(),
            "the server": sandbox.server_pid,
            "processes of the sandbox": _list_processes(sandbox),
            "its working folders": sorted(path.name for path in sandbox.scratch.iterdir()),
        }


@contextmanager
def _open_host() -> Iterator[_Host]:
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="rlf-host-") as name, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        environment = {**os.environ, _SECRET_NAME: secret}
        command = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
        bystander = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        host = _Host(secret, Path(name), bystander, listener)
        host.key_file.write_text(secret)
        with closing(sqlite3.connect(host.database)) as connection:
            connection.execute("CREATE TABLE t (x INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(1000)])
            connection.commit()
        try:
            yield host
        finally:
            bystander.kill()
            bystander.wait()


async def _try_attack(sandbox: Sandbox, host: _Host, attack: Attack) -> AttackResult:
    before, memory = host.state(sandbox), _memory_bytes(sandbox)
    started = perf_counter()
    async with _watch_loop() as watched:
        execution = await _run_attack(sandbox, host, attack)
        wall_s = perf_counter() - started
        escaped = [*_check_execution(execution, host, attack), *await _check_next_call(sandbox, attack)]
    escaped += watched
    escaped += await _find_changes(sandbox, host, before)
    if (growth := _memory_bytes(sandbox) - memory) > MAX_GROWTH_BYTES:
        escaped.append(f"{growth >> 20} MiB of memory stay in use")
    return AttackResult(attack.name, sandbox.level, execution.outcome, wall_s, tuple(escaped))


@asynccontextmanager
async def _watch_loop() -> AsyncIterator[list[str]]:
    """Escapes that rlf's own event loop shows within the block: it stood still, or took memory for what came."""
    escaped: list[str] = []
    base, longest, most = processes.anonymous_bytes(os.getpid()), 0.0, 0

    async def watch() -> None:
        nonlocal longest, most
        turned = thread_time()
        while True:
            await asyncio.sleep(0.01)
            longest, turned = max(longest, thread_time() - turned), thread_time()
            most = max(most, processes.anonymous_bytes(os.getpid()) - base)

    watching = asyncio.create_task(watch())
    try:
        yield escaped
    finally:
        watching.cancel()
    if longest > _MAX_STANDSTILL_S:
        escaped.append(f"kept rlf's event loop for {longest:.1f} s")
    if most > MAX_GROWTH_BYTES:
        escaped.append(f"had rlf take {most >> 20} MiB of memory")


async def _run_attack(sandbox: Sandbox, host: _Host, attack: Attack) -> Execution:
    limits = _LIMITS.model_copy(update={"wall_s": attack.wall_s})
    if attack.sql:
        return await sandbox.sql(host.database, SqlRequest(attack.text, limits=limits))
    session = _SESSION if attack.session else None
    return await sandbox.run(Request(host.facts + attack.text, limits=limits, fetch=("*",)), session=session)


def _check_execution(execution: Execution, host: _Host, attack: Attack) -> Iterator[str]:
    """Escapes that the call itself shows."""
    if execution.outcome not in attack.outcomes:
        yield f"ended {execution.outcome}: {execution.error}"
    if not attack.sql and execution.outcome is SandboxOutcome.OK and execution.value != "''":
        yield f"achieved {execution.value}"
    if host.secret in repr(execution):
        yield "saw a secret of the host"
    try:
        connection, _ = host.listener.accept()
    except BlockingIOError:
        return
    connection.close()
    yield "reached a port of the host"


async def _check_next_call(sandbox: Sandbox, attack: Attack) -> list[str]:
    """Escapes that the next call finds; in a session, whose process may be gone, the one after it too."""
    session = _SESSION if attack.session else None
    following = await sandbox.run(Request(attack.after or "''"), session=session)
    if session is not None:
        if following.outcome is SandboxOutcome.KILLED:
            following = await sandbox.run(Request("''"), session=session)
        await sandbox.end_session(session)
    if following.outcome is not SandboxOutcome.OK:
        return [f"the next call ended {following.outcome}: {following.error}"]
    return [] if following.value == "''" else [f"the next call finds {following.value}"]


async def _find_changes(sandbox: Sandbox, host: _Host, before: dict[str, object]) -> list[str]:
    """Changes that stay."""
    deadline = perf_counter() + _SETTLE_S
    while (after := host.state(sandbox)) != before and perf_counter() < deadline:  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(0.05)
    return [f"changed {name}" for name in before if after[name] != before[name]]


def _list_processes(sandbox: Sandbox) -> list[int]:
    """Processes of the server and its calls, wherever they have gone: the scratch folder is their last word."""
    tag = str(sandbox.scratch).encode()
    return sorted(
        int(place.name)
        for place in Path("/proc").iterdir()
        if place.name.isdigit() and tag in _read_command_line(place)
    )


def _read_command_line(place: Path) -> bytes:
    try:
        return (place / "cmdline").read_bytes()
    except OSError:
        return b""  # it has just ended, or is another user's


def _memory_bytes(sandbox: Sandbox) -> int:
    return sum(processes.anonymous_bytes(pid) for pid in (os.getpid(), *_list_processes(sandbox)))
