"""One evaluation: every question of the evaluation set, by sampling or greedily, and what it says."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from rlf.algo.estimator import AdvantageInput, Estimator, advantages_by_world
from rlf.reports.statistics import find_spread, wilson_interval
from rlf.rollout.collect import Halt, Player, collect, dead_share, group_by_world, rollout_metrics, wait_share
from rlf.rollout.rollout import Rollout
from rlf.spec.models import EvalSpec
from rlf.training.counting import choose_tries, counts, evaluation_rollout, find_cause, has_answered, mode_of
from rlf.training.harness import Harness
from rlf.training.outages import Outages
from rlf.types.events import GREEDY, SAMPLED, EvaluationFinished, EventSink, Interrupted, Notice, kind_metric
from rlf.types.policy import Policy, Sampling
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.trajectory import StopReason, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


async def evaluate_policy(
    policy: Policy,
    harness: Harness,
    tasks: Sequence[Task],
    settings: EvalSpec,
    *,
    seed: int,
    step: int,
    emit: EventSink,
    outages: Outages,
    max_usd: float | None = None,
) -> float | None:
    """Evaluates a policy by sampling, and greedily if that is wanted; emits what each finds.

    Returns the least success by sampling, `least_success`; None where no trajectory could be scored.

    Args:
        step: updates that the policy has seen.
        outages: pauses for what is down.
        max_usd: what tools and judges may cost in each mode, which ends early when that is spent.

    Raises:
        OutageError: too many questions have no value, for a reason outside the policy.
    """
    successes: list[float | None] = []
    modes = modes_of(harness, settings)
    # Modes are one collection, in which what their rollouts of a question begin with is computed once; but not where
    # each mode has a budget, and not where rollouts of a task are compared, which are those of one mode.
    is_joint = max_usd is None and not any(term.compares_groups for term in harness.reward.terms)
    for together in [modes] if is_joint else [[mode] for mode in modes]:
        rollouts = [
            evaluation_rollout(task, mode.name, at, seed, step)
            for task in tasks
            for mode in together
            for at in range(mode.num_samples)
        ]
        names = " and ".join(mode.name for mode in together)
        logger.info("evaluation after step %d begins: %s, %d rollouts", step, names, len(rollouts))
        started = time.perf_counter()
        player = _Modes({mode.name: harness.player(policy, mode.sampling) for mode in together})
        play = partial(
            play_mode, player, harness, mode=names, step=step, emit=emit, max_usd=max_usd, on_scored=outages.note_now
        )
        scored = await play(rollouts)
        if len(scored) == len(rollouts):  # else its budget is spent
            scored = await _play_broken_again(
                outages, scored, rollouts, play, lambda left: emit(Interrupted(step, left))
            )
        taken_s = time.perf_counter() - started
        for mode in together:
            own = [item for item in scored if mode_of(item.trajectory.id) == mode.name]
            found = finish_mode(own, mode, step=step, emit=emit)
            metrics = {**found.metrics, "time/total_s": taken_s}
            emit(replace(found, metrics=metrics))
            successes.append(least_success(metrics, len(tasks)))
    return successes[0]


async def _play_broken_again(
    outages: Outages,
    scored: Sequence[Scored],
    rollouts: Sequence[Rollout],
    play: Callable[[Sequence[Rollout]], Awaitable[list[Scored]]],
    cut_off: Callable[[list[Scored]], None],
) -> list[Scored]:
    """The trajectories, those that an outage broke played again with their own seeds, so that evaluations pair."""
    found, _ = await outages.play_broken_again(scored, lambda places: play([rollouts[at] for at in places]), cut_off)
    return found


@dataclass(frozen=True, slots=True)
class _Modes:
    """Plays rollouts of several modes at once."""

    players: Mapping[str, Player]
    """By the mode's name."""

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories to the policy, which is the same in all modes."""
        next(iter(self.players.values())).open(trajectory_ids)

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory as its mode has it."""
        return await self.players[mode_of(rollout.id)].play(rollout, cut_off=cut_off)

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory. Safe to call twice."""
        self.players[mode_of(trajectory_id)].release(trajectory_id)


@dataclass(frozen=True, slots=True)
class EvaluationMode:
    """One way of trying every question."""

    name: str
    """`sampled` or `greedy`."""
    sampling: Sampling
    num_samples: int
    """Of each question."""


def modes_of(harness: Harness, settings: EvalSpec) -> list[EvaluationMode]:
    """By sampling, and greedily if that is wanted."""
    modes = [
        EvaluationMode(SAMPLED, harness.evaluation, settings.num_samples),
        EvaluationMode(GREEDY, harness.greedy, 1),
    ]
    return modes if settings.greedy else modes[:1]


async def play_mode(
    player: Player,
    harness: Harness,
    rollouts: Sequence[Rollout],
    mode: str,
    *,
    step: int,
    emit: EventSink,
    max_usd: float | None,
    on_scored: Callable[[Scored], None] | None = None,
) -> list[Scored]:
    """Plays rollouts of a mode, or of several: all of them, or those that are over when `max_usd` is spent.

    Args:
        mode: its name, for notices.
        on_scored: takes each trajectory as soon as it is scored.
    """
    halt = Halt()
    with harness.meter.bounded(max_usd, halt.call):
        scored = await collect(
            rollouts,
            player,
            harness.reward,
            step=step,
            cut_off=lambda left: emit(Interrupted(step, left)),
            halt=halt,
            on_scored=on_scored,
        )
    if halt.is_called:
        what = f"evaluation after step {step}, {mode}: limits.max_usd_per_evaluation ({max_usd:g}) is spent"
        text = f"{what}; it ends with {len(scored)} of {len(rollouts)} trajectories"
        emit(Notice("warning", text, {"step": step, "num_done": len(scored), "num_planned": len(rollouts)}))
    return scored


def finish_mode(scored: Sequence[Scored], mode: EvaluationMode, *, step: int, emit: EventSink) -> EvaluationFinished:
    """Result of a mode's trajectories; emits a notice of those without a value."""
    if (broken := [item for item in scored if not has_answered(item) or find_cause(item) is not None]) and scored:
        emit(_notice_of_broken(broken, len(scored), mode.name, step))
    return EvaluationFinished(step, mode.name, evaluation_metrics(scored, mode.num_samples), scored)


def least_success(metrics: Mapping[str, float], num_questions: float) -> float | None:
    """The success of an evaluation if all questions without a value had failed: what models are chosen by.

    Those with a value may be the easy ones, as where a tool is down that only hard ones need.
    """
    success = metrics.get("success")
    if success is None:
        return None
    return min(success, success * metrics.get("num_questions", num_questions) / num_questions)


def is_best(step: int, success: float | None, best: float | None) -> bool:
    """Whether the checkpoint of an evaluation is to be kept for its success: the first state is the model itself.

    Args:
        step: updates before the evaluation, by sampling.
        best: the highest success before it; None before there is one.
    """
    if step == 0 or success is None or not math.isfinite(success):
        return False
    return best is None or success > best


def _notice_of_broken(broken: Sequence[Scored], num_played: int, mode: str, step: int) -> Notice:
    """Trajectories that are no part of an evaluation's figures, and what broke most of them."""
    found = [find_cause(item) for item in broken]
    cause, number = Counter("nothing sampled" if each is None else each.name for each in found).most_common(1)[0]
    error = next((each.error for each in found if each is not None and each.name == cause), "")
    text = (
        f"evaluation after step {step}, {mode}: {len(broken)} of {num_played} trajectories have no value and are left "
    )
    text += f"out of its figures; {cause} broke {number} of them{f': {error}' if error else ''}"
    return Notice("warning", text, {"step": step, "num_broken": len(broken), "num_played": num_played, "cause": cause})


def evaluation_metrics(scored: Sequence[Scored], num_samples: int) -> dict[str, float]:
    """Success with its 95 % interval, by kind, pass@k, and what `rollout_metrics` says.

    The interval is Wilson's over questions, or their clusters; with several samples per question each counts by its
    share of successes.
    """
    rates: dict[str, float] = {}
    kinds: dict[str, str | None] = {}
    solved: dict[str, int] = {}
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for item in scored:
        if item.reward is not None and item.success is not None:
            by_task[item.trajectory.task.id].append(item.success)
    tasks = [item.trajectory.task for item in scored]
    clusters = {task.id: task.cluster for task in tasks if task.cluster is not None and task.id in by_task}
    for item in scored:
        world = item.trajectory.world  # several worlds are kinds of question, where the data names no others
        kinds[item.trajectory.task.id] = item.trajectory.task.kind or (None if world is None else world.name)
    for task_id, successes in by_task.items():
        rates[task_id] = fmean(successes)
        solved[task_id] = sum(success >= 1.0 for success in successes)
    metrics = (rollout_metrics(scored) if scored else {}) | {"num_questions": float(len(rates))}
    if not rates:
        return metrics
    metrics["success"] = fmean(rates.values())
    if 0 <= min(rates.values()) <= max(rates.values()) <= 1:  # else it is no share, and clipped it would be another one
        interval = wilson_interval(
            sum(rates.values()), len(rates), spread=find_spread(rates, clusters, are_shares=True)
        )
        metrics |= {"success/low": interval.low, "success/high": interval.high}
    if clusters:
        metrics["num_clusters"] = float(len({clusters.get(task_id, (task_id,)) for task_id in rates}))
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for task_id, rate in rates.items():
        kind = kinds[task_id]
        if kind is not None:
            by_kind[kind].append(rate)
    metrics |= {kind_metric(kind): fmean(values) for kind, values in sorted(by_kind.items())}
    if num_samples > 1:
        from rlf.reports.graded import pass_at_k

        complete = [pass_at_k(len(by_task[t]), solved[t], num_samples) for t in rates if len(by_task[t]) == num_samples]
        if complete:
            metrics[f"pass@{num_samples}"] = fmean(complete)
    return metrics


# The metrics of a step, whichever engine made it.


def step_metrics(
    collected: Sequence[Scored],
    used: Sequence[Scored],
    *,
    num_groups: int,
    own: Mapping[str, float],
    mask_truncated: bool = False,
    advantages: Mapping[str, float | None] | None = None,
) -> dict[str, float]:
    """Metrics of a step's trajectories, and those that its engine measured.

    Args:
        used: the trajectories that the update was given.
        num_groups: groups that dynamic filtering kept.
        own: the engine's losses and times; throughput follows from `time/generate_s` and `time/update_s`.
        advantages: the mean of each trajectory by its id, where it is known.
        mask_truncated: whether those of them that the token budget cut are in no loss.
    """
    metrics = {**rollout_metrics(collected), **own, **_left_out_by_length(collected, own, mask_truncated)}
    metrics |= {
        f"world/{name}/advantage/std": pstdev(known)
        for name, items in group_by_world(collected).items()
        if (known := [found for item in items if (found := (advantages or {}).get(item.trajectory.id)) is not None])
    }
    metrics["groups/dead_share"] = dead_share(collected)
    metrics["groups/kept"] = float(num_groups)
    metrics["tools/wait_share"] = wait_share(collected)
    if generate_s := own.get("time/generate_s"):
        num_sampled = sum(item.trajectory.num_sampled for item in collected)
        metrics["throughput/generate_tokens_per_s"] = num_sampled / generate_s
    if update_s := own.get("time/update_s"):
        metrics["throughput/update_tokens_per_s"] = sum(len(item.trajectory.tokens) for item in used) / update_s
    return metrics


def _left_out_by_length(
    collected: Sequence[Scored], own: Mapping[str, float], mask_truncated: bool
) -> dict[str, float]:
    """Share of a step's rollouts that teach nothing because they are long: what is left is of quick tasks.

    They were cut by the token budget or by `max_turns` and are masked or have no reward, or their group was late and
    dropped, whose rollouts are as many as those of others.
    """
    rollouts = choose_tries(collected)
    cut = [item for item in rollouts if item.trajectory.stop in (StopReason.LENGTH, StopReason.MAX_TURNS)]
    num_long = sum(
        (mask_truncated and item.trajectory.stop is StopReason.LENGTH)
        or not (counts(item) or ((cause := find_cause(item)) is not None and cause.may_pass))
        for item in cut
    )
    num_groups, num_dropped = len({item.trajectory.task.id for item in rollouts}), own.get("groups/dropped", 0.0)
    share = (num_long / len(rollouts) * num_groups + num_dropped) / (num_groups + num_dropped) if rollouts else 0.0
    return {"left_out/length": share} if share else {}


# The advantages that a run reports for its trajectories: the mean over each one's tokens in the loss.


def mean_advantages(advantages_BT: Tensor, mask_BT: Tensor) -> list[float]:
    """Mean advantage of each row over the tokens of its mask, of which it has at least one."""
    means: list[float] = (advantages_BT.sum(1) / mask_BT.sum(1)).tolist()
    return means


def recompute_advantages(estimator: Estimator, asked: AdvantageInput) -> list[float]:
    """Mean advantages from rewards alone; for estimators of which `find_missing` names nothing."""
    assert find_missing(estimator) is None, find_missing(estimator)
    return mean_advantages(advantages_by_world(estimator, asked).advantages_BT, asked.action_mask_BT)


def find_missing(estimator: Estimator) -> str | None:
    """The inputs of an estimator that only its engine has, in words; None where it reads rewards alone."""
    kind = type(estimator).__module__.rpartition(".")[2]
    if estimator.needs_critic:
        return f"{kind} needs a critic's values of each token, which are not stored"
    if estimator.needs_teacher:
        return f"{kind} needs what its teacher says of each token, which is not stored"
    if estimator.needs_greedy:
        return f"{kind} takes the rewards of greedy rollouts, which are not scored again"
    return None
