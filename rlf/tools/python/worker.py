"""The other end of `isolation: process`: a process that runs one function, call by call, and can be killed.

It answers frames (`rlf.sandbox.guest.wire`) over a socket of its own: what a tool prints goes to stderr. The first
request says what to import.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final

from rlf.core import RlfError
from rlf.core.callables import load_callable
from rlf.core.text import describe
from rlf.processes.forking import die_with
from rlf.sandbox.guest.wire import Bounds, Frame, pack, read_frame, set_apart, write_all, write_head
from rlf.tools.python.parameters import adapt
from rlf.tools.python.processes import Leftover
from rlf.tools.results import ToolFailure, outcome_of_fault, to_output
from rlf.types import Outcome

REQUEST = Bounds(1 << 30)


def main() -> None:
    """Serves the socket whose descriptor is the first argument until it is closed."""
    die_with(int(sys.argv[2]))
    channel = set_apart(int(sys.argv[1]))
    start = _receive(channel)
    if start is None:
        return
    asked = start.read()
    sys.path[:] = asked["path"]
    try:
        function = adapt(load_callable(asked["callable"]))
    except RlfError as fault:
        write_all(channel, pack(start.number, {"fault": str(fault)}))
        return
    write_all(channel, pack(start.number, {}))
    state = ProcessState()
    while (frame := _receive(channel)) is not None:
        asked = frame.read()
        if "arguments" not in asked:  # it is asked whether it is there
            write_all(channel, pack(frame.number, {}))
            continue
        answer, blobs = _answer_call(function, asked["arguments"])
        answer["leftovers"] = state.restore()
        write_all(channel, _pack_answer(frame.number, answer, blobs, Bounds(*asked["bounds"])))


def _pack_answer(number: int, answer: dict[str, Any], blobs: list[bytes], bounds: Bounds) -> bytes:
    """The answer, or the failure of one that would not be read."""
    head = write_head(answer)
    if excess := bounds.excess(head, blobs):
        failure = {"outcome": Outcome.OUTPUT_REJECTED, "text": f"the tool returned {excess}"}
        return pack(number, {**failure, "leftovers": answer["leftovers"]})
    return pack(number, head, blobs)


def _answer_call(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The answer, and beside it the text and the images."""
    try:
        value = function(**arguments)
        if inspect.iscoroutine(value):
            value, fault = asyncio.run(_settle(value))
            if fault is not None:
                raise fault
        output = to_output(value)
        blobs = [output.text.encode("utf-8", "surrogatepass"), *(image.data for image in output.images)]
        types = [image.mime_type for image in output.images]
        reply = {"images": types, "structured": output.structured, "usage": dict(output.usage)}
        json.dumps(reply)
    except ToolFailure as failure:
        return {"outcome": failure.outcome, "text": failure.text}, []
    except BaseException as fault:  # noqa: BLE001 - a tool may raise anything; the model reads what
        return {"outcome": outcome_of_fault(fault), "text": describe(fault)}, []
    return {"outcome": Outcome.TOOL_ERROR if output.is_error else Outcome.OK, **reply}, blobs


async def _settle(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a coroutine returns or raises. An exception with code of its own would keep the loop from ending."""
    try:
        return await coroutine, None
    except BaseException as fault:  # noqa: BLE001 - raised again outside of the loop
        return None, fault


def _receive(channel: int) -> Frame | None:
    """The next request; None at the end."""
    return read_frame(lambda size: os.read(channel, size), REQUEST)


_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS: Final = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


class ProcessState:
    """The state of this process at the time of making; for its main thread."""

    def __init__(self) -> None:
        self._folder = os.getcwd()  # noqa: PTH109 - compared as a text
        self._environment = dict(os.environ)
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._limits = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._threads = set(threading.enumerate())

    def restore(self) -> list[Leftover]:
        """Puts back what has changed, timers first, so that none goes off meanwhile. Returns what that was."""
        found = [
            ("a timer", _stop_timers()),
            ("signal handlers", self._restore_handlers()),
            ("the working folder", self._restore_folder()),
            ("environment variables", self._restore_environment()),
            ("the file mode mask", os.umask(self._umask) != self._umask or None),
            *((f"the limit {name}", self._restore_limit(name)) for name in self._limits),
        ]
        leftovers = [Leftover(name, is_reset) for name, is_reset in found if is_reset is not None]
        return [*leftovers, *self._threads_left()]

    def _restore_handlers(self) -> bool | None:
        changed = [number for number, handler in self._handlers.items() if signal.getsignal(number) != handler]
        for number in changed:
            signal.signal(number, self._handlers[number])
        return True if changed else None

    def _restore_folder(self) -> bool | None:
        with suppress(FileNotFoundError):
            if os.getcwd() == self._folder:  # noqa: PTH109 - compared as a text
                return None
        try:
            os.chdir(self._folder)
        except OSError:
            return False
        return True

    def _restore_environment(self) -> bool | None:
        if dict(os.environ) == self._environment:
            return None
        for name in set(os.environ) - set(self._environment):
            del os.environ[name]
        os.environ.update(self._environment)
        return True

    def _restore_limit(self, name: str) -> bool | None:
        number, limit = _LIMITS[name], self._limits[name]
        if resource.getrlimit(number) == limit:
            return None
        try:
            resource.setrlimit(number, limit)
        except (ValueError, OSError):  # a hard limit that was lowered stays so
            return False
        return True

    def _threads_left(self) -> Iterator[Leftover]:
        threads = set(threading.enumerate()) - self._threads
        self._threads |= threads
        if threads:
            yield Leftover("threads", is_reset=False)


def _stop_timers() -> bool | None:
    running = [timer for timer in _TIMERS if any(signal.setitimer(timer, 0))]
    return True if running else None


if __name__ == "__main__":
    main()
