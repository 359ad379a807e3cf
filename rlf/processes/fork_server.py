"""A process that loads something once and forks for each that needs it, as its parent sees it.

`rlf.processes.forking` is the other end. Orders are packets of JSON, each answered; what a fork serves goes over a
socket of its own, whose frames are bounded.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar, cast

from rlf.core.clocks import within
from rlf.core.errors import RlfError, RunError
from rlf.core.text import describe
from rlf.processes.channel import Channel
from rlf.processes.child import describe_exit
from rlf.processes.forking import MAX_ORDER_BYTES, fork
from rlf.processes.held import Child
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame

T = TypeVar("T")
_ORDER_S = 20.0
"""Time in which an order is answered. A pause of this process has no part in it: it would end what all worlds share."""


class ForkFault(Exception):
    """The process that forks, or one that was forked, does not do what it should; the text says what."""


class ForkServer:
    """The process that has loaded something, and the socket that takes orders."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        """Starts it.

        Args:
            command: what runs `rlf.processes.forking.serve_forks`.
            name: what messages call it.
        """
        # Packets, not a stream: an order and the descriptor that goes with it arrive together.
        self._child = Child(command, socket.SOCK_SEQPACKET, stdin=subprocess.PIPE)
        self._name = name
        self._orders = self._child.end
        self._orders.setblocking(False)
        self._turn = asyncio.Lock()
        """Held from an order to its answer."""
        self._num_forked = 0
        self._ending: set[asyncio.Task[None]] = set()
        """End the processes of forks that nobody waited for."""
        self._is_lost = False
        """Whether an order had no answer."""

    @property
    def pid(self) -> int:
        """Of the process that forks."""
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more orders."""
        return self._is_lost or self._child.has_ended

    async def start(self, start: Mapping[str, Any]) -> None:
        """Lets it load what `start` says. Raises RlfError with its reason, and ForkFault where it ends instead."""
        await self._child.feed(pickle.dumps(dict(start)))
        try:
            answer = await self._answer_to(0)
        except (EOFError, OSError) as fault:
            raise ForkFault(describe(fault)) from fault
        if "failed" in answer:
            raise RlfError(answer["failed"])

    async def fork(self) -> Fork:
        """A process that serves. Raises ForkFault."""
        forking = asyncio.create_task(self._fork())
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            # The order is under way, and its process would be nobody's: it is ended once it is there.
            ending = asyncio.create_task(_end_fork(forking))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    async def _fork(self) -> Fork:
        ours, theirs = socket.socketpair()
        self._num_forked += 1
        fork = Fork(self._num_forked, ours, self)
        try:
            with theirs:
                answer = await self.order({"do": "fork", "id": fork.number}, theirs.fileno())
            if "failed" in answer:
                raise ForkFault(f"no process could be forked: {answer['failed']}")
            fork.channel.watch(answer["pid"])
        except BaseException:
            fork.channel.close()
            raise
        return fork

    async def order(self, order: dict[str, Any], *descriptors: int) -> dict[str, Any]:
        """The answer to an order. Raises ForkFault where the process is gone."""
        async with self._turn:
            try:
                socket.send_fds(self._orders, [json.dumps(order).encode()], list(descriptors))
                with within(_ORDER_S):
                    return await self._answer_to(order["id"])
            except (OSError, TimeoutError, EOFError) as fault:  # one that it forked may have ended or stopped it
                self._is_lost = True
                self._child.kill()
                raise ForkFault(f"{self._name} does not answer") from fault

    async def close(self) -> None:
        """Ends it, and with it all that were forked from it: each dies with its parent."""
        self._child.kill()
        await self._child.wait_killed()
        if self._ending:
            await asyncio.wait(self._ending)
        async with self._turn:  # whose order, if there is one, has its answer now: the end
            self._orders.close()

    async def _answer_to(self, number: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        while packet := await loop.sock_recv(self._orders, MAX_ORDER_BYTES):
            answer: dict[str, Any] = json.loads(packet)
            if answer["id"] == number:  # an earlier order's, whose asker left, is passed over
                return answer
        raise EOFError(f"{self._name} ended")


async def _end_fork(forking: asyncio.Task[Fork]) -> None:
    with suppress(ForkFault):
        await (await forking).end()


class Fork:
    """One forked process: it is asked one thing at a time, and killed when it is no longer needed."""

    def __init__(self, number: int, ours: socket.socket, server: ForkServer) -> None:
        self.number, self._server = number, server
        self.channel = Channel(ours)
        self.listens = True
        """Whether it waits for a request: it has answered all, and has not ended."""
        self._is_ended = False

    async def ask(self, head: Mapping[str, Any], blobs: Sequence[bytes], bounds: Bounds) -> Frame:
        """The answer to a request. Raises ForkFault, in the words that follow the process's name, where it ends."""
        self.listens = False
        try:
            frame = await self.channel.answer(head, blobs, bounds)
        except EOFError as fault:
            raise ForkFault(f"ended ({await self.end()})") from fault
        except BadFrame as fault:
            await self.end()
            raise ForkFault(f"sent {fault}: code in it wrote to the socket by which it answers") from fault
        self.listens = True
        return frame

    async def end(self) -> str:
        """Kills it and what it started; how it ended, in words."""
        if self._is_ended:
            return "before"
        self._is_ended, self.listens = True, False
        self.channel.close()
        try:
            # Shielded: an order that is cut off half way would be taken for a server that no longer answers.
            status = (await asyncio.shield(self._server.order({"do": "end", "id": self.number})))["status"]
        except ForkFault as gone:
            return str(gone)
        return describe_exit(os.waitstatus_to_exitcode(status))


ForkWork = Callable[[Callable[[Any], None]], Coroutine[Any, Any, T]]
"""Makes what a fork does; takes a function that sends values to the process that waits for it."""


def run_apart(work: ForkWork[T], seen: Callable[[Any], object] = bool, *, still_s: float) -> T:
    """The result of work in a fork of this process, which user code may end or block, and whose stdout is stderr.

    Args:
        seen: takes what the work sends, here.
        still_s: how long its event loop may stand still: no deadline holds then.

    Raises:
        ForkFault: it ended before it had a result.
        TimeoutError: its event loop stood still; it is killed.
        RlfError: the work raised one.
    """
    reader, writer = Pipe(duplex=False)
    sys.stdout.flush()
    pid = fork(lambda: _serve_work(work, writer))
    writer.close()
    is_last, value = False, cast(Any, None)
    try:
        while not is_last:
            if not reader.poll(still_s):
                raise TimeoutError(f"its event loop stood still for {still_s:g} s")
            is_last, value = reader.recv()
            if value is not None and not is_last:
                seen(value)
    except EOFError:
        pass
    except BaseException as fault:
        # The signal may have come to this process alone. A child held in C code reacts to SIGKILL only.
        os.kill(pid, signal.SIGKILL if isinstance(fault, TimeoutError) else signal.SIGTERM)
        raise
    finally:
        reader.close()
        # What user code has started and left is of its group, whose number is nobody else's until it is waited for.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    if not is_last:
        raise ForkFault(describe_exit(os.waitstatus_to_exitcode(status)))
    if isinstance(value, RlfError):
        raise value
    return cast(T, value)


def _serve_work(work: ForkWork[T], writer: Connection) -> None:
    """Sends a sign of life each second, what the work sends, and its result or fault at last."""
    gc.freeze()  # what this process had before is not walked, which would copy the memory that both share
    os.dup2(2, 1)  # what user code prints is no result

    def send(value: Any, *, is_last: bool = False) -> None:
        writer.send((is_last, value))

    async def tick() -> None:
        while True:
            send(None)
            await asyncio.sleep(1)

    async def run() -> T:
        ticking = asyncio.create_task(tick())
        try:
            return await work(send)
        finally:
            ticking.cancel()

    result: Any
    with suppress(KeyboardInterrupt):
        try:
            result = asyncio.run(run())
        except RlfError as error:  # as words: what else it holds may not leave the process
            result = (RunError if isinstance(error, RunError) else RlfError)(str(error))
        sys.stdout.flush()
        send(result, is_last=True)
