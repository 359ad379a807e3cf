"""A running fork server: starts sandboxed processes on rlf's order and reports their end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from rlf.core.clocks import within
from rlf.core.errors import RlfError
from rlf.core.files import scratch
from rlf.processes.child import start_apart
from rlf.processes.held import Keeper
from rlf.sandbox.guest import confine as landlock
from rlf.sandbox.launch import (
    INSTALL_BUBBLEWRAP,
    GuestRequest,
    Launch,
    LevelUnavailable,
    Packages,
    environment,
    link_packages,
    python_question,
)
from rlf.sandbox.process import Exit, SandboxedProcess, exit_of, judge_answer
from rlf.sandbox.spec import (
    Execution,
    Level,
    LevelChoice,
    LevelReport,
    Request,
    SandboxLimits,
    SandboxOutcome,
    SandboxSpec,
)

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
"""Imports of large packages on a busy machine take their time."""
_CLOSE_TIMEOUT_S = 5.0
# SOCK_SEQPACKET keeps message borders; a longer packet would be cut silently.
_MAX_PACKET = 1 << 16
_LAST_CHARS = 300


class ServerGone(Exception):
    """The server has ended; what ran in it has ended with it."""


class SandboxForkServer:
    """`await ForkServer.start(launch)`; `close()` ends it with all that it has started."""

    def __init__(
        self, launch: Launch, popen: subprocess.Popen[bytes], control: socket.socket, folder: Path, resources: ExitStack
    ) -> None:
        self.launch = launch
        self.pid = popen.pid
        self._popen = popen
        self._control = control
        self.scratch = folder
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, SandboxedProcess] = {}
        self._next = 0
        self._gone = ""
        self._loop.add_reader(control, self._read_packets)

    @classmethod
    async def start(cls, launch: Launch) -> SandboxForkServer:
        """Starts one and waits until it is ready. Raises LevelUnavailable with the reason."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as log, theirs, ExitStack() as stack:
            stack.enter_context(ours)
            folder = stack.enter_context(scratch("rlf-sandbox"))
            command, ends = launch.command(theirs.fileno(), folder), [theirs.fileno()]
            popen = start_apart(command, stdout=log, stderr=log, env=environment(), pass_fds=ends)
            theirs.close()
            await _send_settings(ours, launch, popen, folder, log)
            logger.info("sandbox server %d started at level %s", popen.pid, launch.level)
            return cls(launch, popen, ours, folder, stack.pop_all())

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more orders."""
        return bool(self._gone)

    def begin(self, limits: SandboxLimits, *, once: bool, further: int | None = None) -> SandboxedProcess:
        """Starts a process, which takes over the descriptor `further`. Raises ServerGone."""
        self._next += 1
        number = self._next
        process = SandboxedProcess(number, lambda: self.order(number, "kill"), self.give_up, further)
        held_to = limits.model_dump(include={"memory_mb", "processes", "disk_mb", "cpu_s"})
        if not once:
            held_to["cpu_s"] = None
        order = {"do": "start", "id": number, "limits": held_to, "once": once}
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], process.theirs)
        except OSError as fault:
            process.close()
            self.give_up(f"the sandbox server accepts no orders: {fault}")
            raise ServerGone(self._gone) from fault
        finally:
            for descriptor in process.theirs:
                os.close(descriptor)
        self._processes[number] = process
        return process

    def order(self, number: int, what: str) -> None:
        """Sends `kill`, `pause` or `resume` for a process; one that has ended takes no notice."""
        if self._gone or number not in self._processes:
            return
        try:
            self._control.send(json.dumps({"do": what, "id": number}).encode())
        except OSError as fault:
            self.give_up(f"the sandbox server accepts no orders: {fault}")

    def give_up(self, why: str) -> None:
        """Ends the server at once; its processes end with it, as infrastructure's fault."""
        if self._gone:
            return
        logger.warning("sandbox server %d given up: %s", self.pid, why)
        self._mark_gone(why)
        self._popen.kill()
        self._end_all()

    async def close(self) -> None:
        """Ends the server and all that it has started, and waits until they are gone."""
        self._mark_gone("the sandbox was closed")
        try:
            await asyncio.to_thread(self._popen.wait, _CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            await asyncio.to_thread(self._popen.wait)
        self._end_all()
        self._resources.close()

    def _mark_gone(self, why: str) -> None:
        if not self._gone:
            self._gone = why
            self._loop.remove_reader(self._control)
            self._control.close()

    def _end_all(self) -> None:
        for process in self._processes.values():
            process.end(Exit(failed=self._gone))
        self._processes.clear()

    def _read_packets(self) -> None:
        while not self._gone:
            try:
                packet = self._control.recv(_MAX_PACKET)
            except BlockingIOError:
                return
            except OSError as fault:
                self.give_up(f"the sandbox server does not answer: {fault}")
                return
            if not packet:
                self.give_up("the sandbox server was ended from outside")
                return
            report: dict[str, Any] = json.loads(packet)
            process = self._processes.pop(report["id"], None)
            if process is not None:
                process.end(exit_of(report))


async def _send_settings(
    control: socket.socket, launch: Launch, popen: subprocess.Popen[bytes], scratch: Path, log: IO[bytes]
) -> None:
    """Sends the settings and waits for the server to say that it is ready."""
    control.setblocking(False)
    if launch.level is not launch.level.NAMESPACES:
        link_packages(launch.packages, scratch)
    ready = b""
    try:
        with within(_START_TIMEOUT_S):
            control.send(json.dumps(launch.settings(scratch)).encode())
            ready = await asyncio.get_running_loop().sock_recv(control, _MAX_PACKET)
    except (TimeoutError, OSError):
        logger.debug("sandbox server %d does not answer", popen.pid)
    finally:
        if not ready:
            popen.kill()
            await asyncio.to_thread(popen.wait)
    if not ready:
        log.seek(0)
        last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
        raise LevelUnavailable(launch.level, f"its server does not start: {last[-_LAST_CHARS:] or 'it says nothing'}")


# Before a server is used, one of its processes tries, harmlessly, what its level says it cannot do.
#
# A kernel that ignores a limit, a container that shares what it should not: better seen here than by hostile code.

# Low, so that the probe of the process limit needs few forks.
_PROCESSES = 4
_LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, processes=_PROCESSES, disk_mb=1)

_CONTAINED = """
import os, socket

def refused(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return True
    return False

faults = []
if not refused(socket.socket):
    faults.append("sockets can be made")
if not refused(open, "/etc/hostname") or not refused(os.listdir, os.path.expanduser("~root")):
    faults.append("the host's files can be read")
if hasattr(os, "unshare") and not refused(os.unshare, os.CLONE_NEWUSER):  # Python has it from 3.12 on
    faults.append("namespaces can be made")
open("own", "w").close()
"""
_NAMESPACES = """
import time

if os.getpid() != 1:
    faults.append("there is no pid namespace")
if os.listdir("/proc"):
    faults.append("/proc can be read")
if not refused(open, "/usr/.rlf", "w"):
    faults.append("the file system can be written to")
started = 0
try:
    while started <= limit:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        started += 1
except OSError:
    pass
if started >= limit:
    faults.append("the number of processes is not limited (needs Linux 5.14)")
"""
_LANDLOCK = """
if not refused(os.fork):
    faults.append("processes can be made")
if not refused(os.kill, os.getppid(), 0):
    faults.append("other processes can be signalled")
if not refused(os.listdir, "/proc"):
    faults.append("/proc can be read")
"""
_SOURCE = {
    Level.NAMESPACES: _CONTAINED + f"limit = {_PROCESSES}\n" + _NAMESPACES + "'; '.join(faults)",
    Level.LANDLOCK: _CONTAINED + _LANDLOCK + "'; '.join(faults)",
    Level.PROCESS: "''",
}


async def prove(server: SandboxForkServer) -> None:
    """Raises LevelUnavailable when a process of the server can do what its level denies."""
    level = server.launch.level
    try:
        process = server.begin(_LIMITS, once=True)
    except ServerGone as fault:
        raise LevelUnavailable(level, str(fault)) from fault
    try:
        answer = await process.ask(python_question(Request(_SOURCE[level]), _LIMITS), _LIMITS, once=True)
    finally:
        process.close()
    execution = judge_answer(answer, _LIMITS, level)
    if execution.outcome is not SandboxOutcome.OK:
        raise LevelUnavailable(level, f"its first process failed: {execution.error or execution.stderr}")
    if execution.value != "''":
        raise LevelUnavailable(level, f"it does not hold here: {execution.value}")


# A fork server that is there when it is needed, at the strongest level that a machine offers; calls of one process.

_BY_STRENGTH = (Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS)
_PROGRAM_GRACE_S = 1.0
"""Time in which a program whose test has failed counts as ended from outside."""


class WarmServer:
    """Starts its fork server at the first need and another one when that is gone."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._server = Keeper(lambda: proven_server(launch), f"the sandbox server at level {launch.level}")

    @property
    def pid(self) -> int | None:
        """Of the server's outermost process; None when there is none."""
        server = self._server.latest
        return None if server is None or server.has_ended else server.pid

    @property
    def scratch(self) -> Path:
        """The folder on the host of the server that was started last."""
        server = self._server.latest
        assert server is not None, "no server yet"
        return server.scratch

    async def get(self) -> SandboxForkServer:
        """The server. Raises LevelUnavailable when none starts that contains what its level says."""
        return await self._server.get()

    async def once(
        self, question: GuestRequest, limits: SandboxLimits, *, peer: socket.socket | None = None
    ) -> Execution:
        """Runs one request in a process of its own, which is gone at the end; it takes over `peer`."""
        try:
            server = await self.get()
            process = server.begin(limits, once=True, further=None if peer is None else peer.detach())
        except (ServerGone, LevelUnavailable) as fault:
            return Execution(SandboxOutcome.INFRA, error=str(fault), level=self.launch.level)
        try:
            answer = await process.ask(question, limits, once=True)
        finally:
            await process.finish()
        return judge_answer(answer, limits, self.launch.level)

    async def test(self, test: GuestRequest, program: GuestRequest, limits: SandboxLimits) -> Execution:
        """Runs a test and its program in a process each; the result of the test, or of what prevented it."""
        one, other = socket.socketpair()
        with one, other:
            running = asyncio.ensure_future(self.once(program, limits, peer=one))
            try:
                tested = await self.once(test, limits, peer=other)
                if tested.outcome is not SandboxOutcome.OK:
                    await asyncio.wait((running,), timeout=_PROGRAM_GRACE_S)
            finally:
                if not running.done():
                    running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        programs = None if running.cancelled() else running.result()
        return programs if programs is not None and programs.outcome is SandboxOutcome.INFRA else tested

    async def close(self) -> None:
        """Ends the server and all that runs in it."""
        await self._server.close()


async def proven_server(launch: Launch) -> SandboxForkServer:
    """A started server whose processes were seen to be held. Raises LevelUnavailable."""
    server = await SandboxForkServer.start(launch)
    try:
        await prove(server)
    except BaseException:
        await server.close()
        raise
    return server


def candidates(spec: SandboxSpec) -> tuple[Level, ...]:
    """The levels that a spec allows on this machine, strongest first."""
    if spec.level is not LevelChoice.AUTO:
        return (Level(spec.level),)
    return _BY_STRENGTH if spec.allow_unsafe else _BY_STRENGTH[:-1]


async def strongest(launches: Iterable[Launch]) -> WarmServer:
    """The first launch whose server starts and holds. Raises RlfError with every reason."""
    reasons = []
    for launch in launches:
        warm = WarmServer(launch)
        try:
            await warm.get()
        except LevelUnavailable as fault:
            reasons.append(str(fault))
        else:
            return warm
    advice = f"Run `{INSTALL_BUBBLEWRAP}`, or write `allow_unsafe: true` if the code is your own."
    raise RlfError("\n".join([*reasons, f"No sandbox level can contain model-written code here. {advice}"]))


async def probe() -> tuple[LevelReport, ...]:
    """The levels that this machine offers, strongest first; starts and ends a server of each."""
    return tuple([await _probe_level(level) for level in _BY_STRENGTH])


async def _probe_level(level: Level) -> LevelReport:
    try:
        server = await proven_server(Launch(level, Packages((), ()), ()))
    except LevelUnavailable as fault:
        return LevelReport(level, False, fault.why, fault.fix)
    await server.close()
    return LevelReport(level, True, _describe_level(level))


def _describe_level(level: Level) -> str:
    if level is Level.NAMESPACES:
        return "bubblewrap; own user, pid, mount and IPC namespaces, file system in memory and seccomp filter per call"
    if level is Level.LANDLOCK:
        return f"Landlock {landlock.abi()} and seccomp; one process per call, in a folder of its own"
    return "limits only; for your own code, with `allow_unsafe: true`"
