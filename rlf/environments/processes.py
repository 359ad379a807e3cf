"""Instances of a class in processes of their own, forked from one that imported the class and killed at their close."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from rlf.core import RlfError
from rlf.core.callables import note_opened
from rlf.core.clocks import within
from rlf.core.text import describe
from rlf.environments.instances import StandIn, read_instance_answer
from rlf.processes.fork_server import ForkFault, ForkServer
from rlf.processes.held import Keeper
from rlf.sandbox.guest.wire import Bounds
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, ToolCall

_COMMAND = (sys.executable, "-u", "-m", "rlf.environments.workers.class_processes")
_START_S = 60.0
"""Imports of large packages on a busy machine take their time."""
_MAX_OPENED = 1000
"""Files that one answer may name."""
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
        path: Sequence[str] = (),
        command: Sequence[str] = _COMMAND,
        start_s: float = _START_S,
    ) -> None:
        """Takes the class; nothing is started yet.

        Args:
            args: what instances are made with, by name.
            memory_mb: what each process may take beside the imports, in MiB; None: as much as there is.
            imports: modules and files that are imported once, for all.
            path: folders with packages that come before this process's own.
            command: what starts the process that forks, by `rlf.processes.forking.serve_forks`.
            start_s: how long that may take to load the class.
        """
        self._command, self._start_s = command, start_s
        self._callable, self._made_by = callable_name, made_by
        self._start = {
            "path": [*path, *sys.path],
            "callable": callable_name,
            "args": dict(args),
            "memory_mb": memory_mb,
            "imports": imports,
        }
        # Kept by nobody's deadline: imports may take longer than a single world has for its reset.
        self._name = "the process that worlds are forked from"
        self._server = Keeper(self._start_server, f"{callable_name}: {self._name}")

    async def __aenter__(self) -> Self:
        """Starts the process that the others are forked from. Raises RlfError where it cannot import the class."""
        await self._server.get()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends every process."""
        await self._server.close()

    async def make(self) -> Any:
        """An instance in a process of its own. Raises ToolFailure."""
        try:
            fork = await (await self._server.get()).fork()
        except ForkFault:  # a world may have ended the server just now; there is another one then
            try:
                fork = await (await self._server.get()).fork()
            except ForkFault as fault:
                raise ToolFailure(Outcome.INFRA, str(fault)) from fault
        stand_in = StandIn(self._made_by, fork)
        try:
            await self._ask(stand_in, "__init__", {})
        except BaseException:
            await asyncio.shield(fork.end())  # also where this is cancelled: the process would be nobody's
            raise
        return stand_in

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """Calls a tool's method. Raises ToolFailure."""
        return await self._ask(instance, f"call {call.name}", dict(call.arguments))

    async def live(self, instance: Any, name: str, /, **arguments: Any) -> Any:
        """Calls a lifecycle method; None where the class has none, or the process no longer listens."""
        # A process that still works on a request would read `close` only after it: it is killed by `discard` instead.
        if not callable(getattr(instance, name, None)) or (name == "close" and not instance.home.listens):
            return None
        return await self._ask(instance, name, arguments)

    async def seed(self, instance: Any, seed: int) -> None:
        """Seeds those of its process, which it has for itself."""
        await self._ask(instance, "seed", {"seed": seed})

    async def discard(self, instance: Any) -> None:
        """Kills the process."""
        await instance.home.end()

    async def _ask(self, stand_in: StandIn, name: str, arguments: dict[str, Any]) -> Any:
        """The value of a request's answer. Raises ToolFailure for anything else, and where the process ends instead.

        Values are pickles both ways: of any class, and code of the world's may write them. The process is no sandbox,
        and a spec that names a class trusts it with as much; `isolation: sandbox` is for one that is not trusted.
        """
        try:
            frame = await stand_in.home.ask({"bounds": _ANSWER}, (pickle.dumps((name, arguments)),), _ANSWER)
        except ForkFault as fault:
            raise ToolFailure(Outcome.INFRA, f"the world's process {fault}") from fault
        try:
            answer = pickle.loads(frame.blobs[0])
        except Exception as fault:  # a value of the user's own may do anything
            words = f"the result of {name!r} cannot be read outside its process: {describe(fault)}"
            raise ToolFailure(Outcome.INFRA, words) from fault
        if isinstance(answer, dict) and isinstance(opened := answer.get("opened"), list):
            note_opened(self._callable, [path for path in opened[:_MAX_OPENED] if isinstance(path, str)])
        return read_instance_answer(stand_in, answer)

    async def _start_server(self) -> ForkServer:
        server = ForkServer(self._command, self._name)
        try:
            with within(self._start_s):
                await server.start(self._start)
        except BaseException as fault:
            await server.close()
            if isinstance(fault, TimeoutError):
                raise RlfError(f"{self._callable}: it was not imported within {self._start_s:g} s.") from fault
            if isinstance(fault, ForkFault):
                raise RlfError(f"the world's class cannot be imported: {fault}") from fault
            raise
        return server
