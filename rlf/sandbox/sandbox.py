"""`Sandbox`: runs what models write, contained, many calls at once.

    async with Sandbox(SandboxSpec(packages=("numpy",))) as sandbox:
        execution = await sandbox.run(Request("1 + 1"))

It owns one fork server and replaces it when it is gone. Every call comes to an `Execution`; what goes wrong in the
sandbox itself is `Outcome.INFRA`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from rlf.core.clocks import within
from rlf.core.errors import RlfError
from rlf.core.process import usable_cores
from rlf.sandbox.fork_servers import SandboxForkServer, ServerGone, WarmServer, candidates, strongest
from rlf.sandbox.launch import GuestRequest, Launch, LevelUnavailable, find_packages, python_question, sql_question
from rlf.sandbox.process import GuestAnswer, SandboxedProcess, judge_answer
from rlf.sandbox.spec import (
    Execution,
    Level,
    Request,
    ResourceUsage,
    SandboxLimits,
    SandboxOutcome,
    SandboxSpec,
    SqlRequest,
)

_ERROR_CHARS = 500
_GRACE_S = 10.0
"""Time beside the call's own for the service to begin and to answer."""


class _RunResult(BaseModel):
    """The service's result of the program; keys that rlf does not read are left."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    """`Finished`, `Error` or `TimeLimitExceeded`."""
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class _Response(BaseModel):
    """The service's answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    """`Success`, `Failed` or `SandboxError`."""
    message: str = ""
    run_result: _RunResult | None = None
    files: dict[str, str] = {}
    """Content in base64 by name."""


class RemoteSandbox:
    """Runs Python at an HTTP service that speaks SandboxFusion's protocol: `async with RemoteSandbox(spec) as sandbox`.

    One POST to `/run_code` per call. A call whose answer does not come is never sent again: it may have run. The
    service keeps no sessions and has no value of the last expression.
    """

    level = Level.REMOTE

    def __init__(self, spec: SandboxSpec) -> None:
        assert spec.url is not None, "level remote without a url"
        self._url = spec.url.rstrip("/") + "/run_code"
        self._limits = spec.limits

    async def __aenter__(self) -> Self:
        """Opens a connection pool; the service is first asked at the first call."""
        from rlf.core.connections import CleanConnector, open_session

        self._client = open_session(CleanConnector())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def run(self, request: Request, *, session: str | None = None) -> Execution:
        """Runs Python once. Raises RlfError for a session, and for a program beside its test."""
        import aiohttp

        if session is not None:
            raise RlfError("sandbox: level `remote` keeps no sessions; write `session: false`")
        if request.program is not None:
            raise RlfError("sandbox: level `remote` runs one process a call; a program and its test need two")
        limits = request.limits or self._limits
        started = perf_counter()
        try:
            response = _Response.model_validate_json(await self._post_request(request, limits))
            execution = _make_execution(response, limits)
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as fault:
            error = f"{self._url}: {type(fault).__name__}: {fault}"
            execution = Execution(SandboxOutcome.INFRA, error=error[:_ERROR_CHARS], level=Level.REMOTE)
        return replace(execution, usage=ResourceUsage(wall_s=perf_counter() - started))

    async def end_session(self, session: str) -> None:
        """Holds nothing."""

    async def _post_request(self, request: Request, limits: SandboxLimits) -> bytes:
        """The answer's body. Raises what `run` reports as an infrastructure failure."""
        max_bytes = 2 * (limits.output_bytes + (limits.disk_mb << 20))
        body = bytearray()
        with within(limits.wall_s + _GRACE_S):
            async with self._client.post(self._url, json=_make_body(request, limits)) as answer:
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}")
                async for part in answer.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > max_bytes:
                        raise ValueError(f"an answer of more than {max_bytes} bytes")
        return bytes(body)


def _make_body(request: Request, limits: SandboxLimits) -> dict[str, Any]:
    return {
        "code": request.source,
        "language": "python",
        "compile_timeout": limits.wall_s,
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
        "stdin": request.stdin,
        "files": {name: base64.b64encode(content).decode() for name, content in request.files.items()},
        "fetch_files": list(request.fetch),
    }


def _make_execution(response: _Response, limits: SandboxLimits) -> Execution:
    """The execution that the service answers with. Raises ValueError where it says that the service itself failed."""
    ran = response.run_result
    if response.status == "SandboxError" or ran is None:
        raise ValueError(f"{response.status}: {response.message}")
    files = {name: base64.b64decode(content, validate=True) for name, content in response.files.items()}
    stdout, stderr = (
        (text or "").encode()[: limits.output_bytes].decode(errors="ignore") for text in (ran.stdout, ran.stderr)
    )
    outcome, error = _read_outcome(ran, limits)
    if outcome is SandboxOutcome.OK and len(ran.stdout or "") + len(ran.stderr or "") > limits.output_bytes:
        outcome, error = SandboxOutcome.OUTPUT_LIMIT, f"only the first {limits.output_bytes} bytes of output were kept"
    return Execution(outcome, stdout, stderr, error=error, files=files, level=Level.REMOTE)


def _read_outcome(ran: _RunResult, limits: SandboxLimits) -> tuple[SandboxOutcome, str | None]:
    if ran.status == "TimeLimitExceeded":
        return SandboxOutcome.TIMEOUT, f"not finished within {limits.wall_s:g} s"
    if ran.status == "Finished" and ran.return_code == 0:
        return SandboxOutcome.OK, None
    last = (ran.stderr or "").strip().rpartition("\n")[2]
    error = last or f"the program left with code {ran.return_code}"
    return (SandboxOutcome.MEMORY if last.startswith("MemoryError") else SandboxOutcome.ERROR), error


_STATE_IS_GONE = "The session's state is gone; the next call starts fresh."

logger = logging.getLogger(__name__)


class _Session:
    __slots__ = ("lock", "process", "server")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while a cell runs: one at a time, and none while it is being ended."""
        self.process: SandboxedProcess | None = None
        self.server: SandboxForkServer | None = None


class Sessions:
    """The sessions of one sandbox, least recently used first. Between cells their processes are stopped."""

    def __init__(self, warm: WarmServer, max_sessions: int) -> None:
        self._warm = warm
        self._max = max_sessions
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._evicted: set[str] = set()

    async def run(self, name: str, question: GuestRequest, limits: SandboxLimits) -> Execution:
        """Runs the next cell of a session, which begins with its first."""
        if name in self._evicted:
            self._evicted.remove(name)
            notice = f"session {name!r} was ended to make room: max_sessions is {self._max}; its state is gone"
            return Execution(SandboxOutcome.INFRA, error=notice, level=self._warm.launch.level)
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

    async def _run_cell(self, session: _Session, question: GuestRequest, limits: SandboxLimits) -> Execution:
        level = self._warm.launch.level
        if session.process is not None and not session.process.alive:
            return await self._judge_end(session, session.process.last_words(), limits)
        try:
            if session.process is None or session.server is None:
                session.server = await self._warm.get()
                session.process = session.server.begin(limits, once=False)
            process, server = session.process, session.server
        except (ServerGone, LevelUnavailable) as fault:
            return Execution(SandboxOutcome.INFRA, error=str(fault), level=level)
        server.order(process.number, "resume")
        try:
            answer = await process.ask(question, limits, once=False)
        except asyncio.CancelledError:
            await _stop_process(session)
            raise
        if answer.exit is None and answer.fault is None and not answer.timed_out and not answer.flooded:
            server.order(process.number, "pause")
            return judge_answer(answer, limits, level)
        return await self._judge_end(session, answer, limits)

    async def _judge_end(self, session: _Session, answer: GuestAnswer, limits: SandboxLimits) -> Execution:
        """The result of a cell after which there is no state: also of one that finds its process ended since the last.

        Else what a cell leaves running could end the process and so have the next cell's failure left out.
        """
        await _stop_process(session)
        execution = judge_answer(answer, limits, self._warm.launch.level)
        return replace(execution, error=f"{execution.error or 'the process has ended'}. {_STATE_IS_GONE}")


async def _end_session(session: _Session) -> None:
    if session.process is not None:
        await session.process.kill()
    async with session.lock:
        await _stop_process(session)


async def _stop_process(session: _Session) -> None:
    process, session.process = session.process, None
    if process is not None:
        await process.finish()


# Programs compute; more per core would only stretch each beyond its time limit.
_CALLS_PER_CORE = 4
_MIN_CALLS = 8
"""Calls that run at once: more than cores, so that hung ones do not hold up the rest."""


class Sandbox:
    """Runs Python and queries of SQLite files; see the module. One serves every call of a run."""

    def __init__(self, spec: SandboxSpec, *, databases: Sequence[Path] = ()) -> None:
        """`databases`: SQLite files that calls may read. Raises RlfError for a package that is not installed."""
        if spec.url is not None:
            raise RlfError("sandbox: level `remote` is a RemoteSandbox")
        self._spec = spec
        packages = find_packages(spec.packages)
        self._launches = [Launch(level, packages, tuple(databases)) for level in candidates(spec)]
        self._permits = asyncio.Semaphore(min(max(_CALLS_PER_CORE * usable_cores(), _MIN_CALLS), spec.max_sessions))

    async def __aenter__(self) -> Self:
        """Starts the server at the strongest level there is. Raises RlfError with every reason when none holds."""
        self._warm = await strongest(self._launches)
        self._sessions = Sessions(self._warm, self._spec.max_sessions)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends every session and the server; nothing is left."""
        await self._sessions.close()
        await self._warm.close()

    @property
    def limits(self) -> SandboxLimits:
        """The limits of a call whose request has none."""
        return self._spec.limits

    @property
    def level(self) -> Level:
        """How calls are contained."""
        return self._warm.launch.level

    @property
    def server_pid(self) -> int | None:
        """The server's outermost process; None while there is none."""
        return self._warm.pid

    @property
    def scratch(self) -> Path:
        """The server's folder on the host; the last word of the command of each of its processes."""
        return self._warm.scratch

    async def run(self, request: Request, *, session: str | None = None) -> Execution:
        """Runs Python: in a process of its own, or as the next cell of a session, which begins with its first.

        Waiting for other calls does not count as time of this one. Raises ValueError for a file's name that leaves
        the working folder.
        """
        limits = request.limits or self._spec.limits
        question = python_question(request, limits)
        async with self._permits:
            if request.program is not None:
                program = replace(request, source=request.program, files={}, fetch=(), stdin="")
                return await self._warm.test(question, python_question(program, limits, "program"), limits)
            if session is None:
                return await self._warm.once(question, limits)
            return await self._sessions.run(session, question, limits)

    async def end_session(self, session: str) -> None:
        """Ends a session and all that it has started; one that never began is fine."""
        await self._sessions.end(session)

    async def sql(self, database: Path, request: SqlRequest) -> Execution:
        """Runs one statement on a SQLite file, one of those that the sandbox was opened with."""
        limits = request.limits or self._spec.limits
        place = self._warm.launch.place(database)
        async with self._permits:
            return await self._warm.once(sql_question("sqlite", place, request, limits.wall_s), limits)


def open_sandbox(spec: SandboxSpec) -> Sandbox | RemoteSandbox:
    """The sandbox that a spec asks for, to be entered."""
    return RemoteSandbox(spec) if spec.url is not None else Sandbox(spec)
