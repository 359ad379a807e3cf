"""`kind: python`: a reward function of the user's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import cached_property
from inspect import Parameter
from typing import Any, Literal

from pydantic import Field

from rlf.core.callables import CallableName, load_callable
from rlf.rewards.term import Term, Verdict
from rlf.types import Trajectory


class PythonTerm(Term):
    """`fn(trajectory, **columns)`, where columns are those of the task's row that the function has parameters for.

    A plain function runs on the event loop and should be quick; `async def` may wait, for `timeout_s` at most.
    """

    kind: Literal["python"] = "python"
    callable: CallableName
    """`package.module:name`, or `path/file.py:name` relative to the file that says so."""
    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Time an `async def` function has; past it the trajectory is unscorable."""

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return load_callable(self.callable)

    def prepare(self) -> None:
        """Imports the function."""
        load_callable(self.callable)

    async def score(self, trajectory: Trajectory) -> Verdict:
        """What the function returns: a number, or None when it cannot score."""
        value = self._function(trajectory, **self._columns(trajectory))
        if inspect.isawaitable(value):
            value = await _within(value, self.timeout_s)
        if value is None:
            return Verdict(None, f"{self.callable} returned None")
        if isinstance(value, str | bytes):
            return Verdict(None, f"{self.callable} returned {value[:80]!r}, no number")
        return Verdict(float(value))

    def _columns(self, trajectory: Trajectory) -> dict[str, Any]:
        parameters = list(inspect.signature(self._function).parameters.values())
        columns = trajectory.task.columns
        named = {parameter.name for parameter in parameters[1:]}
        if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
            named |= columns.keys() - {parameters[0].name}
        return {name: value for name, value in columns.items() if name in named}


async def _within(awaitable: Any, timeout_s: float) -> Any:
    """Its result. A coroutine that swallows its cancellation is left behind, so the wait ends all the same."""
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        if not task.done():
            raise TimeoutError(f"no value within {timeout_s:g} s")
        return task.result()
    finally:
        task.cancel()
