"""One sandboxed process as rlf sees it: it is asked, and answers, or is killed at its time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from rlf.core.clocks import Deadline, loop_timers
from rlf.processes.channel import Channel
from rlf.processes.child import describe_signal
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame
from rlf.sandbox.launch import GuestRequest, PythonAnswer, TableAnswer
from rlf.sandbox.spec import Execution, Level, QueryRows, ResourceUsage, SandboxLimits, SandboxOutcome

# Reading what a sandboxed process prints: never more than is wanted, never blocking, one piece a turn of the loop.

_CHUNK = 1 << 16
_PIPE_CHUNKS = 16
"""Pieces that the largest pipe of an ordinary user holds: 1 MiB."""
_FLOOD = 16
"""A process that writes this many times what is kept is ended."""


class Output:
    """stdout and stderr of a process, which share one budget."""

    def __init__(self, out: int, err: int, on_flood: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_flood = on_flood
        self._kept = {out: bytearray(), err: bytearray()}
        self._open = [out, err]
        self._max_bytes = self._left = self._written = 0
        for descriptor in (out, err):
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, self._read_piece, descriptor)

    def begin(self, max_bytes: int) -> None:
        """Forgets what was read and keeps at most so much of what follows."""
        self._max_bytes = self._left = max_bytes
        self._written = 0
        for kept in self._kept.values():
            kept.clear()

    @property
    def exceeded(self) -> bool:
        """Whether more was written than is kept."""
        return self._written > self._max_bytes

    @property
    def flooded(self) -> bool:
        """Whether so much was written that the process is ended."""
        return self._written > _FLOOD * self._max_bytes

    def texts(self) -> tuple[str, str]:
        """stdout and stderr, with what has been written until now: a process that writes on is not waited for."""
        for descriptor in list(self._open):
            for _ in range(_PIPE_CHUNKS):
                if not self._read_piece(descriptor):
                    break
        out, err = (kept.decode(errors="replace") for kept in self._kept.values())
        return out, err

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._open:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._open = []

    def _read_piece(self, descriptor: int) -> bool:
        """Takes one piece of what is there; whether more may be there."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        self._written += len(data)
        kept = data[: self._left]
        self._left -= len(kept)
        self._kept[descriptor] += kept
        if data and not self.flooded:
            return len(data) == _CHUNK
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._open.remove(descriptor)
        if self.flooded:
            self._on_flood()
        return False


_ENDING_GRACE_S = 5.0
"""Time a killed process has to be gone; a server that does not report it by then is given up. Time, too, in which the
end of a process is awaited that can answer no more: one that lives on has closed its channel."""
_READY = Bounds(100)
"""Of a process's first words, before it runs anything."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, as its server reports it."""

    status: int = 0
    """As wait(2) gives it."""
    cpu_s: float = 0.0
    peak_bytes: int = 0
    why: str = ""
    """Why the server killed it: `memory`, `disk`; empty when it did not."""
    failed: str = ""
    """Why it never began, or why nobody knows; empty for one that ended."""


@dataclass(frozen=True, slots=True)
class GuestAnswer:
    """The answer to one question."""

    found: PythonAnswer | TableAnswer | None
    """What the process answered; None when it was not asked again, ended before, or is at fault."""
    blobs: tuple[bytes, ...]
    """Byte strings beside it."""
    fault: BadFrame | None
    """What it did on its channel that it may not, for which it is killed."""
    exit: Exit | None
    """None while the process lives."""
    stdout: str
    stderr: str
    wall_s: float
    confined: bool
    """Whether the process had given up everything before it was asked."""
    timed_out: bool
    exceeded: bool
    """Whether it wrote more than is kept."""
    flooded: bool
    """Whether it was killed for what it wrote."""


class SandboxedProcess:
    """A process of a fork server. Its creator gives the descriptors of `theirs` to the server and closes them.

    `further`: a descriptor that the process gets too.
    """

    def __init__(
        self, number: int, kill: Callable[[], None], give_up: Callable[[str], None], further: int | None = None
    ) -> None:
        self.number = number
        self._kill = kill
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        ours, channel = socket.socketpair()
        out, out_theirs = os.pipe()
        err, err_theirs = os.pipe()
        self.theirs = (channel.detach(), out_theirs, err_theirs, *(() if further is None else (further,)))
        self._output = Output(out, err, self._end_now)
        self._channel = Channel(ours, self._end_now, self._on_channel_end)
        self._ready = self._channel.expect(0, _READY)
        self._closed_its_channel = False
        self._timer: asyncio.TimerHandle | None = None
        """Runs while the end is near."""
        self._ended: asyncio.Future[Exit] = self._loop.create_future()

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return not self._ended.done()

    def end(self, exit_: Exit) -> None:
        """Called by the server, once."""
        if not self._ended.done():
            self._ended.set_result(exit_)
        self._watch_end(None)

    async def ask(self, question: GuestRequest, limits: SandboxLimits, *, once: bool) -> GuestAnswer:
        """Sends one request and waits: for the end of the process where `once`, else for its answer or its end."""
        started = perf_counter()
        self._output.begin(limits.output_bytes)
        timed_out = False

        def time_up() -> None:
            nonlocal timed_out
            timed_out = True
            self._end_now()

        # Its time stands still while rlf is paused: on waking, an answer that came long ago and a timer of the loop's
        # would be found in the same moment, and the code would be charged with a pause that it had no part in.
        deadline = Deadline(limits.wall_s)
        loop_timers().start(deadline, time_up)
        try:
            answer = await self._channel.ask(question.head, question.blobs, question.bounds)
            # A call counts at its end alone: a process that answers and then lives on keeps its time running.
            if not once:
                await asyncio.wait((self._ended, answer), return_when=asyncio.FIRST_COMPLETED)
            if once or not _has_result(answer):
                await asyncio.wait((self._ended,))
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            loop_timers().stop(deadline)
        return self._take_answer(question, answer, perf_counter() - started, timed_out=timed_out)

    def last_words(self) -> GuestAnswer:
        """How it ended, without having been asked again."""
        return self._take_answer(None, None, 0.0, timed_out=False)

    def close(self) -> None:
        """Gives the descriptors back."""
        self._channel.close()
        self._output.close()

    async def kill(self) -> None:
        """Ends it and waits until it is gone."""
        if self.alive:
            self._end_now()
            await asyncio.shield(self._ended)

    async def finish(self) -> None:
        """Ends it and gives its descriptors back, also when it is cancelled while it waits for the end."""
        try:
            await self.kill()
        finally:
            self.close()

    def _take_answer(
        self, question: GuestRequest | None, answer: asyncio.Future[Frame] | None, wall_s: float, *, timed_out: bool
    ) -> GuestAnswer:
        while self._channel.read():  # up to the bound of the answer, when the process has ended
            pass
        fault = self._channel.fault or (BadFrame("an end of its channel") if self._closed_its_channel else None)
        found: PythonAnswer | TableAnswer | None = None
        blobs: tuple[bytes, ...] = ()
        if question is not None and answer is not None and fault is None and _has_result(answer):
            try:
                found, blobs = question.read(answer.result()), answer.result().blobs
            except BadFrame as wrong:
                fault = wrong
        stdout, stderr = self._output.texts()  # last: what it wrote before its answer is in the pipes by now
        return GuestAnswer(
            found,
            blobs,
            fault,
            self._ended.result() if self._ended.done() else None,
            stdout,
            stderr,
            wall_s,
            confined=_has_result(self._ready),
            timed_out=timed_out,
            exceeded=self._output.exceeded,
            flooded=self._output.flooded,
        )

    def _on_channel_end(self) -> None:
        """It has ended, which the server reports soon, or has closed its channel and is to end."""
        if self._timer is None:  # else it is being killed, and its end is watched already
            self._watch_end(self._end_closed)

    def _end_closed(self) -> None:
        self._closed_its_channel = True
        self._end_now()

    def _end_now(self) -> None:
        if self.alive:
            self._kill()
            self._watch_end(self._check_the_end)

    def _watch_end(self, late: Callable[[], None] | None) -> None:
        """Has `late` called unless the end comes soon; None: it has come."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if late is None else self._loop.call_later(_ENDING_GRACE_S, late)

    def _check_the_end(self) -> None:
        if self.alive:
            self._give_up(f"process {self.number} still runs {_ENDING_GRACE_S:g} s after it was killed")


def _has_result(answer: asyncio.Future[Frame]) -> bool:
    return answer.done() and answer.exception() is None


def exit_of(packet: dict[str, Any]) -> Exit:
    """The end of a process from the server's packet."""
    return Exit(**{key: value for key, value in packet.items() if key != "id"})


# From how a process ended to its call's outcome: whose fault it was, in words a model can act on.

_CPU_SLACK_S = 0.3
"""By how much the kernel's two counts of processor time differ."""
_UNSAID = "it ended without a reason; the limits of open files, memory or processes may be too low (`ulimit -a`)"


def judge_answer(answer: GuestAnswer, limits: SandboxLimits, level: Level) -> Execution:
    """The result of a call, whatever its process did."""
    # What rlf and the server saw comes before what the process says of itself: code in it may say anything.
    outcome, error = _outside_outcome(answer, limits, level)
    found: PythonAnswer | TableAnswer | None = None
    if outcome is None:
        found = answer.found
        assert found is not None, "neither an answer nor a reason"
        outcome, error = found.outcome, found.error
        if outcome is SandboxOutcome.OK and answer.exceeded:
            outcome, error = (
                SandboxOutcome.OUTPUT_LIMIT,
                f"only the first {limits.output_bytes} bytes of output were kept",
            )
    ending = answer.exit or Exit()
    usage = ResourceUsage(answer.wall_s, ending.cpu_s, ending.peak_bytes)
    execution = Execution(outcome, answer.stdout, answer.stderr, error=error, usage=usage, level=level)
    if isinstance(found, PythonAnswer):
        files = dict(zip(found.files, answer.blobs, strict=False))
        return replace(execution, value=found.value, files=files, images=answer.blobs[len(files) :])
    if found is not None and found.columns is not None:
        return replace(execution, table=QueryRows(found.columns, found.rows, found.truncated))
    return execution


def _outside_outcome(
    answer: GuestAnswer, limits: SandboxLimits, level: Level
) -> tuple[SandboxOutcome | None, str | None]:
    """The outcome as seen from outside; None when the process answered in time."""
    # The order is by who knows best. A server that failed knows nothing of the process, so that no limit may be blamed;
    # a process killed at its time or for its flood also has an exit by SIGKILL and no answer, which say less.
    ending = answer.exit
    if ending is not None and ending.failed:
        return SandboxOutcome.INFRA, ending.failed
    if answer.timed_out:
        return SandboxOutcome.TIMEOUT, f"not finished within {limits.wall_s:g} s"
    if answer.flooded:
        return SandboxOutcome.OUTPUT_LIMIT, f"ended for its output; the first {limits.output_bytes} bytes were kept"
    if ending is not None and ending.why == "memory":
        return SandboxOutcome.MEMORY, f"ended for using more than {limits.memory_mb} MiB of memory"
    if ending is not None and ending.why == "disk":
        return SandboxOutcome.KILLED, f"ended for writing more than {limits.disk_mb} MiB or too many files"
    # Before its first word nothing foreign ran: an end by then is the machine's, and no policy is to pay for it.
    if not answer.confined:
        reason = (answer.stderr.strip().splitlines() or [""])[-1][-300:]
        return SandboxOutcome.INFRA, f"the sandbox could not be entered: {reason or _UNSAID}"
    # After the limits: a process that is killed half way through a frame has sent a broken one through no fault.
    if answer.fault is not None:
        return SandboxOutcome.KILLED, f"ended since the process answered with {answer.fault}"
    if answer.found is not None:
        return None, None
    assert ending is not None, "no answer and no end"
    return _ended_early(ending, limits, level)


def _ended_early(ending: Exit, limits: SandboxLimits, level: Level) -> tuple[SandboxOutcome, str]:
    code = os.waitstatus_to_exitcode(ending.status)
    if code >= 0:  # `os._exit` or `sys.exit`: a test that is left so has not passed, whatever the code
        return SandboxOutcome.KILLED, f"the process left with code {code} before its end"
    if -code in (signal.SIGKILL, signal.SIGXCPU) and ending.cpu_s >= limits.cpu_s - _CPU_SLACK_S:
        return SandboxOutcome.TIMEOUT, f"more than {limits.cpu_s} s of processor time"
    # The kernel's limit of processor time ends in SIGKILL too (above). Any other comes from outside: the machine had no
    # memory left, or somebody killed it, which says nothing of the code.
    if -code == signal.SIGKILL and level.contains_hostile_code:
        return SandboxOutcome.INFRA, "the process was killed from outside of the sandbox"
    return SandboxOutcome.KILLED, f"the process was ended by {describe_signal(-code)}"
