"""A child process as its parent holds it: heard, fed, waited for, killed; and kept running."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Generic, Protocol, TypeVar

from rlf.core.redact import Redactor
from rlf.processes.child import start_apart

logger = logging.getLogger(__name__)

_MAX_LINE_BYTES = 1 << 20
"""Longest line of output that is relayed in one piece."""

END_S = 2.0
"""Time in which a process that was killed is gone, and what it printed is read."""

PIPE_BYTES = 1 << 17
"""What is read of a pipe at once."""

_KEPT_BYTES = 2_000
"""Of what a process writes on stderr."""

_GRACE_S = 0.5
"""Time to end after stdin closed, and again after SIGTERM."""

_SETTLE_S = 0.1
"""Time in which what an ended process has written last is read, and its exit code has come."""


class Child:
    """A process in a session of its own, with one end of a socket.

    Its own session: Ctrl-C is the parent's to handle, and one signal reaches the process with all that it started.
    It inherits standard streams and its socket alone: a descriptor more would keep a socket of a sibling open, whose
    end is how that sibling learns that nobody needs it.
    """

    def __init__(
        self,
        command: Sequence[str],
        kind: int = socket.SOCK_STREAM,
        *,
        stdin: int = subprocess.DEVNULL,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the command, with the descriptor of its end and this process's id as last arguments. Raises OSError.

        The id: `rlf.processes.forking.die_with` ends the process with this one, and has to know which that was.
        """
        self.end, theirs = socket.socketpair(socket.AF_UNIX, kind)
        out, both = subprocess.PIPE, subprocess.STDOUT
        try:
            with theirs:
                words = [*command, str(theirs.fileno()), str(os.getpid())]
                self._popen = start_apart(words, stdin, out, both, env=env, pass_fds=[theirs.fileno()])
        except BaseException:
            self.end.close()
            raise
        # A thread for each: a process whose pipe is full stands still, also while the loop has no time to read it.
        output, redact = self._popen.stdout, Redactor(os.environ).text
        self._relay = threading.Thread(target=_relay_output, args=(output, redact), daemon=True)
        self._relay.start()

    @property
    def pid(self) -> int:
        """Its id, which is its group's and its session's too."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; it is waited for then."""
        return self._popen.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """None before it was seen to have ended."""
        return self._popen.returncode

    async def feed(self, start: bytes) -> None:
        """Writes all that it is to read on stdin. A process that has ended reads nothing, which its socket shows."""
        await asyncio.to_thread(self._write_stdin, start)

    def kill(self) -> None:
        """Ends it and what it started. A group lives on while a member does, so its id is not given to others."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    async def wait(self, limit_s: float) -> int | None:
        """The exit code; None where it has not ended by then."""
        with suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self._popen.wait, limit_s)
        return None

    async def wait_killed(self) -> None:
        """Waits, after `kill`, until it is gone and what it printed is relayed."""
        await self.wait(END_S)
        await asyncio.to_thread(self._relay.join, END_S)  # what it started may hold its output in another session

    def _write_stdin(self, start: bytes) -> None:
        stdin = self._popen.stdin
        assert stdin is not None, "a process without stdin"
        with suppress(BrokenPipeError), stdin:
            stdin.write(start)


def _relay_output(printed: IO[bytes], redact: Callable[[str], str]) -> None:
    """Writes what a process prints to stderr, line by line and without the secrets of the environment."""
    with printed:
        while line := printed.readline(_MAX_LINE_BYTES):
            with suppress(OSError, ValueError):  # stderr may be closed; the process must not wait for it
                sys.stderr.write(redact(line.decode(errors="replace")))


class _PipeProtocol(SubprocessStreamProtocol):
    """Knows when the process has ended: asyncio's `wait` also waits for every child of it to close its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(PIPE_BYTES, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class PipedChild:
    """A process in a session of its own that is spoken to over stdin and stdout, and may be broken.

    The end of what it writes on stderr is kept. No process of its group outlives `close`.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _PipeProtocol) -> None:
        process = Process(transport, protocol, asyncio.get_running_loop())
        assert process.stdin and process.stdout and process.stderr, "started without a pipe"
        self.stdin, self.stdout = process.stdin, process.stdout
        self._transport, self._exited, self._errors = transport, protocol.exited, b""
        self._draining = asyncio.create_task(self._drain(process.stderr))
        self._ending = asyncio.create_task(self._end_output())

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> PipedChild:
        """Raises OSError. Cut off in the middle, asyncio would end the process but not what that started."""
        loop, pipe = asyncio.get_running_loop(), subprocess.PIPE
        return cls(
            *await loop.subprocess_exec(
                lambda: _PipeProtocol(loop),
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        )

    def has_unread(self) -> bool:
        """Whether it has left unread some of what it was sent: asyncio writes to a socket, which counts."""
        pipe = self._transport.get_pipe_transport(0)
        if not isinstance(pipe, asyncio.WriteTransport) or pipe.is_closing():
            return False
        try:
            found = fcntl.ioctl(pipe.get_extra_info("pipe").fileno(), termios.TIOCOUTQ, b"\0" * 4)
        except OSError:  # a system that does not count
            found = b"\0" * 4
        return pipe.get_write_buffer_size() > 0 or struct.unpack("i", found)[0] > 0

    async def describe_end(self) -> str:
        """How it ended, or that it closed its output; with the last line on stderr."""
        await asyncio.wait((self._draining,), timeout=_SETTLE_S)
        await self._wait(_SETTLE_S)
        code = self._transport.get_returncode()
        if code is None:
            how = "closed its output"
        else:
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        lines = self._errors.decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1].strip()}" if lines else how

    async def close(self) -> None:
        """Closes stdin, then asks the group to end, then makes it; every wait has a bound."""
        self.stdin.close()
        try:
            if not await self._wait(_GRACE_S):
                self._signal_group(signal.SIGTERM)
                await self._wait(_GRACE_S)
        finally:
            try:
                # Also when the wait itself was cancelled: nobody asks for an end once the loop is closed.
                self._signal_group(signal.SIGKILL)
                if not await self._wait(_GRACE_S):
                    logger.warning("process %d is still running after SIGKILL", self._transport.get_pid())
            finally:
                self._draining.cancel()
                self._ending.cancel()
                with suppress(PermissionError):  # asyncio holds the pipes until a grandchild that inherited them
                    self._transport.close()  # ends, unless its transport is closed

    async def _wait(self, limit_s: float) -> bool:
        """Whether it ends within that time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), limit_s)
        return self._exited.is_set()

    def _signal_group(self, number: int) -> None:
        """It leads its group, so the group's id is its own pid, also when it has ended before its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    async def _drain(self, errors: asyncio.StreamReader) -> None:
        while chunk := await errors.read(PIPE_BYTES):
            self._errors = (self._errors + chunk)[-_KEPT_BYTES:]

    async def _end_output(self) -> None:
        """Ends the reading of its output once it has ended, also where a child of it holds the pipes."""
        await self._exited.wait()
        await asyncio.sleep(_SETTLE_S)  # what is in the pipes is read
        for number in (1, 2):
            pipe = self._transport.get_pipe_transport(number)
            if pipe is not None:
                pipe.close()


class Keepable(Protocol):
    """Something that runs, and may end by itself."""

    @property
    def has_ended(self) -> bool:
        """Whether it serves no more."""

    async def close(self) -> None:
        """Ends it, and gives back what it holds."""


R = TypeVar("R", bound=Keepable)


class Keeper(Generic[R]):
    """Keeps one thing running: one is wanted, and who needs it closes the gap between that and what runs.

    So a first start and the one after a death are the same step, and nothing has to notice a death but who is in need.
    The start is a task of its own: many wait for it, and none that gives up takes it from the others.
    """

    def __init__(self, start: Callable[[], Awaitable[R]], name: str) -> None:
        """Starts nothing yet. `name`: what the log calls the thing when it has to be started again."""
        self._start, self._name = start, name
        self._starting: asyncio.Task[R] | None = None

    @property
    def latest(self) -> R | None:
        """What was started last, whether or not it still runs; None where nothing was."""
        task = self._starting
        is_started = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if task is not None and is_started else None

    async def get(self) -> R:
        """What runs, started where nothing does. Raises what starting raises, and the next who asks tries again."""
        latest = self.latest
        if self._starting is None or (self._starting.done() and (latest is None or latest.has_ended)):
            self._starting = asyncio.create_task(self._replace(latest))
        return await asyncio.shield(self._starting)

    async def close(self) -> None:
        """Ends what runs, or its start."""
        if self._starting is None:
            return
        self._starting.cancel()
        await asyncio.wait([self._starting])
        latest, self._starting = self.latest, None
        if latest is not None:
            await latest.close()

    async def _replace(self, ended: R | None) -> R:
        if ended is not None:
            logger.warning("%s ended; it is started again", self._name)
            await ended.close()  # it holds descriptors and threads still
        return await self._start()
