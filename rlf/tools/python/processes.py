"""Python functions in processes of their own, which are killed when a call is given up: both ends.

The process (`main`) answers frames (`rlf.sandbox.guest.wire`) over a socket of its own: what a tool prints goes to
stderr. The first request says what to import.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pydantic import Field, ValidationError

from rlf.core import RlfError
from rlf.core.callables import load_callable, note_opened, opened_files
from rlf.core.clocks import within
from rlf.core.kinds import StrictModel
from rlf.processes.channel import Channel
from rlf.processes.child import describe_exit
from rlf.processes.forking import die_with
from rlf.processes.held import Child
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame, pack, read_frame, set_apart, write_all, write_head
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.outputs import to_output
from rlf.tools.python.functions import adapt
from rlf.tools.results import ToolFailure, failure_by
from rlf.types import Image, Outcome, ToolOutput

logger = logging.getLogger(__name__)

_REPLY = Bounds(64_000_000, 64_000_000)
"""Longest reply that is read: its JSON, and text and images together."""
_START_S = 60.0
_PING_S = 5.0
"""Time in which a process that waits for a call says that it does."""
_EXIT_S = 1.0
"""Time in which a process whose socket has closed has its exit code: part of the call's own."""
_KEPT = {"threads": "they cannot be stopped and may run during later calls"}
"""Leftovers that a process may keep and still serve."""
_RETIRED = "it cannot be restored, so each such process ends after its call"


class Leftover(NamedTuple):
    """One thing that a call changed in its process."""

    name: str
    is_reset: bool
    """Whether it is as it was before the call."""


class ProcessRuntime(ToolRuntime):
    """Calls a function in worker processes, one call at a time each. Workers are made when needed and kept."""

    isolation = "process"
    ends_when_cancelled = True

    def __init__(self, callable_name: str) -> None:
        self._callable = callable_name
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._reported: set[str] = set()
        """What calls leave in their process, by name: each is reported once."""

    async def open(self) -> None:
        """Starts a first worker. Raises RlfError when it cannot import the function."""
        try:
            self._idle.append(await self._start_worker())
        except BaseException:
            await self.close()
            raise

    async def make_ready(self, trajectory_id: str) -> None:
        """Has a worker that answers for the call that follows before anything else is awaited.

        The call's time has no part in its start, nor in finding out that the last one died or no longer runs.
        """
        while self._idle:
            worker = self._idle.pop()
            try:
                amiss = await worker.find_amiss()
            except BaseException:
                self._end_worker(worker)
                raise
            if not amiss:
                self._idle.append(worker)
                return
            self._end_worker(worker)
            logger.warning("%s: its process %s between two calls; another one is started", self._callable, amiss)
        try:
            self._idle.append(await self._start_worker())
        except (RlfError, OSError, ToolFailure) as fault:
            raise ToolFailure(Outcome.INFRA, f"the process of the tool cannot be started again: {fault}") from fault

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call; cancelling it kills its worker."""
        worker = self._idle.pop()
        try:
            reply = await worker.ask({"arguments": dict(arguments), "bounds": _REPLY})
        except BaseException:
            self._end_worker(worker)
            raise
        self._keep_worker(worker, reply.leftovers)
        note_opened(self._callable, reply.opened)
        return reply.output()

    async def close(self) -> None:
        """Kills every worker; none is left when this returns."""
        await asyncio.gather(*(worker.close() for worker in self._all))
        self._all.clear()

    def _keep_worker(self, worker: _Worker, leftovers: Sequence[Leftover]) -> None:
        """Has the worker serve again, unless a call changed something of its process that cannot be put back."""
        for leftover in leftovers:
            if leftover.name not in self._reported:
                self._reported.add(leftover.name)
                how = "restored after each call" if leftover.is_reset else _KEPT.get(leftover.name, _RETIRED)
                logger.warning("%s changes %s of its process: %s", self._callable, leftover.name, how)
        if all(leftover.is_reset or leftover.name in _KEPT for leftover in leftovers):
            self._idle.append(worker)
        else:
            self._end_worker(worker)

    async def _start_worker(self) -> _Worker:
        worker = _Worker()
        self._all = {known for known in self._all if not known.has_ended} | {worker}
        try:
            with within(_START_S):
                await worker.start(self._callable)
        except TimeoutError as fault:
            self._end_worker(worker)
            raise RlfError(f"{self._callable}: its process did not import it within {_START_S:g} s.") from fault
        except BaseException:
            self._end_worker(worker)
            raise
        return worker

    def _end_worker(self, worker: _Worker) -> None:
        worker.kill()
        logger.debug("worker %d of %s was ended", worker.pid, self._callable)


class _Worker:
    """One process, asked over its socket."""

    def __init__(self) -> None:
        # The tool's code has the keys of the environment, which it needs; what it prints is relayed without them.
        self._child = Child([sys.executable, "-u", "-m", "rlf.tools.python.processes"])
        self._channel = Channel(self._child.end, self.kill)
        self._channel.watch(self._child.pid)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and was waited for."""
        return self._child.has_ended

    async def start(self, callable_name: str) -> None:
        """Lets the process import the function. Raises RlfError."""
        reply = await self.ask({"path": sys.path, "callable": callable_name})
        if reply.fault is not None:
            raise RlfError(reply.fault)

    async def ask(self, message: dict[str, Any]) -> _Reply:
        """One message and its reply. Raises ToolFailure when the process ends instead."""
        try:
            return _Reply.of(await self._channel.answer(message, (), _REPLY))
        except BadFrame as fault:
            words = f"the process of the tool sent {fault}: code in it wrote to the socket by which it answers"
            raise ToolFailure(Outcome.INFRA, words) from fault
        except EOFError as fault:  # it ended, or closed the socket: then there is no exit code to wait for long
            how = describe_exit(await self._child.wait(_EXIT_S))
            raise ToolFailure(Outcome.INFRA, f"the process of the tool ended during the call ({how})") from fault

    async def find_amiss(self) -> str:
        """What is wrong with a process that should wait for a call: it died, or does not run; empty when nothing is."""
        if self._child.has_ended:
            return f"died ({describe_exit(self._child.exit_code)})"
        try:
            with within(_PING_S):
                await self.ask({})
        except TimeoutError:
            return f"did not answer within {_PING_S:g} s"
        except ToolFailure as failure:
            return f"failed ({failure.text})"
        return ""

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        self._channel.close()
        self._child.kill()

    async def close(self) -> None:
        """Ends it, and waits until it is gone."""
        self.kill()
        await self._child.wait_killed()


class _Reply(StrictModel):
    """What a worker answers: nothing to the start or the question whether it is there, unless something is wrong."""

    fault: str | None = None
    """Why the function cannot be imported."""
    outcome: Outcome = Outcome.OK
    text: str = ""
    """Of a failure; the text of a result comes beside the reply."""
    images: tuple[str, ...] | None = None
    """Types of the images beside it; None for a failure."""
    structured: Any = None
    usage: Mapping[str, float] = Field(default_factory=dict)
    leftovers: tuple[Leftover, ...] = ()
    opened: tuple[str, ...] = ()
    """Files that the function has read since the last reply."""
    blobs: tuple[bytes, ...] = ()
    """The text and the images."""

    @classmethod
    def of(cls, frame: Frame) -> _Reply:
        """Raises BadFrame."""
        try:
            reply = cls.model_validate({**frame.read(), "blobs": frame.blobs})
        except ValidationError as fault:
            raise BadFrame("something else than a reply") from fault
        if len(reply.blobs) != (0 if reply.images is None else 1 + len(reply.images)):
            raise BadFrame("a reply without all that belongs to it")
        return reply

    def output(self) -> ToolOutput:
        """The result of a call. Raises ToolFailure."""
        if self.images is None:
            raise ToolFailure(self.outcome, self.text)
        text, *images = self.blobs
        shown = tuple(Image(data, mime_type) for mime_type, data in zip(self.images, images, strict=True))
        is_error = self.outcome is Outcome.TOOL_ERROR
        try:
            return ToolOutput(text.decode("utf-8", "surrogatepass"), shown, self.structured, is_error, self.usage)
        except UnicodeDecodeError as fault:
            raise ToolFailure(Outcome.INFRA, "the process of the tool sent a text that is no UTF-8") from fault


REQUEST = Bounds(1 << 30)
_MAX_OPENED = 100
"""Files that one answer names; the next one names further ones."""


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
    state, num_opened = ProcessState(), 0
    while (frame := _receive(channel)) is not None:
        asked = frame.read()
        if "arguments" not in asked:  # it is asked whether it is there
            write_all(channel, pack(frame.number, {}))
            continue
        answer, blobs = _answer_call(function, asked["arguments"])
        opened = [path for _, path in opened_files(num_opened)[:_MAX_OPENED]]
        num_opened += len(opened)
        answer |= {"leftovers": state.restore(), "opened": opened}
        write_all(channel, _pack_answer(frame.number, answer, blobs, Bounds(*asked["bounds"])))


def _pack_answer(number: int, answer: dict[str, Any], blobs: list[bytes], bounds: Bounds) -> bytes:
    """The answer, or the failure of one that would not be read."""
    head = write_head(answer)
    if excess := bounds.excess(head, blobs):
        failure = {"outcome": Outcome.OUTPUT_REJECTED, "text": f"the tool returned {excess}"}
        return pack(number, failure | {name: answer[name] for name in ("leftovers", "opened")})
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
    except BaseException as fault:  # noqa: BLE001 - a tool may raise anything; the model reads what
        failure = failure_by(fault)
        return {"outcome": failure.outcome, "text": failure.text}, []
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
        running = [timer for timer in _TIMERS if any(signal.setitimer(timer, 0))]
        changed = [number for number, handler in self._handlers.items() if signal.getsignal(number) != handler]
        for number in changed:
            signal.signal(number, self._handlers[number])
        found = [
            ("a timer", True if running else None),
            ("signal handlers", True if changed else None),
            ("the working folder", self._restore_folder()),
            ("environment variables", self._restore_environment()),
            ("the file mode mask", os.umask(self._umask) != self._umask or None),
            *((f"the limit {name}", self._restore_limit(name)) for name in self._limits),
        ]
        leftovers = [Leftover(name, is_reset) for name, is_reset in found if is_reset is not None]
        return [*leftovers, *self._threads_left()]

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


if __name__ == "__main__":
    main()
