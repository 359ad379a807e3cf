"""One sandboxed process as rlf sees it: it is asked, and answers, or is killed at its time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from rlf.sandbox.guest.wire import BadFrame, Frame
from rlf.sandbox.spec import SandboxLimits
from rlf.sandbox.streams import Channel, Output

_ENDING_GRACE_S = 5.0
"""Time a killed process has to be gone; a server that does not report it by then is given up."""


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
class Answer:
    """The answer to one question."""

    frame: Frame | BadFrame | None
    """What the process answered; None when it ended before."""
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
        self._output = Output(out, err, kill)
        self._channel = Channel(ours, 1 << 31, self._on_frame)
        self._confined = False
        self._answer: asyncio.Future[Frame | BadFrame] = self._loop.create_future()
        self._ended: asyncio.Future[Exit] = self._loop.create_future()

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return not self._ended.done()

    def end(self, exit_: Exit) -> None:
        """Called by the server, once."""
        if not self._ended.done():
            self._ended.set_result(exit_)

    async def ask(self, frame: bytes, limits: SandboxLimits, *, once: bool) -> Answer:
        """Sends one request and waits: for the end of the process where `once`, else for its answer or its end."""
        started = perf_counter()
        self._output.begin(limits.output_bytes)
        timed_out = False

        def time_up() -> None:
            nonlocal timed_out
            timed_out = True
            self._kill()
            self._watch_the_end()

        timer = self._loop.call_later(limits.wall_s, time_up)
        try:
            await self._channel.send(frame)
            await self._wait_for_answer(once=once)
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            timer.cancel()
        return self._take_answer(perf_counter() - started, timed_out=timed_out)

    def close(self) -> None:
        """Gives the descriptors back."""
        self._channel.close()
        self._output.close()

    async def kill(self) -> None:
        """Ends it and waits until it is gone."""
        if self.alive:
            self._kill()
            self._watch_the_end()
            await asyncio.shield(self._ended)

    async def finish(self) -> None:
        """Ends it and gives its descriptors back, also when it is cancelled while it waits for the end."""
        try:
            await self.kill()
        finally:
            self.close()

    async def _wait_for_answer(self, *, once: bool) -> None:
        if once:
            await asyncio.shield(self._ended)
        else:
            await asyncio.wait((self._answer, self._ended), return_when=asyncio.FIRST_COMPLETED)

    def _take_answer(self, wall_s: float, *, timed_out: bool) -> Answer:
        self._channel.read()
        frame = self._answer.result() if self._answer.done() else None
        self._answer = self._loop.create_future()
        exit_ = self._ended.result() if self._ended.done() else None
        stdout, stderr = self._output.texts()
        exceeded, flooded = self._output.exceeded, self._output.flooded
        return Answer(frame, exit_, stdout, stderr, wall_s, self._confined, timed_out, exceeded, flooded)

    def _on_frame(self, frame: Frame | BadFrame) -> None:
        if not self._confined:
            self._confined = True  # its first words, before it was asked anything
        elif not self._answer.done():
            self._answer.set_result(frame)

    def _watch_the_end(self) -> None:
        self._loop.call_later(_ENDING_GRACE_S, self._check_the_end)

    def _check_the_end(self) -> None:
        if self.alive:
            self._give_up(f"process {self.number} still runs {_ENDING_GRACE_S:g} s after it was killed")


def exit_of(packet: dict[str, Any]) -> Exit:
    """The end of a process from the server's packet."""
    return Exit(**{key: value for key, value in packet.items() if key != "id"})
