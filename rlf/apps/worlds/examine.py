"""Trials of a world, point by point. Each looks at one promise, and says what it saw."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any, ClassVar, TypeVar

from rlf.apps.worlds.policies import panel
from rlf.core.identity import hash_json
from rlf.core.plain_json import Jsonable
from rlf.environments.episode import CLOSE_S, describe_late
from rlf.environments.kind import EnvLimits, MakeWorld, World
from rlf.environments.playing import Action, Bench, GoldFault, Happened, Played, Policy, Ranges, follow
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task

T = TypeVar("T")


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


_NEAR = 1e-9
_LATE_SHARE = 0.5
_OK, _FAILED, _UNKNOWN = Sign.OK, Sign.FAILED, Sign.UNKNOWN
_ONE_WORLD = "`limits.max_concurrency` is 1, so that there is never a second world"
_SEE_RESET = "worlds do not begin, or keep state of an earlier episode; see reset"


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

    @property
    def skilless(self) -> Mapping[str, Sequence[Policy]]:
        """Policies that solve nothing."""
        names = list(self.ranges.bounds) or sorted({name for one in self.bench.played for name, _ in one.scores})
        return panel(names, self.bench.executor.descriptions)


Check = Callable[[TrialWorld], Awaitable[tuple[Sign, str]]]


async def _check_reset(subject: TrialWorld) -> tuple[Sign, str]:
    """Every task resets, and a world begins equal whatever was played before it in another one."""
    bench, noop = subject.bench, follow(())
    before = [await bench.play(task, noop) for task in subject.tasks]
    if failures := [one.failure for one in before if one.failure]:
        return _FAILED, f"{len(failures)} of {len(before)} tasks: {failures[0]}"
    again = await bench.play(subject.tasks[0], noop)
    if again != before[0]:
        return _UNKNOWN, "worlds differ before any action; see determinism"
    for at, task in enumerate(subject.tasks):
        await bench.play(task, subject.probe(at))
        after = await bench.play(task, noop)
        if after != before[at]:
            return _FAILED, f"state of the last episode remains: {first_difference(before[at], after)}"
    if bench.spec.left_behind:
        return _FAILED, bench.spec.left_behind
    return _OK, f"{len(before)} of {len(before)} tasks; no episode's state reaches the next one"


async def _check_determinism(subject: TrialWorld) -> tuple[Sign, str]:
    """The same actions with the same seed lead to the same words, states and scores."""
    if "reset" in subject.failed:
        return _UNKNOWN, _SEE_RESET
    for at, task in enumerate(subject.tasks):
        for policy in (follow(()), subject.probe(at)):
            one, other = [await subject.bench.play(task, policy) for _ in range(2)]
            if one != other:
                return _FAILED, f"the same actions gave {first_difference(one, other)}"
    return _OK, "the same actions give the same words, states and scores"


async def _check_isolation(subject: TrialWorld) -> tuple[Sign, str]:
    """Two episodes at once, action by action in turn, are what each is alone."""
    if {"reset", "determinism"} & subject.failed:
        return _UNKNOWN, "worlds differ even one after the other"
    if subject.bench.num_worlds < 2:
        return _UNKNOWN, _ONE_WORLD
    pairs = [(0, len(subject.tasks) - 1), (0, 0)]
    for one, other in dict.fromkeys(pairs):
        for second in (subject.probe(other), follow(())):
            parts = [(subject.tasks[one], subject.probe(one)), (subject.tasks[other], second)]
            alone = [await subject.bench.play(task, policy) for task, policy in parts]
            together = await subject.bench.play_together(parts)
            for a, b in zip(alone, together, strict=True):
                if a != b:
                    return (
                        _FAILED,
                        f"an episode gave another result when a second one ran beside it: {first_difference(a, b)}",
                    )
    return _OK, "two episodes at once give the same results as one after the other"


async def _check_gold(subject: TrialWorld) -> tuple[Sign, str]:
    """A known solution earns the maximum."""
    if subject.gold_fault is not None:
        return _FAILED, subject.gold_fault
    known = [(task, gold) for task, gold in zip(subject.tasks, subject.golds, strict=True) if gold is not None]
    if not known:
        return _UNKNOWN, "no solution is known; write a method `gold()`, or a column `gold` in the rows"
    values = []
    for task, gold in known:
        played = await subject.bench.play(task, follow(gold))
        if played.failure is not None:
            return _FAILED, f"task {task.id}: {played.failure}"
        if (value := subject.value(played)) < 1 - _NEAR:
            words = f"task {task.id}: gold earns {value:.3g} of the maximum, with {dict(played.scores)}"
            for step in played.steps:
                if step.outcome not in (None, Outcome.OK):
                    return _FAILED, f"{words}; {_name_action(step.action)} -> {step.outcome}: {step.said}"
            return _FAILED, words
        values.append(value)
    return _OK, f"{len(values)} of {len(values)} golds earn the maximum"


async def _check_steps(subject: TrialWorld) -> tuple[Sign, str]:
    """No call that the tools' schemas allow, and no answer, makes a world fail: a policy could hide behind that."""
    if "reset" in subject.failed:
        return _UNKNOWN, _SEE_RESET
    for name in ("spam", "empty answers"):
        for task in subject.tasks:
            played = await subject.bench.play(task, subject.skilless[name][0])
            if played.failure is not None:
                return _FAILED, f"{played.failure}. {_show_worst(played)}"
    return _OK, "every tool with sample arguments, then senseless and empty answers"


async def _check_range(subject: TrialWorld) -> tuple[Sign, str]:
    """All scores so far are finite, in their range, and there under their names."""
    finished = [played for played in subject.bench.played if played.failure is None]
    for played in finished:
        scores = dict(played.scores)
        for name, (least, most) in (subject.ranges.bounds or dict.fromkeys(scores, (-math.inf, math.inf))).items():
            if name not in scores:
                return _FAILED, f"no score {name!r} (there are: {', '.join(scores) or 'none'})"
            if not least - _NEAR <= scores[name] <= most + _NEAR:
                return _FAILED, f"{name} is {scores[name]:g}; its range is {least:g} to {most:g}"
        least, most = subject.ranges.step or (-math.inf, math.inf)
        for step in played.steps:
            if step.reward is not None and not least <= step.reward <= most:
                return _FAILED, f"a step's reward is {step.reward:g}; its range is {least:g} to {most:g}"
    if not finished:
        return _UNKNOWN, "no episode came to its score"
    return _OK, f"scores of {len(finished)} episodes are in their range"


async def _check_deadlines(subject: TrialWorld) -> tuple[Sign, str]:
    """Nothing so far was late."""
    limits = subject.bench.spec.limits
    allowed = {"reset": limits.reset_s, "step": limits.step_s, "score": limits.score_s}
    late = [
        played.failure for played in subject.bench.played if played.failure and "not finished within" in played.failure
    ]
    if late:
        return _FAILED, late[0]
    slowest = {name: max((one.seconds.get(name, 0.0) for one in subject.bench.played), default=0.0) for name in allowed}
    near = [name for name in allowed if slowest[name] > _LATE_SHARE * allowed[name]]
    words = ", ".join(f"{name} {slowest[name]:.2g} of {allowed[name]:g} s" for name in allowed)
    return (_FAILED, f"more than half of {', '.join(near)}: {words}") if near else (_OK, f"slowest: {words}")


async def _check_close(subject: TrialWorld) -> tuple[Sign, str]:
    """A world closes, also one that was never reset."""
    detached, reset_s = DetachedTasks(), subject.bench.spec.limits.reset_s
    async with subject.bench.spec.open() as make:
        for is_reset in (False, True):
            world = await _ask_world(make(), reset_s, "to be made")
            if is_reset:
                await detached.fault_of(world.reset(subject.tasks[0], 0), reset_s, "reset")
            if (fault := await detached.fault_of(world.close(), CLOSE_S, "close")) is not None:
                return _FAILED, f"{'after' if is_reset else 'without'} a reset: {describe_late(fault, CLOSE_S)}"
    return _OK, "with and without a reset"


class _Unfit(Exception):
    """A world did something other than what it was asked."""


async def _ask_world(work: Coroutine[Any, Any, T], limit_s: float, what: str) -> T:
    """Asks a world outside of an episode. Raises _Unfit for what it raises, and where time is up."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work)

    fault = await DetachedTasks().fault_of(keep(), limit_s, f"world: {what}")
    if fault is not None:
        raise _Unfit(f"{what}: {describe_late(fault, limit_s)}") from fault
    return found[0]


@asynccontextmanager
async def _open_world(make: MakeWorld, limits: EnvLimits) -> AsyncIterator[World]:
    """A world outside of an episode, which is closed however it closes."""
    world = await _ask_world(make(), limits.reset_s, "to be made")
    try:
        yield world
    finally:
        await DetachedTasks().fault_of(world.close(), CLOSE_S, "world: close")


async def _check_snapshot(subject: TrialWorld) -> tuple[Sign, str]:
    """A fork, taken before each action of a solution, continues as the world that it was taken from."""
    actions, limits = subject.golds[0] or (), subject.bench.spec.limits
    async with subject.bench.spec.open() as make, _open_world(make, limits) as world:
        await _ask_world(world.reset(subject.tasks[0], 0), limits.reset_s, "reset")
        for at in range(len(actions) + 1):
            taken = await _ask_world(world.snapshot(), limits.step_s, "snapshot")
            if taken is None:
                return _UNKNOWN, "it has no snapshots; forks repeat the calls instead"
            if subject.bench.num_worlds < 2:
                return _UNKNOWN, _ONE_WORLD
            async with _open_world(make, limits) as twin:
                await _ask_world(twin.restore(taken), limits.reset_s, "restore")
                if difference := await _compare_worlds(world, twin, actions[at : at + 1], limits):
                    return _FAILED, f"a fork after {at} actions: {difference}"
    return _OK, f"{len(actions) + 1} forks have the same state, results and scores"


async def _compare_worlds(world: World, twin: World, actions: Sequence[Action], limits: EnvLimits) -> str:
    """Plays in both, and says what differs; empty where nothing does."""
    for name in ("state",) if actions else ("state", "score"):  # a world is scored once
        one, other = [await _ask_world(getattr(each, name)(), limits.score_s, name) for each in (world, twin)]
        if one != other:
            return f"its {name} differs: {one!r:.80}, then {other!r:.80}"
    for action in actions:
        one, other = [
            await _ask_world(_play_action(each, action), limits.step_s, _name_action(action)) for each in (twin, world)
        ]
        if one != other:
            return f"the next action gave {other!r:.80} and in the fork {one!r:.80}"
    return ""


async def _play_action(world: World, action: Action) -> Any:
    """Plays an action; returns its result or refusal."""
    try:
        return await (world.reply(action) if isinstance(action, str) else world.call(action))
    except ToolFailure as refusal:
        return refusal.outcome, refusal.text


async def _check_hidden(subject: TrialWorld) -> tuple[Sign, str]:
    """The answer stands neither in the prompt nor in the tools' documents."""
    docs = "\n".join(
        f"{tool.name} {tool.description} {tool.input_schema}" for tool in subject.bench.executor.descriptions
    )
    found, num = {"the prompt": 0, "the tools' documents": 0}, 0
    for task, gold in zip(subject.tasks, subject.golds, strict=True):
        secrets = {action.strip() for action in gold or () if isinstance(action, str)}
        secrets |= {task.answer.strip()} if isinstance(task.answer, str) and not secrets else set()
        secrets = {secret for secret in secrets if secret}
        if not secrets:
            continue
        num += 1
        first = await subject.bench.play(task, follow(()))
        texts = "\n".join([message.content for message in task.messages] + [first.observation or ""])
        for place, text in (("the prompt", texts), ("the tools' documents", docs)):
            found[place] += any(_stands_in(secret, text) for secret in secrets)
    if not num:
        return _UNKNOWN, "no answer is known as text"
    for place, times in found.items():
        if times * 2 >= num + (num > 1):
            return _FAILED, f"the answer stands in {place} of {times} of {num} tasks"
    return _OK, f"the answers of {num} tasks stand neither in prompts nor in the tools' documents"


def _stands_in(secret: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text, re.IGNORECASE) is not None


def _make_skilless_check(name: str) -> Check:
    async def check(subject: TrialWorld) -> tuple[Sign, str]:
        if "reset" in subject.failed:
            return _UNKNOWN, _SEE_RESET
        best, worst = -math.inf, None
        for policy in subject.skilless[name]:
            played = [await subject.bench.play(task, policy) for task in subject.tasks]
            ended = [one for one in played if one.failure is None]
            if not ended:
                return _FAILED, f"every episode failed: {played[0].failure}"
            value = sum(map(subject.value, ended)) / len(ended)
            if value > best:
                best, worst = value, max(ended, key=subject.value)
        idle = subject.ranges.idle_value
        allowed = idle + (0.0 if name in ("no-op", "empty answers") else subject.tolerance) * (1 - idle)
        words = f"earns {best:.3g} of the maximum"
        if best > allowed + _NEAR:
            assert worst is not None
            return _FAILED, f"{words}; at most {allowed:g} can be luck. {_show_worst(worst)}"
        return _OK, words

    return check


def _name_action(action: Action) -> str:
    return action if isinstance(action, str) else action.name


def _show_worst(played: Played) -> str:
    actions = [_name_action(step.action) for step in played.steps]
    listed = ", ".join(repr(action)[:60] for action in actions[:4])
    return f"It did: {listed or 'nothing'}{', ...' if len(actions) > 4 else ''}; scores {dict(played.scores)}"


TRIALS: Mapping[str, Check] = {
    "reset": _check_reset,
    "gold": _check_gold,
    "steps": _check_steps,
    "no-op": _make_skilless_check("no-op"),
    "determinism": _check_determinism,
    "isolation": _check_isolation,
    "snapshot": _check_snapshot,
    "range": _check_range,
    "deadlines": _check_deadlines,
    "close": _check_close,
}
"""The points of `rlf env prove`, in order."""
ATTACKS: Mapping[str, Check] = {
    "reset": _check_reset,
    "determinism": _check_determinism,
    "isolation": _check_isolation,
    "gold": _check_gold,
    **{name: _make_skilless_check(name) for name in ("no-op", "empty answers", "spam", "repeat", "echo", "injection")},
    "hidden answer": _check_hidden,
    "range": _check_range,
}
"""The points of `rlf env attack`, in order."""


async def examine_world(
    bench: Bench,
    ranges: Ranges,
    checks: Mapping[str, Check],
    *,
    tolerance: float,
    seen: Callable[[PointVerdict], object],
) -> Page:
    """Looks at every point. Args: seen: takes each verdict as it is found."""
    subject = TrialWorld(bench, ranges, tolerance)
    for task in bench.tasks:
        try:
            subject.golds.append(await bench.gold(task))
        except GoldFault as fault:
            subject.golds.append(None)
            subject.gold_fault = subject.gold_fault or str(fault)
    verdicts = []
    for name, check in checks.items():
        try:
            sign, words = await check(subject)
        except _Unfit as fault:
            sign, words = _FAILED, str(fault)
        if sign is _FAILED:
            subject.failed.add(name)
        verdicts.append(PointVerdict(name, sign, words))
        seen(verdicts[-1])
    spec = bench.spec
    source = hash_json([spec.model_dump(mode="json"), spec.source_hash()])
    return Page(spec.kind, source, len(bench.tasks), len(bench.played), tuple(verdicts))


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
