"""Episodes without a model: actions played in a world through the pool and the executor that training uses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from time import perf_counter
from typing import Any

from rlf.environments.classes import to_actions
from rlf.environments.episode import WorldEpisode
from rlf.environments.kind import EnvSpec
from rlf.environments.pool import WorldPool
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, StateChange, Task, ToolCall, ToolDescription, WorldFailure

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
        scores = tuple(sorted(record.scores.items()))
        steps = tuple(self._steps)
        return Played(record.observation, record.first_state, steps, scores, self.failure, self._seconds)

    async def _measure(self, phase: str, work: Any) -> Any:
        started = perf_counter()
        try:
            return await work
        except WorldFailure as failure:
            self.failure = str(failure)
        finally:
            self._seconds[phase] = max(self._seconds.get(phase, 0.0), perf_counter() - started)


class GoldFault(Exception):
    """The solution that a task names cannot be played."""


class Bench:
    """A world's pool and executor, open, and the tasks that are tried."""

    def __init__(self, worlds: WorldPool, executor: Executor, tasks: Sequence[Task], max_actions: int) -> None:
        self.worlds, self.executor, self.tasks, self.max_actions = worlds, executor, tasks, max_actions
        self.numbers = count()
        self.played: list[Played] = []
        """Every episode so far."""

    @property
    def spec(self) -> EnvSpec:
        """The world's."""
        return self.worlds.spec

    async def play(self, task: Task, policy: Policy) -> Played:
        """One episode by itself."""
        return (await self.play_together([(task, policy)]))[0]

    async def play_together(self, parts: Sequence[tuple[Task, Policy]]) -> list[Played]:
        """Episodes at once, one action of each in turn."""
        playing = [Playing(self, task, policy) for task, policy in parts]
        try:
            for one in playing:
                await one.begin()
            going = list(playing)
            while going:
                going = [one for one in going if await one.step()]
            return [await self._end_play(one) for one in playing]
        finally:
            for one in playing:
                await one.episode.close()

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
            return await self._ask_gold(task)
        except (TypeError, WorldFailure) as fault:
            words = fault.reason if isinstance(fault, WorldFailure) else fault
            raise GoldFault(f"task {task.id}: its gold: {words}") from fault

    async def _ask_gold(self, task: Task) -> tuple[Action, ...] | None:
        playing = Playing(self, task, lambda _: None)
        try:
            await playing.begin()
            actions = None if playing.failure else await playing.episode.gold()
        finally:
            await playing.episode.close()
        return None if actions is None else tuple(actions)


def follow(actions: Sequence[Action]) -> Policy:
    """The policy that plays these actions."""
    return lambda scene: actions[len(scene.past)] if len(scene.past) < len(actions) else None


def first_difference(one: Played, other: Played) -> str:
    """Where two episodes part, in words."""
    pairs: list[tuple[str, Any, Any]] = [
        ("the first words", one.observation, other.observation),
        ("the first state", one.first_state, other.first_state),
    ]
    for number, (a, b) in enumerate(zip_longest(one.steps, other.steps), start=1):
        pairs.append((f"step {number}", a, b))
    pairs += [("scores", dict(one.scores), dict(other.scores)), ("failure", one.failure, other.failure)]
    name, a, b = next((pair for pair in pairs if pair[1] != pair[2]), ("nothing", None, None))
    if isinstance(a, Happened) and isinstance(b, Happened):
        a, b = (step.said if one.said != other.said else step for step, one, other in ((a, a, b), (b, a, b)))
    return f"{name}: {_shorten(a)}, then {_shorten(b)}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:159]}…"


@asynccontextmanager
async def open_bench(
    env: EnvSpec, tasks: Sequence[Task], *, seed: int, tools: Sequence[ToolDeclaration] = (), max_actions: int = 32
) -> AsyncIterator[Bench]:
    """Opens a world and the tools beside it. Raises RlfError."""
    async with WorldPool(env, seed=seed) as worlds, Executor([*tools, *worlds.declarations], seed=seed) as executor:
        yield Bench(worlds, executor, tasks, max_actions)
