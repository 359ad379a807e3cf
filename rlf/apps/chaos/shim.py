"""What a process of a run meets while a fault holds: Python loads a copy of this file first, as `sitecustomize`.

A file beside the copy that has the name of a fault makes it hold; each time that one strikes, the file `struck` says
so. It imports nothing of rlf, and what sends requests only where the process does.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.machinery
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).parent.absolute()
_JUMP_S = 3600.0
_SLOW_S = 1.0
_EVERY = 3
"""Of so many requests one meets the fault."""
_HANGING = 12
"""Requests after which none hangs any more: each that does is waited for up to its deadline, one after the other."""
_requests = 0


def _holds(fault: str) -> bool:
    return (_FOLDER / fault).exists()


def _note() -> None:
    (_FOLDER / "struck").touch()


def _is_struck(*faults: str) -> str:
    """The fault that a request meets; empty where none holds, or it is not its turn."""
    global _requests  # one count for all that the process asks
    found = next(filter(_holds, faults), "")
    _requests += bool(found)
    if not found or _requests % _EVERY or (found == "service hangs" and _requests > _HANGING):
        return ""
    _note()
    return found


def _patch_machine() -> None:
    now, now_ns, fsync = time.time, time.time_ns, os.fsync

    def jumped() -> float:
        return now() + (_JUMP_S if _holds("clock") else 0.0)

    def jumped_ns() -> int:
        return now_ns() + (int(_JUMP_S * 1e9) if _holds("clock") else 0)

    def failing(fd: Any) -> None:
        if _holds("slow disk"):
            _note()
            time.sleep(_SLOW_S)
        if _holds("disk errors"):
            _note()
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    time.time, time.time_ns, os.fsync = jumped, jumped_ns, failing


_AIOHTTP = ("aiohttp", "ClientConnectionError", "ServerDisconnectedError")


def _patch_requests(owner: Any, name: str, errors: tuple[str, str, str] = _AIOHTTP) -> None:
    """Args: name: what of it sends one request; errors: a package with its errors, refused and cut off."""
    send, (package, refused, cut) = getattr(owner, name), errors

    async def meet(*given: Any, **named: Any) -> Any:
        fault = _is_struck("service errors", "service hangs", "service drops")
        if fault == "service errors":
            raise getattr(sys.modules[package], refused)("connection refused (by rlf chaos)")
        if fault == "service drops":
            raise getattr(sys.modules[package], cut)("the server disconnected (by rlf chaos)")
        if fault == "service hangs":
            await asyncio.sleep(_JUMP_S)
        return await send(*given, **named)

    setattr(owner, name, meet)


def _spoil(data: bytes) -> bytes:
    return b"\xff{" + data[1::2] if data and _is_struck("service garbage") else data


def _patch_streams(streams: Any) -> None:
    readany = streams.StreamReader.readany

    async def spoil(self: Any) -> Any:
        return _spoil(await readany(self))

    streams.StreamReader.readany = spoil


def _patch_mcp(transport: Any) -> None:
    """What asks MCP servers over HTTP."""
    _patch_requests(transport.AsyncHTTPTransport, "handle_async_request", ("httpx2", "ConnectError", "ReadError"))
    parts = transport.AsyncResponseStream.__aiter__

    async def spoil(self: Any) -> AsyncIterator[bytes]:
        async for data in parts(self):
            yield _spoil(data)

    transport.AsyncResponseStream.__aiter__ = spoil


_PATCHES: dict[str, Callable[[Any], None]] = {
    "aiohttp.client": lambda client: _patch_requests(client.ClientSession, "_request"),
    "aiohttp.streams": _patch_streams,
    "httpx2._transports.default": _patch_mcp,
    "rlf.core.connections": lambda connections: _patch_requests(connections, "send_request"),
}


class _Finder:
    """Finds the modules that are patched, and patches each once it is loaded."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in _PATCHES else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            _PATCHES[name](module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]  # of this one loader
        return spec


if __name__ == "sitecustomize":  # not where rlf itself imports it
    _patch_machine()
    sys.meta_path.insert(0, _Finder)
