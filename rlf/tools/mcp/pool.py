"""The sessions with one server, shared by every declaration of an event loop that names it."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from rlf.core.hashing import hash_json
from rlf.tools.mcp.connection import Connection
from rlf.tools.mcp.server import McpServer

_POOLS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Pool]] = WeakKeyDictionary()
"""Open pools by everything that their server's declaration says."""


class Pool:
    """Sessions with one server. A trajectory keeps to one of them, so that a server that remembers is consistent."""

    def __init__(self, server: McpServer) -> None:
        self.connections = [Connection(server) for _ in range(server.sessions)]
        self._pinned: dict[str, Connection] = {}
        self._num_pinned = dict.fromkeys(self.connections, 0)
        self._num_users = 0

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


async def acquire(server: McpServer) -> Pool:
    """The loop's pool of a server, every session of it started.

    Raises:
        ToolFailure: UNREACHABLE.
    """
    pools = _POOLS.setdefault(asyncio.get_running_loop(), {})
    pool = pools.setdefault(_server_key(server), Pool(server))
    pool._num_users += 1
    try:
        await asyncio.gather(*(connection.session() for connection in pool.connections))
    except BaseException:
        await release(server, pool)
        raise
    return pool


async def release(server: McpServer, pool: Pool) -> None:
    """Ends the sessions when no other user has them."""
    pool._num_users -= 1
    if pool._num_users == 0:
        del _POOLS[asyncio.get_running_loop()][_server_key(server)]
        await asyncio.gather(*(connection.close() for connection in pool.connections))


def _server_key(server: McpServer) -> str:
    return hash_json(server.model_dump(mode="json"))
