"""A fork server that is there when it is needed, at the strongest level that a machine offers; calls of one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.sandbox.execution import Execution, Outcome
from rlf.sandbox.fork_server import ForkServer, ServerGone
from rlf.sandbox.frames import Question
from rlf.sandbox.guest import landlock
from rlf.sandbox.launch import INSTALL_BUBBLEWRAP, Launch, LevelUnavailable
from rlf.sandbox.packages import Packages
from rlf.sandbox.proof import prove
from rlf.sandbox.spec import Level, LevelChoice, LevelReport, SandboxLimits, SandboxSpec
from rlf.sandbox.verdict import judge

_BY_STRENGTH = (Level.NAMESPACES, Level.LANDLOCK, Level.PROCESS)
_PROGRAM_GRACE_S = 1.0
"""Time in which a program whose test has failed counts as ended from outside."""


class WarmServer:
    """Starts its fork server at the first need and another one when that is gone."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._server: ForkServer | None = None
        self._lock = asyncio.Lock()
        """One server at a time: who finds none waits for the one that is being started."""

    @property
    def pid(self) -> int | None:
        """Of the server's outermost process; None when there is none."""
        return self._server.pid if self._server is not None and self._server.alive else None

    @property
    def scratch(self) -> Path:
        """The folder on the host of the server that was started last."""
        assert self._server is not None, "no server yet"
        return self._server.scratch

    async def get(self) -> ForkServer:
        """The server. Raises LevelUnavailable when none starts that contains what its level says."""
        async with self._lock:
            if self._server is not None and self._server.alive:
                return self._server
            if self._server is not None:
                await self._server.close()
            self._server = await proven_server(self.launch)
            return self._server

    async def once(self, question: Question, limits: SandboxLimits, *, peer: socket.socket | None = None) -> Execution:
        """Runs one request in a process of its own, which is gone at the end; it takes over `peer`."""
        try:
            server = await self.get()
            process = server.begin(limits, once=True, further=None if peer is None else peer.detach())
        except (ServerGone, LevelUnavailable) as fault:
            return Execution(Outcome.INFRA, error=str(fault), level=self.launch.level)
        try:
            answer = await process.ask(question, limits, once=True)
        finally:
            await process.finish()
        return judge(answer, limits, self.launch.level)

    async def test(self, test: Question, program: Question, limits: SandboxLimits) -> Execution:
        """Runs a test and its program in a process each; the result of the test, or of what prevented it."""
        one, other = socket.socketpair()
        with one, other:
            running = asyncio.ensure_future(self.once(program, limits, peer=one))
            try:
                tested = await self.once(test, limits, peer=other)
                if tested.outcome is not Outcome.OK:
                    await asyncio.wait((running,), timeout=_PROGRAM_GRACE_S)
            finally:
                if not running.done():
                    running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        programs = None if running.cancelled() else running.result()
        return programs if programs is not None and programs.outcome is Outcome.INFRA else tested

    async def close(self) -> None:
        """Ends the server and all that runs in it."""
        async with self._lock:
            if self._server is not None:
                await self._server.close()
                self._server = None


async def proven_server(launch: Launch) -> ForkServer:
    """A started server whose processes were seen to be held. Raises LevelUnavailable."""
    server = await ForkServer.start(launch)
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
