"""Many trajectories at once, each scored as soon as it ends. No barrier between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from statistics import fmean, pstdev
from typing import Any, Protocol

from rlf.core import RunError
from rlf.core.clocks import reporting_waits, stage
from rlf.rewards.function import RewardFunction
from rlf.rollout.rollout import Rollout
from rlf.types.score import Scored, ScoreState, ScoreUsage, usage_by_name
from rlf.types.trajectory import Trajectory


class Player(Protocol):
    """A player of trajectories: the setting of a model that samples tokens, or a model behind a server."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories in their logical order, before any of them is played."""

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory to its end.

        Args:
            cut_off: takes what there is of a trajectory that is cancelled after its first turn was sampled.
        """

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory and gives back what is kept for it. Safe to call twice."""


async def collect(
    rollouts: Sequence[Rollout],
    player: Player,
    reward: RewardFunction,
    *,
    step: int,
    cut_off: Callable[[list[Scored]], None] | None = None,
    halt: Halt | None = None,
    on_scored: Callable[[Scored], None] | None = None,
) -> list[Scored]:
    """Plays and scores every rollout; the result keeps their order, which is also their logical order.

    Halted, it gives those that were over; the others are cut off.

    Args:
        step: the step that the trajectories are for, from 1; for an evaluation the updates before it.
        cut_off: takes what there is of those with a turn, where the collection is cancelled, fails or is halted.
        halt: ends the collection early.
        on_scored: takes each trajectory as soon as it is scored.

    Raises:
        RunError: a reward term cannot continue.
    """
    sizes = Counter(rollout.task.id for rollout in rollouts)
    known: dict[str, Scored] = {}

    def keep(trajectory: Trajectory) -> None:
        known[trajectory.id] = Scored(trajectory, scores=(), reward=None, success=None)

    async def play_and_score(rollout: Rollout) -> Scored:
        trajectory = await player.play(rollout, cut_off=keep)
        keep(trajectory)
        scored = await reward.score(trajectory, step=step, group_size=sizes[rollout.task.id])
        known[rollout.id] = scored
        here.num_done += 1
        if on_scored is not None:
            on_scored(scored)
        return scored

    player.open([rollout.id for rollout in rollouts])
    try:
        with stage(f"{_phase(rollouts)} {step}", len(rollouts)) as here:
            async with reporting_waits():
                done = await _side_by_side([play_and_score(rollout) for rollout in rollouts], halt)
        over = {scored.trajectory.id for scored in done}
        left = [known[rollout.id] for rollout in rollouts if rollout.id in known and rollout.id not in over]
        if left and cut_off is not None:
            cut_off(left)
        return done
    except BaseException:
        if cut_off is not None:
            cut_off([known[rollout.id] for rollout in rollouts if rollout.id in known])
        raise
    finally:
        for rollout in rollouts:
            player.release(rollout.id)


def _phase(rollouts: Sequence[Rollout]) -> str:
    """`train`, or the modes of an evaluation, as the ids have it."""
    if not rollouts:
        return "nothing"
    heads = [rollout.id.split("/", 2) for rollout in rollouts]
    return " and ".join(dict.fromkeys(head[1] if head[0] == "eval" and head[1:] else head[0] for head in heads))


class Halt:
    """Ends a collection early, once."""

    def __init__(self) -> None:
        self.is_called = False
        self._tasks: list[asyncio.Task[Scored]] = []

    def call(self) -> None:
        """Cuts off what is not over."""
        self.is_called = True
        for task in self._tasks:
            task.cancel()

    def watch(self, tasks: list[asyncio.Task[Scored]]) -> None:
        """Takes what it may cut off."""
        self._tasks = tasks


async def _side_by_side(playing: Sequence[Coroutine[Any, Any, Scored]], halt: Halt | None) -> list[Scored]:
    """The results of those that were not cut off, in order. Raises RunError by itself where one of them does."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in playing]
            if halt is not None:
                halt.watch(tasks)
    except ExceptionGroup as failures:
        run_errors = failures.subgroup(RunError)
        if run_errors is None:
            raise
        raise run_errors.exceptions[0] from failures
    return [task.result() for task in tasks if not task.cancelled()]


# Flat metrics of a set of trajectories. Unscorable ones count as such and in no mean.


def rollout_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """Rewards term by term, tool behaviour, stop reasons and sizes.

    Returns:
        `success`, `reward/*`, `rewards/<term>/*`, `solve/*`, `turns/mean`, `tokens/*`, `tools/*`, `stop/*`,
        `unscorable`.
    """
    counted = [item for item in scored if item.reward is not None]
    metrics = {"unscorable": float(len(scored) - len(counted))}
    metrics |= _term_counts(scored) | _term_usage(scored)
    metrics |= _call_metrics(scored) | _worlds(scored) | _contexts(scored)
    metrics |= {f"stop/{stop}": n / len(scored) for stop, n in _counts(s.trajectory.stop for s in scored).items()}
    metrics |= _by_world(scored)
    if counted:
        metrics |= _reward_metrics(counted) | _shares(counted) | _sizes(counted) | _solves(counted)
    return metrics


def dead_share(scored: Sequence[Scored]) -> float:
    """Share of groups whose rewards are all equal, so that group-relative advantages vanish."""
    groups: dict[str, set[float]] = {}
    for item in scored:
        if item.reward is not None:
            groups.setdefault(item.trajectory.task.id, set()).add(item.reward)
    return fmean(len(rewards) == 1 for rewards in groups.values()) if groups else 0.0


def wait_share(scored: Sequence[Scored]) -> float:
    """Share of the trajectories' time that went into waiting for their tools."""
    trajectories = [item.trajectory for item in scored]
    waiting_s = sum(turn.tools_s for each in trajectories for turn in each.turns[each.num_prefix_turns :])
    alive_s = sum(trajectory.duration_s for trajectory in trajectories)
    return waiting_s / alive_s if alive_s else 0.0


def _reward_metrics(counted: Sequence[Scored]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(counted).items():
        metrics[f"{name}/mean"] = fmean(values)
        metrics[f"{name}/std"] = pstdev(values)
    successes = [item.success for item in counted if item.success is not None]
    if successes:
        metrics["success"] = fmean(successes)
    return metrics


def _by_world(scored: Sequence[Scored]) -> dict[str, float]:
    """Success and reward of each of several worlds."""
    metrics: dict[str, float] = {}
    for name, items in group_by_world(scored).items():
        counted = [item for item in items if item.reward is not None]
        found = {"trajectories": float(len(items)), "unscorable": float(len(items) - len(counted))}
        found |= _reward_metrics(counted) if counted else {}
        metrics |= {f"world/{name}/{part}": value for part, value in found.items() if not part.startswith("rewards/")}
    return metrics


def group_by_world(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """The trajectories of each of several worlds, by name; none of a spec with one world."""
    found: dict[str, list[Scored]] = {}
    for item in scored:
        if item.trajectory.world is not None and item.trajectory.world.name is not None:
            found.setdefault(item.trajectory.world.name, []).append(item)
    return found


def _solves(counted: Sequence[Scored]) -> dict[str, float]:
    """Sub-questions solved, where rows have some, over all and by kind of question; P never stands alone."""
    if not any(item.trajectory.task.columns.get("unsolved_set") for item in counted):
        return {}
    from rlf.rewards.values import Solved, solved_by

    found: dict[str, list[Solved]] = {}
    for item in counted:
        solved = solved_by(item.trajectory)
        if solved is not None:
            found.setdefault("", []).append(solved)
            if item.trajectory.task.kind is not None:
                found.setdefault(f"/{item.trajectory.task.kind}", []).append(solved)
    metrics: dict[str, float] = {}
    for kind, solves in found.items():
        metrics[f"solve/p{kind}"] = fmean(each.precision for each in solves)
        metrics[f"solve/r{kind}"] = fmean(each.recall for each in solves)
        metrics[f"solve/f1{kind}"] = fmean(each.f1 for each in solves)
    return metrics


def _term_counts(scored: Sequence[Scored]) -> dict[str, float]:
    """How often each term had no value, by why."""
    states: dict[str, Counter[ScoreState]] = {}
    for item in scored:
        for score in item.scores:
            states.setdefault(score.term, Counter())[score.state] += 1
    metrics: dict[str, float] = {}
    for term, number in states.items():
        missing = sum(number[state] for state in ScoreState if state is ScoreState.UNSCORABLE or state.may_pass)
        metrics[f"rewards/{term}/unscorable"] = float(missing)
        metrics[f"rewards/{term}/faults"] = float(number[ScoreState.FAULT])
        if number[ScoreState.GATED]:
            metrics[f"rewards/{term}/gated"] = float(number[ScoreState.GATED])
    return metrics


def _term_usage(scored: Sequence[Scored]) -> dict[str, float]:
    """Usage of judges, by term; nothing of terms that asked none."""
    usages: dict[str, ScoreUsage] = {}
    for item in scored:
        for score in item.scores:
            if score.usage is not None:
                usages[score.term] = usages.get(score.term, ScoreUsage()) + score.usage
    metrics: dict[str, float] = {}
    for term, usage in usages.items():
        metrics[f"rewards/{term}/tokens"] = float(usage.num_tokens)
        metrics[f"rewards/{term}/cost_usd"] = usage.cost_usd
        if usage.num_replies:
            metrics[f"rewards/{term}/cached"] = usage.num_cached / usage.num_replies
        if usage.kappa is not None:
            metrics[f"rewards/{term}/kappa"] = usage.kappa
    return metrics


def _shares(counted: Sequence[Scored]) -> dict[str, float]:
    """Of the rewards' variance within groups, the share that each term explains.

    Mean over the groups with var(R) > 0 of cov(c_i, R) / var(R), with c_i = weight_i * value_i the term's contribution
    and R the sum of the c_i, so that the shares add up to 1; negative where a term works against the others.
    """
    groups: dict[str, list[Scored]] = {}
    for item in counted:
        groups.setdefault(item.trajectory.task.id, []).append(item)
    shares: dict[str, list[float]] = {}
    for items in groups.values():
        rewards = [item.reward for item in items if item.reward is not None]
        if len(set(rewards)) > 1:
            above = [reward - fmean(rewards) for reward in rewards]
            for position, score in enumerate(items[0].scores):
                contributions = [item.scores[position].contribution for item in items]
                share = _dot(contributions, above) / _dot(above, above)  # `above` sums to 0, so no mean is missing
                shares.setdefault(score.term, []).append(share)
    return {f"rewards/{term}/share": fmean(values) for term, values in shares.items()}


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _values_by_name(counted: Sequence[Scored]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {"reward": [item.reward for item in counted if item.reward is not None]}
    for item in counted:
        for score in item.scores:
            if score.value is not None:
                values.setdefault(f"rewards/{score.term}", []).append(score.value)
    return values


def _sizes(counted: Sequence[Scored]) -> dict[str, float]:
    trajectories = [item.trajectory for item in counted]
    sampled = fmean(t.num_sampled for t in trajectories)
    total = fmean(len(t.tokens) for t in trajectories)
    observed = fmean(sum(turn.observation_end - turn.end for turn in t.turns) for t in trajectories)
    return {
        "turns/mean": fmean(len(t.turns) for t in trajectories),
        "tokens/sampled": sampled,
        "tokens/total": total,
        "tokens/observation": observed,
    }


def _call_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    records = [record for item in scored for record in item.trajectory.calls]
    failures = [failure for item in scored for failure in item.trajectory.failures]
    metrics = {"tools/calls_per_trajectory": len(records) / len(scored)}
    outcomes = _counts(record.result.outcome for record in records)
    metrics |= {f"tools/outcome/{outcome}": float(n) for outcome, n in outcomes.items()}
    classes = _counts(failure.kind for failure in failures)
    metrics |= {f"tools/parse_failure/{kind}": float(n) for kind, n in classes.items()}
    kinds = _counts(repair.kind for item in scored for repair in item.trajectory.repairs)
    metrics |= {f"tools/repaired/{kind}": float(n) for kind, n in kinds.items()}
    num_coerced = sum(record.result.coerced for record in records)
    if num_coerced:
        metrics["tools/coerced"] = float(num_coerced)
    usages = sorted(usage_by_name(scored).items())
    costs = {name: usage["cost_usd"] for (kind, name), usage in usages if kind == "tool"}
    metrics |= {f"tools/{name}/cost_usd": cost_usd for name, cost_usd in costs.items() if cost_usd}
    num_penalised = sum(item.trajectory.num_penalised for item in scored)
    if num_penalised:
        metrics["tools/penalised"] = float(num_penalised)
    return metrics


def _worlds(scored: Sequence[Scored]) -> dict[str, float]:
    """Scores that worlds gave trajectories, and their failures; nothing where there are none."""
    worlds = [item.trajectory.world for item in scored if item.trajectory.world is not None]
    metrics = {f"env/failed/{phase}": float(n) for phase, n in _counts(w.failed for w in worlds if w.failed).items()}
    scores: dict[str, list[float]] = {}
    for world in worlds:
        for name, value in world.scores.items():
            scores.setdefault(name, []).append(value)
    metrics |= {f"env/score/{name}": fmean(values) for name, values in sorted(scores.items())}
    return metrics | ({"env/world_s": fmean(world.world_s for world in worlds)} if worlds else {})


def _contexts(scored: Sequence[Scored]) -> dict[str, float]:
    """Contexts that agents began, and why others than the first; nothing where rlf's loop plays."""
    links = Counter(turn.link for item in scored for turn in item.trajectory.turns if turn.link)
    if not links:
        return {}
    metrics = {"agent/contexts": links.total() / len(scored)}
    del links["first"]
    return metrics | {f"agent/new_context/{link.replace(' ', '_')}": float(n) for link, n in sorted(links.items())}


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(str(value) for value in values).items()))
