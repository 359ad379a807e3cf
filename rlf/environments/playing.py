"""Episodes without a model: actions played in a world through the pool and the executor that training uses."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from typing import Any

from rlf.environments.episode import WorldEpisode
from rlf.environments.instances import to_actions
from rlf.environments.kind import EnvSpec
from rlf.environments.pool import WorldPool
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, Phase, StateChange, Task, ToolCall, ToolDescription, WorldFailure, WorldRecord

Action = ToolCall | str
"""A call, or the text of a turn without calls."""


@dataclass(frozen=True, slots=True)
class Happened:
    """One action and what it led to."""

    action: Action
    said: str | None
    outcome: Outcome | None
    """Of a call; None for words."""
    reward: float | None
    changes: tuple[StateChange, ...]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Played:
    """One episode. Equal for equal episodes: times are left out."""

    observation: str | None
    first_state: str
    steps: tuple[Happened, ...]
    scores: tuple[tuple[str, float], ...]
    failure: str | None
    phase: Phase | None = None
    """What the world failed in."""
    seconds: dict[str, float] = field(compare=False, default_factory=dict)
    """Longest time by phase: `reset`, `step`, `score`."""


Policy = Callable[["Scene"], "Action | Awaitable[Action | None] | None"]
"""Chooses the next action; None: it stops."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The view of a policy."""

    task: Task
    observation: str | None
    tools: Sequence[ToolDescription]
    speaks: bool
    past: tuple[Happened, ...] = ()


class Playing:
    """An episode as it is played."""

    def __init__(self, bench: Bench, task: Task, policy: Policy) -> None:
        self._bench, self._task, self._policy = bench, task, policy
        self.id = f"trial/{next(bench.numbers)}"
        self.episode: WorldEpisode = bench.worlds.open(self.id, task)
        self._seconds: dict[str, float] = {}
        self._steps: list[Happened] = []
        self._scene: Scene | None = None
        self.failure: str | None = None
        """The first failure."""
        self._is_over = False

    async def begin(self) -> None:
        """Resets the world."""
        await self._measure("reset", self.episode.reset())
        tools = [tool for tool in self._bench.executor.descriptions if self._task.may_use(tool.name)]
        self._scene = Scene(self._task, self.episode.record.observation, tools, self.episode.speaks)

    async def step(self) -> bool:
        """Plays the policy's next action; False when the episode is over."""
        if self.failure is not None or self._is_over or len(self._steps) >= self._bench.max_actions:
            return False
        assert self._scene is not None, "a step before the reset"
        chosen = self._policy(replace(self._scene, past=tuple(self._steps)))
        action = await chosen if inspect.isawaitable(chosen) else chosen
        if action is None:
            return False
        said, outcome = None, None
        if isinstance(action, ToolCall):
            result = await self._measure("step", self._bench.executor.invoke(action, trajectory_id=self.id))
            said, outcome = result.text, result.outcome
            if result.outcome.is_infrastructure:
                self.failure = self.failure or result.text
        elif self.episode.speaks:
            await self._measure("step", self.episode.reply(action))
        if self.failure is not None:
            self._steps.append(Happened(action, None, outcome, None, (), False))
            return False
        step = self.episode.take_step()
        said = step.reply if step.reply is not None else said
        self._steps.append(Happened(action, said, outcome, step.reward, step.changes, step.is_over))
        ends_by_words = not isinstance(action, ToolCall) and step.reply is None
        self._is_over = step.is_over or ends_by_words
        return not self._is_over

    async def end(self) -> Played:
        """Scores and closes the world."""
        if self.failure is None:
            await self._measure("score", self.episode.score())
        record = self.episode.record
        await self.episode.close()
        await self._bench.executor.end_trajectory(self.id)
        steps, scores = tuple(self._steps), dict(record.scores)
        if self._bench.judge is not None and self.failure is None:
            scores |= await self._bench.judge(self._task, steps, record)
        ranked = tuple(sorted(scores.items()))
        return Played(record.observation, record.first_state, steps, ranked, self.failure, record.failed, self._seconds)

    async def _measure(self, phase: str, work: Any) -> Any:
        started = perf_counter()
        try:
            return await work
        except WorldFailure as failure:
            self.failure = str(failure)
        finally:
            self._seconds[phase] = max(self._seconds.get(phase, 0.0), perf_counter() - started)


Judge = Callable[[Task, Sequence[Happened], WorldRecord], Awaitable[Mapping[str, float]]]
"""Scores of an episode beside those that its world gives."""


class GoldFault(Exception):
    """The solution that a task names cannot be played."""


class Bench:
    """A world's pool and executor, open, and the tasks that are tried."""

    def __init__(
        self,
        worlds: WorldPool,
        executor: Executor,
        tasks: Sequence[Task],
        max_actions: int,
        seed: int,
        tools: Sequence[ToolDeclaration],
    ) -> None:
        self.worlds, self.executor, self.tasks, self.max_actions = worlds, executor, tasks, max_actions
        self.seed, self.tools = seed, tools
        self.numbers = count()
        self.played: list[Played] = []
        """Every episode so far."""
        self.judge: Judge | None = None

    @property
    def spec(self) -> EnvSpec:
        """The world's."""
        return self.worlds.spec

    @property
    def num_worlds(self) -> int:
        """Worlds that there may be at once."""
        return self.spec.limits.max_concurrency

    async def play(self, task: Task, policy: Policy) -> Played:
        """One episode by itself."""
        return (await self.play_together([(task, policy)]))[0]

    async def play_together(self, parts: Sequence[tuple[Task, Policy]]) -> list[Played]:
        """Episodes at once, one action of each in turn."""
        # The first ends after the last has begun: one more than there may be would wait for ever.
        assert len(parts) <= self.num_worlds, f"{len(parts)} episodes at once in {self.num_worlds} worlds"
        playing = [Playing(self, task, policy) for task, policy in parts]
        try:
            for one in playing:
                await one.begin()
            going = list(playing)
            while going:
                going = [one for one in going if await one.step()]
            return list(await asyncio.gather(*map(self._end_play, playing)))
        finally:
            await asyncio.gather(*(one.episode.close() for one in playing))

    async def _end_play(self, playing: Playing) -> Played:
        played = await playing.end()
        self.played.append(played)
        return played

    async def gold(self, task: Task) -> tuple[Action, ...] | None:
        """The solution of a task: the row's column `gold`, else what the world says; None where neither is known.

        Raises:
            GoldFault: something is given, and it cannot be played.
        """
        try:
            if task.columns.get("gold") is not None:
                return to_actions(task.columns["gold"])
            playing = Playing(self, task, lambda _: None)
            try:
                await playing.begin()
                actions = None if playing.failure else await playing.episode.gold()
            finally:
                await playing.episode.close()
            return None if actions is None else tuple(actions)
        except (TypeError, WorldFailure) as fault:
            words = fault.reason if isinstance(fault, WorldFailure) else fault
            raise GoldFault(f"task {task.id}: its gold: {words}") from fault


def follow(actions: Sequence[Action]) -> Policy:
    """The policy that plays these actions."""
    return lambda scene: actions[len(scene.past)] if len(scene.past) < len(actions) else None


@asynccontextmanager
async def open_bench(
    env: EnvSpec, tasks: Sequence[Task], *, seed: int, tools: Sequence[ToolDeclaration] = (), max_actions: int = 32
) -> AsyncIterator[Bench]:
    """Opens a world and the tools beside it. Raises RlfError."""
    async with WorldPool(env, seed=seed) as worlds, Executor([*tools, *worlds.declarations], seed=seed) as executor:
        yield Bench(worlds, executor, tasks, max_actions, seed, tools)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The scores that count, and their bounds."""

    bounds: Mapping[str, tuple[float, float]]
    """Least and greatest value of each score that is a reward; empty: every score is, from 0 to 1."""
    weights: Mapping[str, float]
    step: tuple[float, float] | None = None
    """Bounds of the rewards of steps; None where none is declared."""

    def value(self, scores: Mapping[str, float]) -> float:
        """The share of the possible reward: 0 at the floor, 1 at the maximum."""
        bounds = self.bounds or dict.fromkeys(scores, (0.0, 1.0))
        weights = {name: self.weights.get(name, 1.0) for name in bounds}
        paid = {name: weight for name, weight in weights.items() if weight > 0} or weights
        most = sum(paid[name] * (bounds[name][1] - bounds[name][0]) for name in paid)
        have = sum(paid[name] * (scores.get(name, bounds[name][0]) - bounds[name][0]) for name in paid)
        return have / most if most else 0.0

    @property
    def idle_value(self) -> float:
        """The share that no reward at all is: above 0 where wrong actions cost something, and right ones pay."""
        pays = {name: least if most <= 0 else min(max(0.0, least), most) for name, (least, most) in self.bounds.items()}
        return self.value(pays) if pays else 0.0
