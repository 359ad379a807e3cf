"""A running fork server: starts sandboxed processes on rlf's order and reports their end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from rlf.sandbox.launch import Launch, LevelUnavailable, environment, link_packages
from rlf.sandbox.process import Exit, SandboxedProcess, exit_of
from rlf.sandbox.spec import SandboxLimits

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
"""Imports of large packages on a busy machine take their time."""
_CLOSE_TIMEOUT_S = 5.0
# SOCK_SEQPACKET keeps message borders; a longer packet would be cut silently.
_MAX_PACKET = 1 << 16
_LAST_CHARS = 300


class ServerGone(Exception):
    """The server has ended; what ran in it has ended with it."""


class ForkServer:
    """`await ForkServer.start(launch)`; `close()` ends it with all that it has started."""

    def __init__(self, launch: Launch, popen: subprocess.Popen[bytes], control: socket.socket, scratch: Path) -> None:
        self.launch = launch
        self.pid = popen.pid
        self._popen = popen
        self._control = control
        self.scratch = scratch
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, SandboxedProcess] = {}
        self._next = 0
        self._gone = ""
        self._loop.add_reader(control, self._read_packets)

    @classmethod
    async def start(cls, launch: Launch) -> ForkServer:
        """Starts one and waits until it is ready. Raises LevelUnavailable with the reason."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = Path(tempfile.mkdtemp(prefix="rlf-sandbox-"))
        with tempfile.TemporaryFile() as log, theirs:
            try:
                popen = _spawn_server(launch, theirs, scratch, log)
                theirs.close()
                await _send_settings(ours, launch, popen, scratch, log)
            except BaseException:
                ours.close()
                shutil.rmtree(scratch, ignore_errors=True)
                raise
        logger.info("sandbox server %d started at level %s", popen.pid, launch.level)
        return cls(launch, popen, ours, scratch)

    @property
    def alive(self) -> bool:
        """Whether it takes orders."""
        return not self._gone

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
        shutil.rmtree(self.scratch, ignore_errors=True)

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


def _spawn_server(launch: Launch, theirs: socket.socket, scratch: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = launch.command(theirs.fileno(), scratch)
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), pass_fds=(theirs.fileno(),)
    )


async def _send_settings(
    control: socket.socket, launch: Launch, popen: subprocess.Popen[bytes], scratch: Path, log: IO[bytes]
) -> None:
    """Sends the settings and waits for the server to say that it is ready."""
    control.setblocking(False)
    if launch.level is not launch.level.NAMESPACES:
        link_packages(launch.packages, scratch)
    ready = b""
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
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
