"""`env: {kind: python}`: a class of the user's own, in a module or in a file beside the spec."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from types import MethodType
from typing import Any, Literal

from rlf.core.blocking import blocking_calls
from rlf.core.callables import CallableName, is_async, load_callable, source_hash
from rlf.core.hashing import hash_json
from rlf.environments.classes import (
    DONE,
    describe_methods,
    missing_columns,
    reset_arguments,
    sets_reward,
    to_actions,
    to_scores,
    tool_names,
)
from rlf.environments.kind import EnvSpec, WorldMaker
from rlf.environments.world import Step, World
from rlf.tools.failure import ToolFailure, describe
from rlf.tools.limits import MAX_ABANDONED
from rlf.tools.python.arguments import ArgumentAdapter
from rlf.tools.python.threads import ThreadPool
from rlf.types import Outcome, Task, ToolCall, ToolDescription

_REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError, PermissionError)
"""What a tool's method raises about its arguments: the model reads it. Everything else is the world's own failure."""


class Isolation(StrEnum):
    """Where the methods of a class run."""

    THREAD = "thread"
    """`def` on a thread, `async def` on the loop. A hung thread is left behind, it cannot be killed."""
    INLINE = "inline"
    """On the event loop. For `def` only if it is pure and takes microseconds: while it runs, nothing else does."""


class PythonEnv(EnvSpec):
    """A class: each trajectory has an instance of its own, whose public methods are its tools.

    Beside them it may have `reset(task, seed)`, `reply(text)`, `score()`, `gold()`, `state()`, `snapshot()`,
    `restore(snapshot)` and `close()`, each `def` or `async def`. `reset` takes any of `task`, `seed` and the columns of
    the row; the text that it returns stands in the prompt. Classes written for TRL's `environment_factory` work as they
    are.
    """

    kind: Literal["python"] = "python"
    callable: CallableName
    """The class: `package.module:name`, or `path/file.py:name` relative to the file that says so."""
    args: Mapping[str, Any] = {}
    """What instances are made with, by name."""
    methods: tuple[str, ...] | None = None
    """Names of the methods that are tools; None: all public ones."""
    isolation: Isolation = Isolation.THREAD

    @property
    def speaks(self) -> bool:
        """Whether the class has `reply`."""
        return hasattr(load_callable(self.callable), "reply")

    def describe_tools(self) -> Sequence[ToolDescription]:
        """From hints and docstrings of the methods."""
        made_by = load_callable(self.callable)
        return describe_methods(made_by, self.callable, self.methods) if inspect.isclass(made_by) else ()

    def complaints(self) -> list[str]:
        """Imports the class and looks at its methods."""
        made_by = load_callable(self.callable)
        if not inspect.isclass(made_by):
            return [f"{self.callable} is a {type(made_by).__name__}; expected a class"]
        return list(self._find_misfits(made_by))

    def _find_misfits(self, made_by: type[Any]) -> Iterator[str]:
        try:
            inspect.signature(made_by).bind(**self.args)
        except TypeError as fault:
            yield f"{self.callable} cannot be made with the args {', '.join(self.args) or 'none'}: {fault}"
        if not tool_names(made_by) and not hasattr(made_by, "reply"):
            yield f"{self.callable} has neither public methods, which are its tools, nor `reply`"
        if not hasattr(made_by, "score") and not sets_reward(made_by):
            yield f"{self.callable} has neither a method `score` nor an attribute `reward`; give it one"
        for name in (name for name in dir(made_by) if not name.startswith("__")):
            method = getattr(made_by, name)
            if is_async(method) and (blocking := blocking_calls(method)):
                said = f"{self.callable}.{name} is `async def` and calls {', '.join(blocking)}"
                yield f"{said}, which holds up every trajectory; await an asynchronous one, or write `def`"

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Parameters of `reset` that have no default."""
        return missing_columns(load_callable(self.callable), columns)

    def source_hash(self) -> str:
        """Covers the file that defines the class, not what that file imports or reads."""
        name = self.callable.rpartition(":")[2]
        return hash_json([name, source_hash(load_callable(self.callable)), dict(self.args)])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WorldMaker]:
        """Imports the class; its instances share a pool of threads."""
        threads = None
        if self.isolation is Isolation.THREAD:
            threads = ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)
        try:
            yield _Maker(load_callable(self.callable), self.args, threads, self.tools)
        finally:
            if threads is not None:
                threads.close()


class _Maker:
    """Makes instances of one class, and runs their methods where they run."""

    def __init__(
        self,
        made_by: Callable[..., Any],
        args: Mapping[str, Any],
        threads: ThreadPool | None,
        tools: Sequence[ToolDescription],
    ) -> None:
        self._made_by, self._args, self._threads = made_by, args, threads
        self._adapters = {
            tool.name: ArgumentAdapter(MethodType(getattr(made_by, tool.name), made_by)) for tool in tools
        }
        public = [name for name in dir(made_by) if not name.startswith("_")]
        self._asynchronous = frozenset(name for name in public if is_async(getattr(made_by, name)))

    @property
    def runs_on_loop(self) -> bool:
        """Whether any code of the class is awaited on the event loop, where it could swallow its cancellation."""
        return bool(self._asynchronous)

    async def make(self) -> World:
        """An instance."""
        return _ClassWorld(await self._run(self._made_by, self._args), self)

    async def call(self, instance: Any, call: ToolCall) -> Any:
        """What a tool's method returns."""
        method = self._adapters[call.name].bind(getattr(instance, call.name))
        if call.name in self._asynchronous:
            return await method(**call.arguments)
        return await self._run(method, call.arguments)

    async def live(self, instance: Any, name: str, **arguments: Any) -> Any:
        """What a method of its life returns; None where the class has no such method."""
        method = getattr(instance, name, None)
        if method is None:
            return None
        return await (method(**arguments) if name in self._asynchronous else self._run(method, arguments))

    async def _run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """What a plain function returns, and raises what it raises."""
        if self._threads is None:
            return function(**arguments)

        def work() -> tuple[Any, BaseException | None]:
            try:
                return function(**arguments), None
            except BaseException as fault:  # noqa: BLE001 - a thread must outlive SystemExit
                return None, fault

        value, fault = await self._threads.run(work)
        if fault is not None:
            raise fault
        return value


class _ClassWorld(World):
    """An instance of the user's class."""

    def __init__(self, instance: Any, maker: _Maker) -> None:
        self._instance, self._maker = instance, maker
        self.shows_state = hasattr(instance, "state")
        self.ends_when_cancelled = not maker.runs_on_loop

    async def reset(self, task: Task, seed: int) -> str | None:
        given = reset_arguments(self._instance.reset, task, seed) if hasattr(self._instance, "reset") else {}
        said: str | None = await self._maker.live(self._instance, "reset", **given)
        return said

    async def call(self, call: ToolCall) -> Step:
        try:
            return self._to_step(await self._maker.call(self._instance, call))
        except _REFUSALS as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, describe(fault)) from fault

    async def reply(self, text: str) -> Step:
        return self._to_step(await self._maker.live(self._instance, "reply", text=text))

    async def score(self) -> Mapping[str, float]:
        return to_scores(await self._maker.live(self._instance, "score"), self._instance)

    async def gold(self) -> Sequence[ToolCall | str] | None:
        return to_actions(await self._maker.live(self._instance, "gold")) if hasattr(self._instance, "gold") else None

    async def state(self) -> Any:
        return await self._maker.live(self._instance, "state")

    async def snapshot(self) -> Any:
        return await self._maker.live(self._instance, "snapshot")

    async def restore(self, snapshot: Any) -> None:
        await self._maker.live(self._instance, "restore", snapshot=snapshot)

    async def close(self) -> None:
        await self._maker.live(self._instance, "close")

    def _to_step(self, value: Any) -> Step:
        step = value if isinstance(value, Step) else Step(value)
        return step._replace(done=True) if getattr(self._instance, DONE, False) is True else step
