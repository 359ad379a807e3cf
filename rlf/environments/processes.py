"""Instances of a class in processes of their own, forked from one that imported the class and killed at their close."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.core.text import describe
from rlf.environments.instances import StandIn, read_answer
from rlf.processes.forking import MAX_ORDER_BYTES
from rlf.sandbox.channel import Channel
from rlf.sandbox.guest.wire import BadFrame, Bounds
from rlf.tools.python.processes import relay_output
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, ToolCall

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-u", "-m", "rlf.environments.workers.class_processes")
_START_S = 60.0
"""Imports of large packages on a busy machine take their time."""
_ORDER_S = 20.0
_END_S = 2.0
_ANSWER = Bounds(1000, 64_000_000)
"""Longest answer of a world that is read."""


class ClassProcesses:
    """A class's processes: `async with ClassProcesses(name, made_by, args) as place`. A `Place`."""

    runs_on_loop = False

    def __init__(
        self,
        callable_name: str,
        made_by: Callable[..., Any],
        args: Mapping[str, Any],
        *,
        memory_mb: int | None = None,
        imports: tuple[str, ...] = (),
        command: Sequence[str] = _COMMAND,
        start_s: float = _START_S,
    ) -> None:
        """Takes the class; nothing is started yet.

        Args:
            args: what instances are made with, by name.
            memory_mb: what each process may take beside the imports, in MiB; None: as much as there is.
            imports: modules and files that are imported once, for all.
            command: what starts the process that forks, by `rlf.processes.forking.serve_forks`.
            start_s: how long that may take to load the class.
        """
        self._command, self._start_s = command, start_s
        self._callable, self._made_by = callable_name, made_by
        self._start = {
            "path": sys.path,
            "callable": callable_name,
            "args": dict(args),
            "memory_mb": memory_mb,
            "imports": imports,
        }
        self._starting: asyncio.Task[_Server] | None = None
        """Starts the process that forks. No deadline of a single world cancels it: imports may take longer."""

    async def __aenter__(self) -> Self:
        """Starts the process that the others are forked from. Raises RlfError where it cannot import the class."""
        self._starting = asyncio.create_task(self._start_server(None))
        await self._starting
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends every process."""
        assert self._starting is not None, "the class's processes are not entered"
        self._starting.cancel()
        await asyncio.wait([self._starting])
        if (server := _find_result(self._starting)) is not None:
            await server.close()

    async def make(self) -> Any:
        """An instance in a process of its own."""
        try:
            process = await (await self._find_server()).fork()
        except ToolFailure:  # a world may have ended the server just now; there is another one then
            process = await (await self._find_server()).fork()
        stand_in = StandIn(self._made_by, process)
        try:
            await self._ask(stand_in, "__init__", {})
        except BaseException:
            await asyncio.shield(process.end())
            raise
        return stand_in

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method. Raises ToolFailure."""
        return await self._ask(instance, f"call {call.name}", dict(call.arguments))

    async def live(self, instance: Any, name: str, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has none, or the process no longer listens."""
        if not hasattr(instance, name) or (name == "close" and not instance.home.listens):
            return None
        return await self._ask(instance, name, arguments)

    async def discard(self, instance: Any) -> None:
        """Kills the process."""
        await instance.home.end()

    async def _ask(self, stand_in: StandIn, name: str, arguments: dict[str, Any]) -> Any:
        return read_answer(stand_in, await stand_in.home.ask((name, arguments)))

    async def _find_server(self) -> _Server:
        assert self._starting is not None, "the class's processes are not entered"
        if self._starting.done():
            server = _find_result(self._starting)
            if server is None or server.is_gone:
                self._starting = asyncio.create_task(self._start_server(server))
        return await asyncio.shield(self._starting)

    async def _start_server(self, ended: _Server | None) -> _Server:
        """A server in place of one that ended."""
        if ended is not None:
            logger.warning("%s: the process that worlds are forked from ended; it is started again", self._callable)
            await ended.close()
        server = _Server(self._command)
        try:
            await asyncio.wait_for(server.start(self._start), self._start_s)
        except BaseException as fault:
            await server.close()
            if isinstance(fault, TimeoutError):
                raise RlfError(f"{self._callable}: it was not imported within {self._start_s:g} s.") from fault
            raise
        return server


def _find_result(starting: asyncio.Task[_Server]) -> _Server | None:
    """The server that a task has started; None where it failed."""
    return None if starting.cancelled() or starting.exception() is not None else starting.result()


class _Server:
    """The process that imported the class, and the socket that takes orders."""

    def __init__(self, command: Sequence[str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.setblocking(False)
        with theirs:
            self._popen = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._relay = threading.Thread(
            target=relay_output, args=(self._popen.stdout, Redactor(os.environ).text), daemon=True
        )
        self._relay.start()
        self._turn = asyncio.Lock()
        """Held from an order to its answer."""
        self._num_forked = 0
        self._ending: set[asyncio.Task[None]] = set()
        """End the processes of forks that nobody waited for."""
        self._is_lost = False
        """Whether an order had no answer."""

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._is_lost or self._popen.poll() is not None

    async def start(self, start: dict[str, Any]) -> None:
        """Lets it import the class. Raises RlfError."""
        stdin = self._popen.stdin
        assert stdin is not None, "a process without stdin"
        await asyncio.to_thread(_write_whole, stdin, pickle.dumps(start))
        try:
            answer = await self._answer_to(0)
        except (EOFError, OSError) as fault:
            raise RlfError(f"the world's class cannot be imported: {describe(fault)}") from fault
        if "failed" in answer:
            raise RlfError(answer["failed"])

    async def fork(self) -> _Process:
        """A process that serves an instance, not yet made. Raises ToolFailure."""
        forking = asyncio.create_task(self._fork())
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            ending = asyncio.create_task(_end_fork(forking))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    async def _fork(self) -> _Process:
        ours, theirs = socket.socketpair()
        self._num_forked += 1
        process = _Process(self._num_forked, ours, self)
        try:
            with theirs:
                answer = await self.order({"do": "fork", "id": process.number}, theirs.fileno())
            if "failed" in answer:
                raise ToolFailure(Outcome.INFRA, f"no process could be forked: {answer['failed']}")
            process.channel.watch(answer["pid"])
        except BaseException:
            process.channel.close()
            raise
        return process

    async def order(self, order: dict[str, Any], *descriptors: int) -> dict[str, Any]:
        """The answer to an order. Raises ToolFailure where the process is gone."""
        async with self._turn:
            try:
                socket.send_fds(self._orders, [json.dumps(order).encode()], list(descriptors))
                return await asyncio.wait_for(self._answer_to(order["id"]), _ORDER_S)
            except (OSError, TimeoutError, EOFError) as fault:  # one of its worlds may have ended or stopped it
                self._is_lost = True
                self._kill()
                words = "the process that worlds are forked from does not answer"
                raise ToolFailure(Outcome.INFRA, words) from fault

    async def close(self) -> None:
        """Ends it, and with it all that were forked from it."""
        self._kill()
        await asyncio.to_thread(self._popen.wait)
        if self._ending:
            await asyncio.wait(self._ending)
        async with self._turn:  # whose order, if there is one, has its answer now: the end
            self._orders.close()
        await asyncio.to_thread(self._relay.join, _END_S)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    async def _answer_to(self, number: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        while packet := await loop.sock_recv(self._orders, MAX_ORDER_BYTES):
            answer: dict[str, Any] = json.loads(packet)
            if answer["id"] == number:
                return answer
        raise EOFError("the process that worlds are forked from ended")


async def _end_fork(forking: asyncio.Task[_Process]) -> None:
    with suppress(ToolFailure):
        await (await forking).end()


def _write_whole(stdin: Any, body: bytes) -> None:
    with suppress(BrokenPipeError), stdin:
        stdin.write(body)


class _Process:
    """One forked process: it is asked one thing at a time, and killed when it is no longer needed."""

    def __init__(self, number: int, ours: socket.socket, server: _Server) -> None:
        self.number, self._server = number, server
        self.channel = Channel(ours)
        self.listens = True
        """Whether it waits for a request: it has answered all, and has not ended."""
        self._is_ended = False

    async def ask(self, request: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """The answer to a request. Raises ToolFailure where the process ends instead."""
        self.listens = False
        try:
            frame = await (await self.channel.ask({"bounds": _ANSWER}, (pickle.dumps(request),), _ANSWER))
        except EOFError as fault:
            raise ToolFailure(Outcome.INFRA, f"the world's process ended ({await self.end()})") from fault
        except BadFrame as fault:
            await self.end()
            words = f"the world's process sent {fault}: code in it wrote to the socket by which it answers"
            raise ToolFailure(Outcome.INFRA, words) from fault
        self.listens = True
        try:
            read: dict[str, Any] = pickle.loads(frame.blobs[0])
        except Exception as fault:  # a value of the user's own may do anything
            words = f"the result of {request[0]!r} cannot be read outside its process: {describe(fault)}"
            raise ToolFailure(Outcome.INFRA, words) from fault
        return read

    async def end(self) -> str:
        """Kills it and what it started; how it ended, in words."""
        if self._is_ended:
            return "before"
        self._is_ended, self.listens = True, False
        self.channel.close()
        try:
            status = (await asyncio.shield(self._server.order({"do": "end", "id": self.number})))["status"]
        except ToolFailure as gone:
            return gone.text
        code = os.waitstatus_to_exitcode(status)
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
