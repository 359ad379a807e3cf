"""Tools that behave and tools that do not; tests name them as `toolbox.py:NAME`."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome, ToolOutput

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


async def fail_then_hang(query: str = "") -> str:
    CALLS.append("called")
    if len(CALLS) == 1:
        raise ValueError("once")
    return await hang()


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


async def meet(query: str) -> str:
    """Returns when 128 calls have come."""
    CALLS.append(query)
    while len(CALLS) < 128:  # noqa: ASYNC110 - an event would be of one loop, and this module outlives it
        await asyncio.sleep(0.01)
    return "done"


def meet_sync(query: str) -> str:
    """The same, blocking its thread."""
    CALLS.append(query)
    while len(CALLS) < 128:
        time.sleep(0.01)
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


class Notes:
    """Keeps notes.

    What is kept stays from call to call.
    """

    def __init__(self) -> None:
        CALLS.append("made")
        self.kept: list[str] = []

    async def open(self) -> None:
        CALLS.append("opened")

    async def __call__(self, note: str) -> str:
        self.kept.append(note)
        await asyncio.sleep(0.01)
        return " ".join(self.kept)

    async def close(self) -> None:
        CALLS.append(f"closed with {len(self.kept)}")


class SlowNotes:
    """The same without `async`: its calls run on threads."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def __call__(self, note: str) -> str:
        before = len(self.kept)
        time.sleep(0.01)
        assert len(self.kept) == before, "two calls at once"
        self.kept.append(note)
        return f"{len(self.kept)} on {threading.current_thread().name != 'MainThread'}"

    def close(self) -> None:
        CALLS.append(f"closed with {len(self.kept)}")


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")

    def __call__(self) -> str:
        return "never"


def in_process(what: str) -> str:
    return {
        "pid": lambda: str(os.getpid()),
        "print": lambda: print("noise") or "quiet",  # type: ignore[func-returns-value]
        "exit": lambda: os._exit(3),  # type: ignore[dict-item,return-value]
        "raise": lambda: 1 / 0,  # type: ignore[dict-item,return-value]
        "spin": _spin_for_ever,  # type: ignore[dict-item]
        "orphan": lambda: str(subprocess.Popen(["sleep", "60"]).pid),
        "big": lambda: "x" * 3_000_000,
    }[what]()


def _spin_for_ever() -> None:
    while True:
        pass


async def in_process_async(query: str) -> str:
    await asyncio.sleep(0)
    return f"{query} in {os.getpid()}"


def _hold(seconds: float) -> None:
    time.sleep(seconds)  # out of sight of the check, which reads a coroutine's own source


async def block(query: str = "") -> str:
    _hold(0.9)
    return "at last"


async def picture(kind: str) -> ToolOutput:
    return ToolOutput("a picture", images=(PICTURES[kind],))


def _png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")


PICTURES = {
    "small": Image(_png(64, 48), "image/png"),
    "bomb": Image(_png(100_000, 100_000), "image/png"),
    "heavy": Image(_png(64, 48) + bytes(6_000_000), "image/png"),
    "lying": Image(_png(64, 48), "image/jpeg"),
    "invalid": Image(b"no picture at all", "image/png"),
}


async def structured(what: str) -> ToolOutput:
    return ToolOutput("text", structured={"right": {"n": 3}, "wrong": {"n": "three"}}[what])


async def leak(how: str) -> str:
    secret = os.environ["CANARY_API_KEY"]
    if how == "exception":
        raise ValueError(f"GET https://example.org/?key={secret} failed")
    return f"echo {secret}"


async def spend(query: str) -> ToolOutput:
    CALLS.append(query)
    return ToolOutput("spent", usage={"prompt_tokens": 30, "completion_tokens": 20, "cost_usd": 5})


async def later(query: str) -> str:
    CALLS.append(query)
    raise ToolFailure(Outcome.RATE_LIMITED, "come back", retry_after_s=float(query))


async def unsure(query: str) -> str:
    CALLS.append(query)
    raise ToolFailure(Outcome.UNKNOWN, "the connection broke after the request was sent")


async def leave(query: str) -> str:
    """A server that is none of a model."""
    raise ToolFailure(Outcome.GONE, "there is no model")


DEAD = [False]
"""Whether `depend` has nobody to talk to."""


async def depend(query: str) -> str:
    CALLS.append(query)
    if DEAD[0]:
        raise ConnectionRefusedError("nobody listens")
    return "alive"


async def hold_a_file(query: str) -> str:
    with open(os.devnull) as file:  # noqa: ASYNC230, PTH123 - a descriptor is what it is about
        await asyncio.sleep(0.02)
        return str(file.fileno() > 0)


async def take(seconds: float) -> str:
    """Takes so many seconds; below 0 it hangs, above 100 it fails.

    Args:
        seconds: how long.
    """
    if seconds > 100:
        raise ValueError("too long")
    await (asyncio.Event().wait() if seconds < 0 else asyncio.sleep(seconds))
    return "done"


class SlowToOpen:
    """Takes longer to open than a call of it may."""

    async def open(self) -> None:
        await asyncio.sleep(0.5)

    async def __call__(self) -> str:
        return "open"


class StatusFault(Exception):
    """As the errors of requests and httpx (`response`), or of aiohttp (`status`)."""

    def __init__(self, how: str, status: int) -> None:
        super().__init__(f"HTTP {status}")
        if how == "response":
            self.response = type("Response", (), {"status_code": status})()
        else:
            self.status = status


async def fail_with(how: str, status: int) -> str:
    raise StatusFault(how, status)


async def compute(cpu_s: float) -> str:
    """Uses the processor for so long, however long that takes."""
    _use_processor(cpu_s)
    return "computed"


def _use_processor(cpu_s: float) -> None:
    started = time.thread_time()
    while time.thread_time() - started < cpu_s:
        pass
