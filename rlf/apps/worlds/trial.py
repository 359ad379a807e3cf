"""A world under trial: its verdicts, and what was learnt of it so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any, ClassVar

from rlf.apps.worlds.policies import panel, tool_calls
from rlf.core.identity import hash_json
from rlf.core.plain_json import Jsonable
from rlf.core.text import show_value
from rlf.environments.episode import CLOSE_S, describe_late
from rlf.environments.playing import Action, Bench, Happened, Played, Policy, Ranges, follow
from rlf.types import Task, ToolCall

NEAR = 1e-9
ONE_WORLD = "`limits.max_concurrency` is 1, so that there is never a second world"
LATE = "not finished within"
"""In the words of a failure: a deadline was missed."""
NO_CLOSE = describe_late(TimeoutError(), CLOSE_S)
"""The fault of a close that missed its deadline."""


class Sign(StrEnum):
    """How a point came out."""

    OK = "ok"
    """As it has to be."""
    FAILED = "failed"
    """Not to be trained in."""
    UNKNOWN = "unknown"
    """It could not be looked at; the words say why."""


@dataclass(frozen=True, slots=True)
class PointVerdict:
    """One point."""

    name: str
    sign: Sign
    words: str


@dataclass(frozen=True, slots=True)
class Page(Jsonable):
    """All verdicts on a world."""

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("sha256", "is_sound")

    world: str
    """The world's kind."""
    source: str
    """sha256 of what decides how it behaves."""
    num_tasks: int
    num_episodes: int
    verdicts: tuple[PointVerdict, ...]

    @property
    def failed(self) -> tuple[PointVerdict, ...]:
        """The points that keep it from being trained in."""
        return tuple(verdict for verdict in self.verdicts if verdict.sign is Sign.FAILED)

    @property
    def is_sound(self) -> bool:
        """Whether no point failed."""
        return not self.failed

    @property
    def sha256(self) -> str:
        """Of the page: what runs of that world are recorded with."""
        return hash_json(asdict(self))


@dataclass(slots=True)
class TrialWorld:
    """A world under trial, and what was learnt of it so far."""

    bench: Bench
    ranges: Ranges
    tolerance: float
    """Share of the reward that a policy without skill may earn by luck, on average over the tasks."""
    golds: list[tuple[Action, ...] | None] = field(default_factory=list)
    gold_fault: str | None = None
    """The fault of the first solution that cannot be played."""
    failed: set[str] = field(default_factory=set)
    """Points that failed so far."""
    max_turns: int | None = None
    """Turns of an episode in training."""
    is_late: bool = False
    """Whether a deadline was missed."""
    references: dict[tuple[int, str], Played] = field(default_factory=dict)
    """Episodes by task and policy, each played alone."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks to play."""
        return self.bench.tasks

    def value(self, played: Played) -> float:
        """The share of the possible reward that an episode earned."""
        return self.ranges.value(dict(played.scores))

    def probe(self, at: int) -> Policy:
        """A policy that moves the world of a task: its gold, else every tool."""
        gold = self.golds[at]
        return follow(gold) if gold else self.skilless["spam"][0]

    async def play(self, task: Task, policy: Policy) -> Played:
        """One episode by itself. Raises Unfit where the world hangs: no other episode of it is worth its time."""
        return self.take(await self.bench.play(task, policy))

    def take(self, played: Played) -> Played:
        """An episode that was not late. Raises Unfit."""
        if played.failure is not None and LATE in played.failure:
            self.is_late = True
            raise Unfit(played.failure)
        if NO_CLOSE in self.bench.worlds.close_faults:
            self.is_late = True
            raise Unfit(f"close, after an episode: {NO_CLOSE}")
        return played

    def scripts(self, at: int) -> dict[str, tuple[Action, ...]]:
        """Actions that move the world of a task, by name: nothing, its gold, every tool twice, each tool alone."""
        scripts: dict[str, tuple[Action, ...]] = {"no-op": ()}
        if self.golds[at]:
            scripts["gold"] = tuple(self.golds[at] or ())
        tools = [tool for tool in self.bench.executor.descriptions if self.tasks[at].may_use(tool.name)]
        calls = {tool.name: tool_calls(tool, self.known_calls) for tool in tools}
        every = [call for one in calls.values() for call in one][: self.bench.max_actions // 2]
        if every:
            scripts["spam"] = tuple(every * 2)
        for name, alone in list(calls.items())[:_MAX_TOOLS]:
            if alone and len(calls) > 1:
                scripts[f"only {name}"] = tuple(alone * 2)[: self.bench.max_actions]
        return scripts

    @property
    def known_calls(self) -> Sequence[ToolCall]:
        """The calls of all solutions."""
        return [action for gold in self.golds for action in gold or () if isinstance(action, ToolCall)]

    async def reference(self, at: int, name: str) -> Played:
        """The episode of a task by a script, played once."""
        if (at, name) not in self.references:
            self.references[at, name] = await self.play(self.tasks[at], follow(self.scripts(at)[name]))
        return self.references[at, name]

    @property
    def skilless(self) -> Mapping[str, Sequence[Policy]]:
        """Policies that solve nothing."""
        names = list(self.ranges.bounds) or sorted({name for one in self.bench.played for name, _ in one.scores})
        return panel(names, self.bench.executor.descriptions)


Check = Callable[[TrialWorld], Awaitable[tuple[Sign, str]]]
_MAX_TOOLS = 12


class Unfit(Exception):
    """A world did something other than what it was asked."""


def first_difference(one: Played, other: Played) -> str:
    """Where two episodes part, in words."""
    pairs: list[tuple[str, Any, Any]] = [
        ("failure", one.failure, other.failure),  # first: it is why what follows is missing
        ("the first words", one.observation, other.observation),
        ("the first state", one.first_state, other.first_state),
    ]
    for number, (a, b) in enumerate(zip_longest(one.steps, other.steps), start=1):
        pairs.append((f"step {number}", a, b))
    pairs.append(("scores", dict(one.scores), dict(other.scores)))
    name, a, b = next((pair for pair in pairs if pair[1] != pair[2]), ("nothing", None, None))
    if isinstance(a, Happened) and isinstance(b, Happened):
        a, b = (step.said if one.said != other.said else step for step, one, other in ((a, a, b), (b, a, b)))
    return f"{name}: {show_value(a, 160)}, then {show_value(b, 160)}"


def name_action(action: Action) -> str:
    """An action in a few words."""
    return action if isinstance(action, str) else action.name


def show_worst(played: Played) -> str:
    """What an episode did, and what it earned."""
    actions = [name_action(step.action) for step in played.steps]
    listed = ", ".join(repr(action)[:60] for action in actions[:4])
    return f"It did: {listed or 'nothing'}{', ...' if len(actions) > 4 else ''}; scores {dict(played.scores)}"
