"""Calls of many trajectories gathered into one request.

Invariant: a call waits for its own result only; that it is cancelled or late changes nothing for the others of its
batch. No batch is larger than `max_size`, and none is sent later than `max_wait_s` after its first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from pydantic import Field

from rlf.core.kinds import StrictModel

In = TypeVar("In")
Out = TypeVar("Out")


class BatchSpec(StrictModel):
    """How calls of many trajectories share one request. Its templates see `calls`, the arguments of each call."""

    max_size: int = Field(default=64, ge=1)
    """Calls in one request."""
    max_wait_ms: float = Field(default=5.0, ge=0, allow_inf_nan=False)
    """How long the first call of a request waits for others, in milliseconds."""
    answers: str = Field(min_length=1)
    """Path, as `response`, to the list that holds one answer per call in the order of `calls`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[In, Out]):
    item: In
    deadline: float
    reply: asyncio.Future[Out]


class Batcher(Generic[In, Out]):
    """Collects items and hands them on together."""

    def __init__(
        self, run: Callable[[Sequence[In], float], Awaitable[Sequence[Out]]], max_size: int, max_wait_s: float
    ) -> None:
        """Takes what runs a batch.

        Args:
            run: gives one result per item, in order, within the given seconds: the most that any of them has.
        """
        self._run = run
        self._max_size = max_size
        self._max_wait_s = max_wait_s
        self._waiting: list[_Waiting[In, Out]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, item: In, deadline_s: float) -> Out:
        """The result of one item. Raises what the batch raises."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[In, Out] = _Waiting(item, monotonic() + deadline_s, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) >= self._max_size:
            self._flush_batch()
        elif self._timer is None:
            self._timer = loop.call_later(self._max_wait_s, self._flush_batch)
        try:
            return await waiting.reply
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    async def close(self) -> None:
        """Cancels the batches under way."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _flush_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, []
        if batch:
            task = asyncio.get_running_loop().create_task(self._answer_batch(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            _stop_when_abandoned(task, batch)

    async def _answer_batch(self, batch: Sequence[_Waiting[In, Out]]) -> None:
        try:
            limit_s = max(waiting.deadline for waiting in batch) - monotonic()
            results = await self._run([waiting.item for waiting in batch], limit_s)
            assert len(results) == len(batch), f"{len(results)} results of {len(batch)} calls"
        except Exception as fault:  # noqa: BLE001 - raised in every call of the batch
            for waiting in batch:
                if not waiting.reply.done():
                    waiting.reply.set_exception(fault)
        else:
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.reply.done():
                    waiting.reply.set_result(result)
        finally:
            for waiting in batch:
                waiting.reply.cancel()


def _stop_when_abandoned(task: asyncio.Task[None], batch: Sequence[_Waiting[In, Out]]) -> None:
    """Ends a request that nobody waits for any more."""

    def look(_: asyncio.Future[Out]) -> None:
        if all(waiting.reply.cancelled() for waiting in batch):
            task.cancel()

    for waiting in batch:
        waiting.reply.add_done_callback(look)
