"""Runs the attacks on this machine and sees from outside what each achieved."""

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
from typing import ClassVar

from rlf.sandbox.attacks import ATTACKS, Attack
from rlf.sandbox.execution import Execution, Outcome, Request, SqlRequest
from rlf.sandbox.guest import processes
from rlf.sandbox.sandbox import Sandbox
from rlf.sandbox.spec import Level, LevelChoice, SandboxLimits, SandboxSpec

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
    outcome: Outcome
    wall_s: float
    escaped: tuple[str, ...]
    """What it achieved, or what was wrong afterwards; empty when it was contained."""
    JSON_PROPERTIES: ClassVar = ("contained",)

    @property
    def contained(self) -> bool:
        """Whether it achieved nothing and left nothing."""
        return not self.escaped


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
    if not attack.sql and execution.outcome is Outcome.OK and execution.value != "''":
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
        if following.outcome is Outcome.KILLED:
            following = await sandbox.run(Request("''"), session=session)
        await sandbox.end_session(session)
    if following.outcome is not Outcome.OK:
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
