"""Tools that behave and tools that do not; tests name them as `toolbox.py:NAME`."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

RELEASE = threading.Event()
"""Set at the end of a test to let hung threads go."""
CALLS: list[str] = []
"""Every query that `record` and `flaky` saw."""


async def echo(query: str) -> str:
    return query


def echo_sync(query: str) -> str:
    return query


async def give(what: str) -> Any:
    return _GIFTS[what]()


def _circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


class _Word(str):
    def __str__(self) -> str:
        raise RuntimeError("not today")


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


_GIFTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "nan": lambda: float("nan"),
    "circular": _circular,
    "object": object,
    "binary": lambda: b"\xff\xfe\x00",
    "bytes": lambda: b"text",
    "nul": lambda: "a\0b",
    "surrogate": lambda: "a\ud800b",
    "pair": lambda: "\ud83d\ude00",
    "ansi": lambda: "\x1b[31mred\x1b[0m",
    "big": lambda: "x" * 50_000_000,
    "json": lambda: {"a": [1, 2.5, "é"]},
    "digits": lambda: 10**5000,
    "subclass": lambda: _Word("plain"),
    "deep": lambda: _deep(100_000),
    "coroutine": lambda: echo("never awaited"),
}


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


_ERRORS = {
    "value": ValueError("division by zero"),
    "exit": SystemExit(1),
    "interrupt": KeyboardInterrupt(),
    "stop": StopIteration(3),
    "cancelled": asyncio.CancelledError(),
    "generator_exit": GeneratorExit(),
    "unprintable": _Unprintable(),
    "huge": RuntimeError("y" * 1_000_000),
    "group": BaseExceptionGroup("several", [SystemExit(2), ValueError("inner")]),
}
ERROR_NAMES = tuple(_ERRORS)


async def fail(how: str) -> str:
    raise _ERRORS[how]


def fail_sync(how: str) -> str:
    raise _ERRORS[how]


async def unreachable(how: str) -> str:
    raise {"refused": ConnectionRefusedError("nobody listens"), "no_host": socket.gaierror("no such host")}[how]


async def hang(query: str = "") -> str:
    await asyncio.Event().wait()
    return "never"


async def swallow(query: str = "") -> str:
    while True:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            CALLS.append("swallowed")


async def cancel_itself(query: str = "") -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return "never"


def hang_sync(query: str = "") -> str:
    RELEASE.wait()
    return "late"


def spin(query: str = "") -> str:
    while not RELEASE.is_set():
        pass
    return "late"


async def wait_200_ms(query: str = "") -> str:
    await asyncio.sleep(0.2)
    return "done"


def wait_200_ms_sync(query: str = "") -> str:
    time.sleep(0.2)
    return "done"


async def record(query: str, options: dict[str, Any] | None = None) -> str:
    CALLS.append(query)
    await asyncio.sleep(0.01)
    return f"{query}: {len(CALLS)}"


async def flaky(query: str) -> str:
    CALLS.append(query)
    if len(CALLS) < 3:
        raise ConnectionError("try again")
    return "third time"


async def spoil(items: list[Any]) -> str:
    items.clear()
    return "spoilt"


async def slow_stop(query: str = "") -> str:
    try:
        await asyncio.Event().wait()
    finally:
        CALLS.append("cleaned")
    return "never"


async def repeat(query: str, limit: int = 1) -> str:
    return query * limit if limit < 10 else "many"
