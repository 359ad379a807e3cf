"""The sessions with one server, shared by every declaration of an event loop that names it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rlf.core.identity import hash_json
from rlf.tools.mcp.connection import Connection
from rlf.tools.mcp.server import McpServer
from rlf.tools.shared import Shared


class Pool:
    """Sessions with one server. A trajectory keeps to one of them, so that a server that remembers is consistent."""

    def __init__(self, server: McpServer) -> None:
        self.connections = [Connection(server) for _ in range(server.sessions)]
        self._pinned: dict[str, Connection] = {}
        self._num_pinned = dict.fromkeys(self.connections, 0)

    def connection_for(self, trajectory_id: str) -> Connection:
        """The trajectory's connection: at its first call the one with the fewest trajectories."""
        found = self._pinned.get(trajectory_id)
        if found is None:
            found = min(self.connections, key=self._num_pinned.__getitem__)
            self._pinned[trajectory_id] = found
            self._num_pinned[found] += 1
        return found

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Forgets a trajectory; the first of the tools that share the pool does it, and notifies a server of rlf."""
        found = self._pinned.pop(trajectory_id, None)
        if found is not None:
            self._num_pinned[found] -= 1
            await found.report_end(trajectory_id)


def use_pool(server: McpServer) -> AbstractAsyncContextManager[Pool]:
    """The loop's pool of a server, every session of it started; they end with the last user.

    Raises:
        ToolFailure: UNREACHABLE.
    """
    return _POOLS.use(hash_json(server.model_dump(mode="json")), lambda: _open_pool(server))


@asynccontextmanager
async def _open_pool(server: McpServer) -> AsyncIterator[Pool]:
    pool = Pool(server)
    try:
        await asyncio.gather(*(connection.session() for connection in pool.connections))
        yield pool
    finally:
        await asyncio.gather(*(connection.close() for connection in pool.connections))


_POOLS = Shared[Pool]()
"""Those that are open, by everything that their server's declaration says."""
