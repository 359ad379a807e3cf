"""All worlds of a run: opened once, one world for each trajectory, their tools declared to the executor."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar, Literal, Self

from pydantic import PrivateAttr

from rlf.core import RlfError, derive_seed
from rlf.core.clocks import Timers
from rlf.core.meter import Meter
from rlf.environments.episode import FirstStates, WorldEpisode
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.kind import CallContext, Limits, ToolKind, ToolRuntime
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolOutput

logger = logging.getLogger(__name__)


class WorldPool:
    """Worlds of one kind: `async with WorldPool(spec, seed=0) as worlds`. A `Worlds`.

    To be entered before the executor that has its `declarations`.
    """

    def __init__(
        self,
        spec: EnvSpec,
        *,
        seed: int,
        redact: Callable[[str], str] = str,
        meter: Meter | None = None,
        copies: bool = False,
    ) -> None:
        """Takes the kind; nothing is opened yet.

        Args:
            seed: the run's. A world's own follows from it and its task: rollouts of one task begin equal.
            redact: strikes secrets out of what worlds say.
            meter: counts what worlds spend.
            copies: whether a task's worlds begin with a copy of its first one; trials of worlds look at each reset.
        """
        if meter is not None:
            spec.charge_to(meter)
        self.spec = spec
        self._seed = seed
        self._redact = redact
        self._episodes: dict[str, WorldEpisode] = {}
        self._prepared: dict[str, WorldEpisode] = {}
        """Those of the episodes that no trajectory has asked for yet."""
        self._closing: set[asyncio.Task[None]] = set()
        """Close episodes that gave way."""
        self.close_faults: Counter[str] = Counter()
        """How often closes failed, by their fault."""
        self._firsts = FirstStates(are_copied=copies)
        self._permits = asyncio.Semaphore(spec.limits.max_concurrency)
        self._stack = AsyncExitStack()
        self._make: MakeWorld | None = None
        self._speaks: dict[str | None, bool] = {}
        self.declarations = tuple(self._declare(tool) for tool in spec.tools)
        """The tools of the worlds, for the executor."""

    async def __aenter__(self) -> Self:
        """Opens what all worlds share. Raises RlfError."""
        self._make = await self._stack.enter_async_context(self.spec.open())
        self._speaks = {name: part.speaks for name, part in self.spec.parts.items()}
        self._detached, self._timers = DetachedTasks(), Timers()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes every world that is still open, then what they share."""
        await self._close_prepared()
        await asyncio.gather(*(episode.close() for episode in self._episodes.values()))
        for fault, times in self.close_faults.items():
            if times > 1:
                logger.warning("world %s: close: %s: %d times in all", self.spec.kind, fault, times)
        await self._detached.close()
        await self._stack.aclose()

    def open(self, trajectory_id: str, task: Task) -> WorldEpisode:
        """Opens the world of a trajectory, which may be prepared.

        One that is wanted now never waits for those that are prepared: where there may be no more worlds, these close.
        """
        prepared = self._prepared.pop(trajectory_id, None)
        if prepared is not None:
            return prepared
        if len(self._episodes) >= self.spec.limits.max_concurrency:
            self._give_way()
        return self._open(trajectory_id, task)

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription] | None:
        """The tools that trajectories of a row see, where it describes them."""
        return self.spec.tools_of(columns)

    def foreign_tools(self, columns: Mapping[str, Any]) -> Collection[str]:
        """The tools of other rows' worlds."""
        return self.spec.foreign_tools(columns)

    async def prepare(self, wanted: Sequence[tuple[str, Task]]) -> None:
        """Begins to reset worlds of coming trajectories, by their ids, so that these need not wait.

        At most half of the worlds that there may be, in the order given: the others are for whatever is played before.
        Those prepared earlier that nobody asked for are closed.
        """
        await self._close_prepared()
        for trajectory_id, task in wanted[: self.spec.limits.max_concurrency // 2]:
            self._prepared[trajectory_id] = self._open(trajectory_id, task)
            self._prepared[trajectory_id].begin()

    async def _close_prepared(self) -> None:
        self._give_way()
        if self._closing:
            await asyncio.wait(self._closing)

    def _give_way(self) -> None:
        """Begins to close all that are prepared."""
        for trajectory_id, episode in self._prepared.items():
            del self._episodes[trajectory_id]
            closing = asyncio.create_task(episode.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._prepared = {}

    def _forget(self, trajectory_id: str, episode: WorldEpisode, fault: str | None) -> None:
        if self._episodes.get(trajectory_id) is episode:
            del self._episodes[trajectory_id]
        if fault is not None:
            self.close_faults[fault] += 1
            if self.close_faults[fault] == 1:
                logger.warning("world %s: close: %s", self.spec.kind, fault)

    def _open(self, trajectory_id: str, task: Task) -> WorldEpisode:
        assert self._make is not None, "the pool is not entered"
        assert trajectory_id not in self._episodes, f"trajectory {trajectory_id} has a world already"
        try:
            name, part = self.spec.part_of(task.columns)
        except ValueError:  # which its reset raises again, as the world's failure
            name, part = None, self.spec
        episode = self._episodes[trajectory_id] = WorldEpisode(
            part,
            task,
            derive_seed(self._seed, "world", task.id),
            name=name,
            speaks=self._speaks.get(name, False),
            make=self._make,
            firsts=self._firsts,
            permits=self._permits,
            detached=self._detached,
            timers=self._timers,
            redact=self._redact,
            forget=partial(self._forget, trajectory_id),
        )
        return episode

    async def call(self, call: ToolCall, trajectory_id: str) -> ToolOutput:
        """Runs a call in a trajectory's world. Raises ToolFailure."""
        episode = self._episodes.get(trajectory_id)
        if episode is None:
            raise ToolFailure(Outcome.INFRA, f"trajectory {trajectory_id} has no world {self.spec.kind}")
        return await episode.call(call)

    def _declare(self, tool: ToolDescription) -> ToolDeclaration:
        limits = self.spec.limits
        parts = [part.limits for part in self.spec.parts.values()]
        target = WorldTool(name=tool.name)
        target._pool = self
        try:
            return ToolDeclaration(
                name=tool.name,
                description=tool.description,
                inputSchema=dict(tool.input_schema),
                target=target,
                limits=Limits(
                    timeout_s=max(one.step_s for one in parts),
                    max_concurrency=limits.max_concurrency,
                    max_output_chars=max(one.max_output_chars for one in parts),
                    breaker=None,
                ),
            )
        except ValueError as fault:
            raise RlfError(f"env: its tool {tool.name!r} cannot be declared: {fault}") from fault


class WorldTool(ToolKind):
    """A tool of the world of whichever trajectory calls it. No file can name it."""

    shares_permits: ClassVar[bool] = True  # a world makes one call at a time
    is_played_back: ClassVar[bool] = False  # a recording holds results and no worlds, which calls change

    kind: Literal["world"] = "world"
    name: str
    _pool: WorldPool | None = PrivateAttr(default=None)

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Finds nothing: the world itself describes its tools."""
        return []

    def source_hash(self) -> str:
        """The world's."""
        assert self._pool is not None, "a world's tool without its pool"
        return self._pool.spec.source_hash()

    async def open(self, limits: Limits) -> ToolRuntime:
        """A runtime whose calls go into the trajectories' worlds."""
        assert self._pool is not None, "a world's tool without its pool"
        return _WorldRuntime(self.name, self._pool)


class _WorldRuntime(ToolRuntime):
    """Calls one tool of worlds, which keep their own deadlines."""

    isolation = "world"
    ends_in_time = True

    def __init__(self, name: str, pool: WorldPool) -> None:
        self._name, self._pool = name, pool

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call."""
        return await self._pool.call(ToolCall(self._name, arguments), context.trajectory_id)
