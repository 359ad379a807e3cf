"""Trials of a world, point by point. Each looks at one promise, and says what it saw."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, TypeVar

from rlf.apps.worlds import calls, conditions
from rlf.apps.worlds.trial import (
    LATE,
    NEAR,
    NO_CLOSE,
    ONE_WORLD,
    Check,
    Page,
    PointVerdict,
    Sign,
    TrialWorld,
    Unfit,
    first_difference,
    name_action,
    play_edges,
    show_worst,
)
from rlf.core.identity import hash_json
from rlf.environments.episode import CLOSE_S, describe_late
from rlf.environments.kind import EnvLimits
from rlf.environments.playing import Action, Bench, GoldFault, Ranges, follow
from rlf.environments.world import MakeWorld, World
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Phase

_OK, _FAILED, _UNKNOWN = Sign.OK, Sign.FAILED, Sign.UNKNOWN
_LATE_SHARE = 0.5
_CALLS_A_TURN = 4
"""A turn may hold several calls; more than these in each is no plan."""
_MAX_EXCHANGED = 12
_SEE_RESET = "worlds do not begin, or keep state of an earlier episode; see reset"
_SEE_CLOSE = "worlds hang; see the point that failed"
T = TypeVar("T")


async def _check_reset(subject: TrialWorld) -> tuple[Sign, str]:
    """Every task resets, and a world begins equal whatever was played before it in another one."""
    before = [await subject.reference(at, "no-op") for at in range(len(subject.tasks))]
    if failures := [one.failure for one in before if one.phase is Phase.RESET]:
        return _FAILED, f"{len(failures)} of {len(before)} tasks: {failures[0]}"
    again = await subject.play(subject.tasks[0], follow(()))
    if again != before[0]:
        return _UNKNOWN, "worlds differ before any action; see determinism"
    for at, task in enumerate(subject.tasks):
        for name, script in subject.scripts(at).items():
            if name != "no-op" and (at == 0 or name in ("gold", "spam")):
                subject.references.setdefault((at, name), await subject.play(task, follow(script)))
                after = await subject.play(task, follow(()))
                if after != before[at]:
                    words = f"state of the last episode remains: {first_difference(before[at], after)}"
                    return _FAILED, f"{words} (played before: {name})"
    if subject.bench.spec.left_behind:
        return _FAILED, subject.bench.spec.left_behind
    return _OK, f"{len(before)} of {len(before)} tasks; no episode's state reaches the next one"


async def _check_determinism(subject: TrialWorld) -> tuple[Sign, str]:
    """The same actions with the same seed lead to the same words, states and scores."""
    if "reset" in subject.failed:
        return _UNKNOWN, _SEE_RESET
    for at, task in enumerate(subject.tasks):
        for name, script in subject.scripts(at).items():
            if at and name.startswith("only "):  # of one task: the others play them at once
                continue
            one = await subject.reference(at, name)
            other = await subject.play(task, follow(script))
            if one != other:
                return _FAILED, f"the same actions gave {first_difference(one, other)}. {conditions.SEED_CURE}"
    return _OK, "the same actions give the same words, states and scores"


async def _check_gold(subject: TrialWorld) -> tuple[Sign, str]:
    """A known solution earns the maximum."""
    if subject.gold_fault is not None:
        return _FAILED, subject.gold_fault
    known = [(task, gold) for task, gold in zip(subject.tasks, subject.golds, strict=True) if gold is not None]
    if not known:
        return _UNKNOWN, "no solution is known; write a method `gold()`, or a column `gold` in the rows"
    values = []
    longest = max(len(gold) for _, gold in known)
    num_words = max(sum(isinstance(one, str) for one in gold) for _, gold in known)
    if subject.max_turns is not None and max(num_words, longest / _CALLS_A_TURN) > subject.max_turns:
        return _FAILED, f"a gold takes {longest} actions; rollout.max_turns is {subject.max_turns}. Write it larger"
    for task, gold in known:
        played = await subject.play(task, follow(gold))
        if played.phase is Phase.SCORE:
            return _UNKNOWN, "a gold has no score; see range"
        if played.failure is not None:
            return _FAILED, f"task {task.id}: {played.failure}"
        if len(played.steps) < len(gold):
            return (
                _FAILED,
                f"task {task.id}: the episode ends after {len(played.steps)} of {len(gold)} actions of its gold",
            )
        value = subject.value(played)
        words = f"task {task.id}: gold earns {value:.3g} of the maximum, with {dict(played.scores)}"
        for step in played.steps:  # a solution that is refused is none, even where it earns something
            if step.outcome not in (None, Outcome.OK):
                return _FAILED, f"{words}; {name_action(step.action)} -> {step.outcome}: {step.said}"
        if value < 1 - NEAR:
            return _FAILED, words
        values.append(value)
    if "reset" not in subject.failed and (num := await _count_exchanged(subject)):
        words = f"the solution of another task earns the maximum too, in each of {num} tries"
        return _FAILED, f"{words}: the reward does not depend on what the task asks for"
    return _OK, f"{len(values)} of {len(values)} golds earn the maximum"


async def _count_exchanged(subject: TrialWorld) -> int:
    """How often another task's solution was played, where each time it was as good as the task's own; else 0."""
    known = [(at, gold) for at, gold in enumerate(subject.golds) if gold]
    pairs = [(at, gold) for at, own in known for _, gold in known if gold != own][:_MAX_EXCHANGED]
    for at, gold in pairs:
        played = await subject.play(subject.tasks[at], follow(gold))
        if played.failure is not None or subject.value(played) < 1 - NEAR:
            return 0
    return len(pairs)


async def _check_steps(subject: TrialWorld) -> tuple[Sign, str]:
    """No call that the tools' schemas allow, and no answer, makes a world fail: a policy could hide behind that."""
    if "reset" in subject.failed:
        return _UNKNOWN, _SEE_RESET
    for policy in (*(subject.skilless[name][0] for name in ("spam", "empty answers")), play_edges):
        for task in subject.tasks:
            played = await subject.play(task, policy)
            if played.failure is not None and played.phase is not Phase.SCORE:
                return _FAILED, f"{played.failure}. {show_worst(played)}"
    broken = [one for one in subject.bench.played if one.failure and one.phase not in (Phase.RESET, Phase.SCORE)]
    if broken:
        return _FAILED, f"{broken[0].failure}. {show_worst(broken[0])}"
    return _OK, "every tool with sample arguments, zeros and empty texts, then senseless and empty answers"


async def _check_range(subject: TrialWorld) -> tuple[Sign, str]:
    """All scores so far are finite, in their range, and there under their names."""
    finished = [played for played in subject.bench.played if played.failure is None]
    unscored = [played.failure for played in subject.bench.played if played.phase is Phase.SCORE]
    unscored += [one.failure for one in subject.bench.played if "reward of a step" in (one.failure or "")]
    if unscored and LATE not in (unscored[0] or ""):
        return _FAILED, f"{len(unscored)} of {len(subject.bench.played)} episodes have no score: {unscored[0]}"
    for played in finished:
        scores = dict(played.scores)
        for name, (least, most) in (subject.ranges.bounds or dict.fromkeys(scores, (-math.inf, math.inf))).items():
            if name.startswith("rewards."):  # the term itself says so
                continue
            if name not in scores:
                return _FAILED, f"no score {name!r} (there are: {', '.join(scores) or 'none'})"
            if not least - NEAR <= scores[name] <= most + NEAR:
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
    late = [played.failure for played in subject.bench.played if played.failure and LATE in played.failure]
    if NO_CLOSE in subject.bench.worlds.close_faults:
        late.append(f"close, after an episode: {NO_CLOSE}")
    if late:
        return _FAILED, late[0]
    slowest = {name: max((one.seconds.get(name, 0.0) for one in subject.bench.played), default=0.0) for name in allowed}
    near = [name for name in allowed if slowest[name] > _LATE_SHARE * allowed[name]]
    words = ", ".join(f"{name} {slowest[name]:.2g} of {allowed[name]:g} s" for name in allowed)
    return (_FAILED, f"more than half of {', '.join(near)}: {words}") if near else (_OK, f"slowest: {words}")


async def _check_close(subject: TrialWorld) -> tuple[Sign, str]:
    """A world closes, also one that was never reset."""
    reset_s = subject.bench.spec.limits.reset_s
    async with subject.bench.spec.open() as make:
        for is_reset in (False, True):
            world = await _ask_world(make(), reset_s, "to be made")
            if is_reset:  # whose own faults are another point's
                await _fault_of(world.reset(subject.tasks[0], 0), reset_s, "reset")
            if (fault := await _fault_of(world.close(), CLOSE_S, "close")) is not None:
                subject.is_late |= isinstance(fault, TimeoutError)
                return _FAILED, f"{'after' if is_reset else 'without'} a reset: {describe_late(fault, CLOSE_S)}"
    return _OK, "with and without a reset"


async def _ask_world(work: Coroutine[Any, Any, T], limit_s: float, what: str) -> T:
    """Asks a world outside of an episode. Raises Unfit for what it raises, and where time is up."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work)

    fault = await _fault_of(keep(), limit_s, what)
    if fault is not None:
        raise Unfit(f"{what}: {describe_late(fault, limit_s)}") from fault
    return found[0]


async def _fault_of(work: Coroutine[Any, Any, object], limit_s: float, what: str) -> BaseException | None:
    detached = DetachedTasks()
    try:
        return await detached.fault_of(work, limit_s, f"world: {what}")
    finally:
        await detached.close()


@asynccontextmanager
async def _open_world(make: MakeWorld, limits: EnvLimits) -> AsyncIterator[World]:
    """A world outside of an episode, which is closed however it closes."""
    world = await _ask_world(make(), limits.reset_s, "to be made")
    try:
        yield world
    finally:
        await _fault_of(world.close(), CLOSE_S, "close")


async def _check_snapshot(subject: TrialWorld) -> tuple[Sign, str]:
    """A fork, taken before each action of a solution, continues as the world that it was taken from."""
    actions, limits, first = subject.golds[0] or (), subject.bench.spec.limits, None
    async with subject.bench.spec.open() as make, _open_world(make, limits) as world:
        await _ask_world(world.reset(subject.tasks[0], conditions.seed_of(subject)), limits.reset_s, "reset")
        for at in range(len(actions) + 1):
            taken = await _ask_world(world.snapshot(), limits.step_s, "snapshot")
            if taken is None:
                return _UNKNOWN, "it has no snapshots; each of its worlds is reset"
            if subject.bench.num_worlds < 2:
                return _UNKNOWN, ONE_WORLD
            first = taken if at == 0 else first
            async with _open_world(make, limits) as twin:
                await _ask_world(twin.restore(taken), limits.reset_s, "restore")
                if difference := await _compare_worlds(world, twin, actions[at : at + 1], limits):
                    return _FAILED, f"a fork after {at} actions: {difference}"
            said = await _ask_world(world.state(), limits.score_s, "state")
        # What was copied first holds no part of the world that went on.
        async with _open_world(make, limits) as again, _open_world(make, limits) as fresh:
            await _ask_world(again.restore(first), limits.reset_s, "restore")
            await _ask_world(fresh.reset(subject.tasks[0], conditions.seed_of(subject)), limits.reset_s, "reset")
            if difference := await _compare_worlds(fresh, again, (), limits, ("state",)):
                return _FAILED, f"a copy changes with the world that it was taken of: {difference}"
            for action in actions:
                await _ask_world(_play_action(fresh, action), limits.step_s, name_action(action))
            if (alone := await _ask_world(fresh.state(), limits.score_s, "state")) != said:
                return (
                    _FAILED,
                    f"taking copies changes the world: its state is {said!r:.80}, without them {alone!r:.80}",
                )
    return _OK, f"{len(actions) + 1} forks have the same state, results and scores"


async def _compare_worlds(
    world: World, twin: World, actions: Sequence[Action], limits: EnvLimits, names: Sequence[str] = ()
) -> str:
    """Plays in both, and says what differs; empty where nothing does."""
    for name in names or (("state",) if actions else ("state", "score")):  # a world is scored once
        one, other = [await _ask_world(getattr(each, name)(), limits.score_s, name) for each in (world, twin)]
        if one != other:
            return f"its {name} differs: {one!r:.80}, then {other!r:.80}"
    for action in actions:
        one, other = [
            await _ask_world(_play_action(each, action), limits.step_s, name_action(action)) for each in (twin, world)
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


def _make_skilless_check(name: str) -> Check:
    async def check(subject: TrialWorld) -> tuple[Sign, str]:
        if "reset" in subject.failed:
            return _UNKNOWN, _SEE_RESET
        best, worst = -math.inf, None
        for policy in subject.skilless[name]:
            played = [await subject.play(task, policy) for task in subject.tasks]
            ended = [one for one in played if one.failure is None]
            if not ended and played[0].phase is Phase.SCORE:
                return _UNKNOWN, "no episode has a score; see range"
            if not ended and "steps" in subject.failed:
                return _UNKNOWN, "every episode failed; see steps"
            if not ended:
                return _FAILED, f"every episode failed: {played[0].failure}"
            value = sum(map(subject.value, ended)) / len(ended)
            if value > best:
                best, worst = value, max(ended, key=subject.value)
        idle = subject.ranges.idle_value
        allowed = idle + (0.0 if name in ("no-op", "empty answers") else subject.tolerance) * (1 - idle)
        words = f"earns {best:.3g} of the maximum"
        if best > allowed + NEAR:
            assert worst is not None
            return _FAILED, f"{words}; at most {allowed:g} can be luck. {show_worst(worst)}"
        return _OK, words

    return check


_SKILLESS = {
    name: _make_skilless_check(name) for name in ("no-op", "empty answers", "spam", "repeat", "echo", "injection")
}
TRIALS: Mapping[str, Check] = {
    "close": _check_close,
    "reset": _check_reset,
    "gold": _check_gold,
    "steps": _check_steps,
    "determinism": _check_determinism,
    "isolation": conditions.check_isolation,
    **_SKILLESS,
    "grader": calls.check_grader,
    "tools": calls.check_tools,
    "hidden answer": calls.check_hidden,
    "snapshot": _check_snapshot,
    "outputs": calls.check_outputs,
    "leftovers": conditions.check_leftovers,
    "another process": conditions.check_elsewhere,
    "range": _check_range,
    "deadlines": _check_deadlines,
}
"""The points of `rlf env prove`, in order."""
ATTACKS: Mapping[str, Check] = {
    "reset": _check_reset,
    "determinism": _check_determinism,
    "isolation": conditions.check_isolation,
    "gold": _check_gold,
    **_SKILLESS,
    "hidden answer": calls.check_hidden,
    "range": _check_range,
}
"""The points of `rlf env attack`, in order."""
_OF_THE_PAST = ("range", "deadlines")
"""Points that look at what was played, and play nothing."""


async def examine_world(
    bench: Bench,
    ranges: Ranges,
    checks: Mapping[str, Check],
    *,
    tolerance: float,
    seen: Callable[[PointVerdict], object],
    max_turns: int | None = None,
    limit_s: float = math.inf,
) -> Page:
    """Looks at every point.

    Args:
        seen: takes each verdict as it is found.
        max_turns: turns of an episode in training.
        limit_s: what all points may take together; the one under way fails then.
    """
    subject = TrialWorld(bench, ranges, tolerance, max_turns=max_turns)
    until = monotonic() + limit_s
    verdicts = []
    for name, check in checks.items():
        sign, words = await _look(subject, name, check, until - monotonic(), limit_s)
        if sign is _FAILED:
            subject.failed.add(name)
        verdicts.append(PointVerdict(name, sign, words))
        seen(verdicts[-1])
    spec = bench.spec
    source = hash_json([spec.model_dump(mode="json"), spec.source_hash()])
    return Page(spec.kind, source, len(bench.tasks), len(bench.played), tuple(verdicts))


async def _look(subject: TrialWorld, name: str, check: Check, left_s: float, limit_s: float) -> tuple[Sign, str]:
    if subject.is_late and name not in _OF_THE_PAST:
        return _UNKNOWN, _SEE_CLOSE
    if left_s <= 0 and name not in _OF_THE_PAST:
        return _UNKNOWN, f"the limit of {limit_s:g} s is used up"
    try:
        async with asyncio.timeout(None if math.isinf(left_s) or name in _OF_THE_PAST else left_s):
            if name != "close" and not subject.golds and not subject.is_late:
                await _ask_golds(subject)
            return await check(subject)
    except TimeoutError:
        return _FAILED, f"not done within the limit of {limit_s:g} s for all points"
    except Unfit as fault:
        return _FAILED, str(fault)


async def _ask_golds(subject: TrialWorld) -> None:
    """Learns the solutions; a world that hangs is not asked twice."""
    for task in subject.tasks:
        subject.golds.append(None)
        if subject.gold_fault is not None and LATE in subject.gold_fault:
            continue
        try:
            subject.golds[-1] = await subject.bench.gold(task)
        except GoldFault as fault:
            subject.gold_fault = subject.gold_fault or str(fault)
    golds = [gold for gold in subject.golds if gold]
    subject.bench.max_actions = max(subject.bench.max_actions, *(len(gold) + 1 for gold in golds), 0)
