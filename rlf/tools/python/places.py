"""Where Python code of a tool runs: on the event loop, or on a thread of the tool's own pool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from rlf.tools.failure import ToolFailure, describe, outcome_of_fault
from rlf.tools.limits import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool

T = TypeVar("T")

Function = Callable[..., Any]


class OnLoop:
    """On the event loop itself; what the function returns is awaited if it can be."""

    isolation = "inline"
    ends_when_cancelled = False
    num_abandoned = 0

    async def call(self, function: Function, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        """`finish` of what the function returns, both run in this place; raises what they raise."""
        value = function(**arguments)
        return finish(await value if inspect.iscoroutine(value) else value)

    def close(self) -> None:
        """Holds nothing."""


class OnThread:
    """On a thread; cancelling a call leaves its thread behind."""

    isolation = "thread"
    ends_when_cancelled = True

    def __init__(self, max_concurrency: int) -> None:
        self._pool = ThreadPool(max_concurrency + MAX_ABANDONED)

    @property
    def num_abandoned(self) -> int:
        """Threads that still run a call nobody waits for."""
        return self._pool.num_abandoned

    async def call(self, function: Function, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        def work() -> T:
            try:
                return finish(function(**arguments))
            except ToolFailure:
                raise
            except BaseException as fault:  # a thread must outlive SystemExit; a future cannot hold StopIteration
                raise ToolFailure(outcome_of_fault(fault), describe(fault)) from fault

        return await self._pool.run(work)

    def close(self) -> None:
        """Ends the idle threads; busy ones end with their call."""
        self._pool.close()


Place: TypeAlias = OnLoop | OnThread
"""Runs functions."""
