"""Statements of a PostgreSQL database, each in a process that is killed at its time."""

from __future__ import annotations

import asyncio
from typing import Self

from rlf.core.process import usable_cores
from rlf.sandbox.fork_servers import WarmServer
from rlf.sandbox.launch import Launch, find_packages, sql_question
from rlf.sandbox.spec import (
    Execution,
    Level,
    SandboxLimits,
    SqlRequest,
)

_DRIVER = ("sqlalchemy", "psycopg", "psycopg-binary")
# Its processes mostly wait for the database.
_CALLS_PER_CORE_POSTGRES = 8
_REPORTING_S = 1.0
"""Time beyond the database's own to report that its time was up."""


class PostgresReader:
    """Runs statements of one database, each in a process that is killed at its time.

    No code of a model runs here, only its SQL, in the database: what that may reach is up to the role of the URL, which
    should be one that may only read. The process needs the network, so it is held by limits alone and says level
    `process`.
    """

    level = Level.PROCESS

    def __init__(self, url: str, limits: SandboxLimits) -> None:
        """Raises RlfError where the driver is not installed (`pip install 'rlf[postgres]'`)."""
        self._url = url
        self._limits = limits
        self._warm = WarmServer(Launch(Level.PROCESS, find_packages(_DRIVER), ()))
        self._permits = asyncio.Semaphore(_CALLS_PER_CORE_POSTGRES * usable_cores())

    async def __aenter__(self) -> Self:
        """Starts the server; the database is first asked at the first call."""
        await self._warm.get()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._warm.close()

    async def sql(self, request: SqlRequest) -> Execution:
        """Runs one statement in a transaction that can only read."""
        limits = request.limits or self._limits
        question = sql_question("postgres", self._url, request, limits.wall_s)
        held_to = limits.model_copy(update={"wall_s": limits.wall_s + _REPORTING_S})
        async with self._permits:
            return await self._warm.once(question, held_to)
