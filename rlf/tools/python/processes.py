"""Python functions in processes of their own, which are killed when a call is given up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple

from pydantic import Field, ValidationError

from rlf.core import RlfError
from rlf.core.kinds import StrictModel
from rlf.core.redact import Redactor
from rlf.sandbox.channel import Channel
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome, ToolOutput

# State of a worker process that a call may change: restored after each call, or reported where it cannot be.

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS: Final = {name: number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


class Leftover(NamedTuple):
    """One thing that a call changed in its process."""

    name: str
    is_reset: bool
    """Whether it is as it was before the call."""


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


logger = logging.getLogger(__name__)

_REPLY = Bounds(64_000_000, 64_000_000)
"""Longest reply that is read: its JSON, and text and images together."""
_START_S = 60.0
_PING_S = 5.0
"""Time in which a process that waits for a call says that it does."""
_END_S = 2.0
_EXIT_S = 1.0
"""Time in which a process whose socket has closed has its exit code: part of the call's own."""
_MAX_LINE_BYTES = 1 << 20
_KEPT = {"threads": "they cannot be stopped and may run during later calls"}
"""Leftovers that a process may keep and still serve."""
_RETIRED = "it cannot be restored, so each such process ends after its call"


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
        self.num_restarts = 0

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
            self.num_restarts += 1
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
        return reply.output()

    async def close(self) -> None:
        """Kills every worker; none is left when this returns."""
        for worker in self._all:
            worker.kill()
        await asyncio.gather(*(worker.ended() for worker in self._all))
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
        self._all = {known for known in self._all if not known.is_gone} | {worker}
        try:
            await asyncio.wait_for(worker.start(self._callable), _START_S)
        except TimeoutError as fault:
            self._end_worker(worker)
            raise RlfError(f"{self._callable}: its process did not import it within {_START_S:g} s.") from fault
        except BaseException:
            self._end_worker(worker)
            raise
        return worker

    def _end_worker(self, worker: _Worker) -> None:
        worker.kill()
        logger.debug("worker %d of %s was ended", worker.process.pid, self._callable)


class _Worker:
    """One process and the socket to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-u", "-m", "rlf.tools.python.worker", str(theirs.fileno()), str(os.getpid())]
            # Its own session: Ctrl-C is this process's to handle. The tool's code has the keys that it needs.
            self.process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._channel = Channel(ours, self.kill)
        self._channel.watch(self.process.pid)
        redact = Redactor(os.environ).text
        self._relay = threading.Thread(target=relay_output, args=(self.process.stdout, redact), daemon=True)
        self._relay.start()

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended and was waited for."""
        return self.process.poll() is not None

    async def start(self, callable_name: str) -> None:
        """Lets the process import the function. Raises RlfError."""
        reply = await self.ask({"path": sys.path, "callable": callable_name})
        if reply.fault is not None:
            raise RlfError(reply.fault)

    async def ask(self, message: dict[str, Any]) -> _Reply:
        """One message and its reply. Raises ToolFailure when the process ends instead."""
        try:
            return _Reply.of(await (await self._channel.ask(message, (), _REPLY)))
        except BadFrame as fault:
            words = f"the process of the tool sent {fault}: code in it wrote to the socket by which it answers"
            raise ToolFailure(Outcome.INFRA, words) from fault
        except EOFError as fault:
            raise await self._describe_death() from fault

    async def find_amiss(self) -> str:
        """What is wrong with a process that should wait for a call: it died, or does not run; empty when nothing is."""
        if self.is_gone:
            return f"died ({_name_exit(self.process.returncode)})"
        try:
            async with asyncio.timeout(_PING_S):
                await self.ask({})
        except TimeoutError:
            return f"did not answer within {_PING_S:g} s"
        except ToolFailure as failure:
            return f"failed ({failure.text})"
        return ""

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def ended(self) -> int | None:
        """The exit code, waited for; None when it does not come."""
        code = await self._wait(_END_S)
        if code is not None:
            await asyncio.to_thread(self._relay.join, _END_S)
        return code

    async def _wait(self, limit_s: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self.process.wait, limit_s)
        return None

    async def _describe_death(self) -> ToolFailure:
        """The failure of a call whose process ended, or closed the socket by which it answers."""
        how = _name_exit(await self._wait(_EXIT_S))
        return ToolFailure(Outcome.INFRA, f"the process of the tool ended during the call ({how})")


def relay_output(printed: IO[bytes], redact: Callable[[str], str]) -> None:
    """Writes what a worker prints to stderr, line by line and without the secrets of the environment."""
    with printed:
        while line := printed.readline(_MAX_LINE_BYTES):
            with contextlib.suppress(OSError, ValueError):  # stderr may be closed; the worker must not wait for it
                sys.stderr.write(redact(line.decode(errors="replace")))


def _name_exit(code: int | None) -> str:
    return "no exit code" if code is None else f"exit code {code}" if code >= 0 else signal.Signals(-code).name


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
