"""Sessions: processes that keep their state from cell to cell, bounded in number."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import replace

from rlf.sandbox.execution import Execution, Outcome
from rlf.sandbox.fork_server import ForkServer, ServerGone
from rlf.sandbox.frames import Question
from rlf.sandbox.launch import LevelUnavailable
from rlf.sandbox.process import Answer, SandboxedProcess
from rlf.sandbox.spec import SandboxLimits
from rlf.sandbox.verdict import judge
from rlf.sandbox.warm import WarmServer

_STATE_IS_GONE = "The session's state is gone; the next call starts fresh."

logger = logging.getLogger(__name__)


class _Session:
    __slots__ = ("lock", "process", "server")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while a cell runs: one at a time, and none while it is being ended."""
        self.process: SandboxedProcess | None = None
        self.server: ForkServer | None = None


class Sessions:
    """The sessions of one sandbox, least recently used first. Between cells their processes are stopped."""

    def __init__(self, warm: WarmServer, max_sessions: int) -> None:
        self._warm = warm
        self._max = max_sessions
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._evicted: set[str] = set()

    async def run(self, name: str, question: Question, limits: SandboxLimits) -> Execution:
        """Runs the next cell of a session, which begins with its first."""
        if name in self._evicted:
            self._evicted.remove(name)
            notice = f"session {name!r} was ended to make room: max_sessions is {self._max}; its state is gone"
            return Execution(Outcome.INFRA, error=notice, level=self._warm.launch.level)
        await self._make_room(name)
        session = self._open.setdefault(name, _Session())
        self._open.move_to_end(name)
        async with session.lock:
            return await self._run_cell(session, question, limits)

    async def end(self, name: str) -> None:
        """Ends a session and all that it has started; one that never began is fine."""
        self._evicted.discard(name)
        session = self._open.pop(name, None)
        if session is not None:
            await _end_session(session)

    async def close(self) -> None:
        """Ends every session."""
        for name in list(self._open):
            await self.end(name)

    async def _make_room(self, name: str) -> None:
        while name not in self._open and len(self._open) >= self._max:
            idle = next((other for other, session in self._open.items() if not session.lock.locked()), None)
            assert idle is not None, f"{len(self._open)} sessions run at once, more than calls may"
            logger.warning("sandbox session %s ended to make room for %s", idle, name)
            self._evicted.add(idle)
            await _end_session(self._open.pop(idle))

    async def _run_cell(self, session: _Session, question: Question, limits: SandboxLimits) -> Execution:
        level = self._warm.launch.level
        if session.process is not None and not session.process.alive:
            return await self._judge_end(session, session.process.last_words(), limits)
        try:
            process, server = await self._find_process(session, limits)
        except (ServerGone, LevelUnavailable) as fault:
            return Execution(Outcome.INFRA, error=str(fault), level=level)
        server.order(process.number, "resume")
        try:
            answer = await process.ask(question, limits, once=False)
        except asyncio.CancelledError:
            await _stop_process(session)
            raise
        if answer.exit is None and answer.fault is None and not answer.timed_out and not answer.flooded:
            server.order(process.number, "pause")
            return judge(answer, limits, level)
        return await self._judge_end(session, answer, limits)

    async def _judge_end(self, session: _Session, answer: Answer, limits: SandboxLimits) -> Execution:
        """The result of a cell after which there is no state: also of one that finds its process ended since the last.

        Else what a cell leaves running could end the process and so have the next cell's failure left out.
        """
        await _stop_process(session)
        execution = judge(answer, limits, self._warm.launch.level)
        return replace(execution, error=f"{execution.error or 'the process has ended'}. {_STATE_IS_GONE}")

    async def _find_process(self, session: _Session, limits: SandboxLimits) -> tuple[SandboxedProcess, ForkServer]:
        if session.process is None or session.server is None:
            session.server = await self._warm.get()
            session.process = session.server.begin(limits, once=False)
        return session.process, session.server


async def _end_session(session: _Session) -> None:
    if session.process is not None:
        await session.process.kill()
    async with session.lock:
        await _stop_process(session)


async def _stop_process(session: _Session) -> None:
    process, session.process = session.process, None
    if process is not None:
        await process.finish()
