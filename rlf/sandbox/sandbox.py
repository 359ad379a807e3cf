"""`Sandbox`: runs what models write, contained, many calls at once.

    async with Sandbox(SandboxSpec(packages=("numpy",))) as sandbox:
        execution = await sandbox.run(Request("1 + 1"))

It owns one fork server and replaces it when it is gone. Every call comes to an `Execution`; what goes wrong in the
sandbox itself is `Outcome.INFRA`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from rlf.core.errors import RlfError
from rlf.core.process import usable_cores
from rlf.sandbox.execution import Execution, Request, SqlRequest
from rlf.sandbox.frames import python_question, sql_question
from rlf.sandbox.launch import Launch
from rlf.sandbox.packages import find_packages
from rlf.sandbox.remote import RemoteSandbox
from rlf.sandbox.sessions import Sessions
from rlf.sandbox.spec import Level, SandboxLimits, SandboxSpec
from rlf.sandbox.warm import candidates, strongest

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
