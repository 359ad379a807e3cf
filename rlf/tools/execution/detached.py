"""Waiting that ends at a deadline, whatever the awaited coroutine does.

`asyncio.timeout` and `wait_for` wait until a cancelled coroutine has ended; one that swallows its cancellation would
hold them for ever. Here a coroutine runs on a task of its own, which is cancelled and left behind when time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from rlf.core.clocks import Deadline, Timers

T = TypeVar("T")

GRACE_S = 0.1
"""Time a cancelled task has to clean up before it counts as abandoned, or is not waited for any more."""
_CLOSING_GRACE_S = 0.5

_STUCK: Final[set[asyncio.Task[Any]]] = set()
"""Tasks that outlived their loop: kept, since collecting one would throw GeneratorExit into code that swallows it."""


class CancelledItself(Exception):
    """The coroutine was cancelled without a request."""


class DetachedTasks:
    """The tasks of one tool, those left behind among them."""

    def __init__(self) -> None:
        self._timers = Timers()
        self.left_at: dict[asyncio.Task[Any], float] = {}
        """When each task was left behind that has not ended yet."""

    @property
    def num_abandoned(self) -> int:
        """Tasks that still run although they were cancelled more than the grace ago."""
        if not self.left_at:  # asked at every call
            return 0
        latest = monotonic() - GRACE_S
        return sum(left_at < latest for left_at in self.left_at.values())

    async def run(self, coroutine: Coroutine[Any, Any, T], deadline: Deadline, name: str) -> T:
        """The coroutine's result.

        Args:
            name: the task's, by which the monitor names what blocks the loop.

        Raises:
            TimeoutError: time is up; the coroutine was cancelled, and is left behind if it does not end.
            CancelledItself: the coroutine's own code cancelled it.
        """
        # The caller waits for a future, not for the task: to await a task is to wait until it ends, and a cancelled
        # waiter would cancel it and then wait for ever.
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        task = loop.create_task(_wake_after(coroutine, ended), name=name)
        self._timers.start(deadline, partial(_wake_waiter, ended))
        try:
            await ended
            if task.cancelling():  # by its own limit, on a busy loop: what it has to say of that is worth a moment
                await asyncio.wait((task,), timeout=GRACE_S)
            if not task.done():
                raise TimeoutError
        finally:
            self._timers.stop(deadline)
            if not task.done():  # late, or the caller itself was cancelled
                self._leave_task(task)
        if task.cancelled():  # nobody of ours cancelled it: it is done, so `_leave_task` was not called
            raise CancelledItself
        return task.result()

    async def fault_of(
        self, coroutine: Coroutine[Any, Any, object], timeout_s: float, name: str
    ) -> BaseException | None:
        """The exception of a coroutine, a late end too; None where it ends well and in time."""
        try:
            return await self.run(_guard_coroutine(coroutine), Deadline(timeout_s), name)
        except (TimeoutError, CancelledItself) as late:
            return late

    async def close(self) -> None:
        """Ends what can be ended and takes the rest off the loop, which would otherwise wait for it at its end."""
        for task in self.left_at:
            task.cancel()
        if self.left_at:
            await asyncio.wait(list(self.left_at), timeout=_CLOSING_GRACE_S)
        for task in list(self.left_at):
            # `asyncio.run` cancels every registered task and waits for all of them at its end, without limit.
            # `_unregister_task` is Python's own for libraries that make tasks ("Extending" in asyncio's documentation;
            # looked at in 3.11, and in `asyncio.tasks.__all__` there). The task runs on while the loop does: it is only
            # no longer waited for, and asyncio does not complain when it goes with the loop.
            asyncio._unregister_task(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own, as gather() uses it
            _STUCK.add(task)

    def _leave_task(self, task: asyncio.Task[Any]) -> None:
        self.left_at[task] = monotonic()
        task.add_done_callback(self._forget_ended)
        task.cancel()

    def _forget_ended(self, task: asyncio.Task[Any]) -> None:
        del self.left_at[task]
        if not task.cancelled():
            task.exception()  # looked at, or asyncio reports at its collection that nobody did


async def _guard_coroutine(coroutine: Coroutine[Any, Any, object]) -> BaseException | None:
    """Lets nothing but a cancellation out: SystemExit on a task would stop the loop itself."""
    try:
        await coroutine
    except asyncio.CancelledError:
        raise
    except BaseException as fault:  # noqa: BLE001 - returned
        return fault
    return None


async def _wake_after(coroutine: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> T:
    """Says that the coroutine has ended: half of the cost of asyncio.wait, which watches from outside."""
    try:
        return await coroutine
    finally:
        if not ended.done():
            ended.set_result(None)


def _wake_waiter(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
