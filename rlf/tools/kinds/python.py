"""`target: {kind: python}`: a function or a class of the user's own, in a module or in a file beside the spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rlf.core.callables import CallableName, NotRun, is_async, load_callable, source_hash
from rlf.core.definitions import find_definition
from rlf.core.identity import hash_json
from rlf.core.process import usable_cores
from rlf.tools.kind import Limits, ToolKind, ToolRuntime
from rlf.tools.python.inference import signature_complaints
from rlf.tools.python.parameters import documentation
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from rlf.tools.python.functions import Place


class Isolation(StrEnum):
    """Where a function runs."""

    AUTO = "auto"
    """`async def` on the loop, `def` on a thread; where the engine plays in processes of a job, a `def` function in one
    of its own, since a function that ends its process would end the job."""
    INLINE = "inline"
    """On the event loop. For `def` only if it is pure and takes microseconds: while it runs, nothing else does."""
    THREAD = "thread"
    """On a thread of the tool's own pool; `def` only. A hung thread is left behind, it cannot be killed."""
    PROCESS = "process"
    """In a process of its own, which is killed at the deadline; functions only, not classes."""


class State(StrEnum):
    """How long an instance of a class lives."""

    TRAJECTORY = "trajectory"
    """Each trajectory has one of its own, made by its first call; it has one call at a time."""
    RUN = "run"
    """All trajectories share one."""


class PythonTool(ToolKind):
    """A function that is called with the arguments as keywords, or a class whose instances are."""

    kind: Literal["python"] = "python"
    is_local = True
    callable: CallableName
    """`package.module:name`, or `path/file.py:name` relative to the file that says so; a class is made without
    arguments, and its methods `open` and `close`, if it has them, are called at the two ends of its life."""
    isolation: Isolation = Isolation.AUTO
    state: State = State.TRAJECTORY
    """How long an instance lives, where `callable` is a class."""
    processes: int | None = Field(default=None, ge=1)
    """Processes that calls run in at once, with `isolation: process`; None: one for each core."""

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Compares the signature with the schema."""
        return self._find_misfits(load_callable(self.callable), input_schema)

    def static_complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """The same of the signature as the source writes it, where the source settles it."""
        found = find_definition(self.callable)
        return [] if found is None else self._find_misfits(found.stub, input_schema)

    def _find_misfits(self, target: Callable[..., Any], input_schema: Mapping[str, Any]) -> list[str]:
        if inspect.isclass(target):
            if "__call__" not in dir(target):
                return [f"{self.callable} is a class whose instances cannot be called; give it `def __call__(self)`"]
            if self.isolation is Isolation.PROCESS:
                return [f"{self.callable} is a class, and `isolation: process` takes functions; write a function"]
        function = _bind_callable(target)
        if is_async(function) and self.isolation is Isolation.THREAD:
            return [f"{self.callable} is `async def`, which runs on the event loop; write `isolation: auto`"]
        if is_async(function) and self.isolation is not Isolation.PROCESS:
            from rlf.core.mistakes import blocking_calls

            if blocking := ", ".join(blocking_calls(function)):
                message = f"{self.callable} is `async def` and calls {blocking}, which blocks every trajectory"
                return [f"{message} while it waits; await an asynchronous function, or write `def`"]
        if self.isolation is Isolation.PROCESS and self.callable.startswith("__main__:"):
            return [f"{self.callable} is in the main program, which no other process can import; name a module"]
        return signature_complaints(function, input_schema)

    def described(self) -> ToolDescription:
        """Reads the signature and the docstring; a class's own docstring where its `__call__` has none.

        From the source alone where that says it all. Raises RlfError.
        """
        from rlf.tools.python.description import describe_function

        target = self._find_function()
        found = describe_function(_bind_callable(target), self.callable)
        return found if found.description else replace(found, description=documentation(target))

    def _find_function(self) -> Callable[..., Any]:
        """The function, or a stand-in with the same signature and docstring that took no import to make."""
        found = find_definition(self.callable)
        if found is not None and found.complete:
            return found.stub
        try:
            return load_callable(self.callable)
        except NotRun:
            if found is None:
                raise
            return found.stub

    def source_hash(self) -> str:
        """Covers the file that defines the function, not what that file imports or reads."""
        return hash_json([self.callable.rpartition(":")[2], source_hash(load_callable(self.callable))])

    def contained(self) -> PythonTool:
        """A `def` function in processes. An `async def` stays on the loop: many of its calls wait there at once."""
        target = load_callable(self.callable)
        stays = inspect.isclass(target) or is_async(target) or self.callable.startswith("__main__:")
        if self.isolation is not Isolation.AUTO or stays:
            return self
        return self.model_copy(update={"isolation": Isolation.PROCESS})

    def concurrency(self, limits: Limits) -> int:
        """No more calls at once than there are processes."""
        if self.isolation is not Isolation.PROCESS:
            return limits.max_concurrency
        return min(limits.max_concurrency, self.processes or usable_cores())

    async def open(self, limits: Limits) -> ToolRuntime:
        """Imports the function, and what runs it, which a check of a spec does without."""
        target = load_callable(self.callable)
        if self.isolation is Isolation.PROCESS:
            from rlf.tools.python.processes import ProcessRuntime

            runtime = ProcessRuntime(self.callable)
            await runtime.open()
            return runtime
        from rlf.tools.python.functions import FunctionRuntime, OnLoop

        place: Place = OnLoop()
        if self.isolation is not Isolation.INLINE and not is_async(_bind_callable(target)):
            from rlf.tools.python.threads import OnThread

            place = OnThread(limits.max_concurrency)
        if not inspect.isclass(target):
            return FunctionRuntime(target, place)
        from rlf.tools.python.instances import ClassRuntime

        return ClassRuntime(target, place, by_trajectory=self.state is State.TRAJECTORY)


def _bind_callable(target: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a call runs: a class's `__call__` is bound, so that `self` is not in its signature."""
    return MethodType(target.__call__, target) if inspect.isclass(target) else target
