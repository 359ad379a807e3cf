"""Why a trajectory was trained with its advantage: the arithmetic from scores to tokens, against what was stored."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from rlf.core.errors import RlfError
from rlf.lineage.records import TRAIN, StoredTrajectory, TrajectoryFilter
from rlf.runs.place import Places, open_reader
from rlf.runs.restore import restore_plan
from rlf.spec.models import TrainSpec
from rlf.training.counting import counts
from rlf.training.evaluation import find_missing, mean_advantages
from rlf.types.score import Scored

TOLERANCE = 1e-6
"""Difference of what is stored and what is recomputed from which they do not agree."""


@dataclass(frozen=True, slots=True)
class TermPart:
    """The share of a term in the reward."""

    term: str
    value: float | None
    weight: float
    contribution: float
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An answer to the same question."""

    k: int
    reward: float | None
    advantage: float | None
    """As it was stored."""
    counts: bool
    """Whether it is in the group's statistics."""


@dataclass(frozen=True, slots=True)
class AdvantageReason:
    """The arithmetic of one trajectory's advantage."""

    run_id: str
    step: int
    k: int
    algorithm: str
    formula: str
    """What the estimator computes, in its own words."""
    terms: tuple[TermPart, ...]
    reward: float | None
    group: tuple[GroupMember, ...]
    group_mean: float | None
    group_std: float | None
    stored: float | None
    recomputed: float | None
    """None where it cannot be: `missing` says why."""
    missing: str
    agrees: bool | None
    """Whether the two are the same to 1e-6; None where one is not there."""
    tokens: tuple[float | None, ...]
    """Advantage of each token; None for those that the policy did not sample. Empty where they cannot be recomputed."""


def explain_advantage(run: str, runs: Path | str, step: int, k: int) -> AdvantageReason:
    """Recomputes the advantages of a step from its stored scores. Loads torch.

    Raises:
        RlfError: there is no such trajectory.
    """
    with open_reader(Path(runs)) as reader:
        record = reader.get_run(run).record
        heads = reader.trajectories(record.id, TrajectoryFilter(phase=TRAIN, step=step))
        stored = [one for one in reader.wholes(record.id, heads) if one is not None]
        train = restore_plan(record, Places.of(record, reader.store)).spec.train
    place = next((at for at, one in enumerate(stored) if one.summary.k == k), None)
    if place is None:
        raise RlfError(f"run {record.id}: no training trajectory {k} of step {step} is kept.")
    mean, tokens, missing = _recompute_advantage(stored, place, train)
    one = stored[place]
    members = [
        GroupMember(other.summary.k, other.summary.reward, other.summary.advantage, counts(other.scored))
        for other in stored
        if other.summary.task_id == one.summary.task_id
    ]
    rewards = [member.reward for member in members if member.counts and member.reward is not None]
    kept = one.summary.advantage
    return AdvantageReason(
        run_id=record.id,
        step=step,
        k=k,
        algorithm=type(train.algorithm).__module__.rpartition(".")[2],
        formula=inspect.cleandoc(type(train.algorithm).__doc__ or "").partition("\n\n")[0],
        terms=term_parts(one.scored),
        reward=one.summary.reward,
        group=tuple(members),
        group_mean=fmean(rewards) if rewards else None,
        group_std=stdev(rewards) if len(rewards) > 1 else None,
        stored=kept,
        recomputed=mean,
        missing=missing,
        agrees=None if kept is None or mean is None else abs(kept - mean) <= TOLERANCE * max(1.0, abs(kept)),
        tokens=tokens,
    )


def term_parts(scored: Scored) -> tuple[TermPart, ...]:
    """The terms of a reward."""
    return tuple(
        TermPart(score.term, score.value, score.weight, score.contribution, str(score.state), score.reason)
        for score in scored.scores
    )


def _is_greedy(scored: Scored) -> bool:
    return scored.trajectory.id.endswith("/greedy")


def _find_unused(scored: Scored, greedy: Mapping[str, float] | None) -> str | None:
    """Why no loss includes a trajectory; None where one may."""
    if greedy is not None and _is_greedy(scored):
        return "it is its question's greedy rollout: the others are compared with it, and no loss includes it"
    if scored.trajectory.id.startswith("demonstration/"):
        return "it is a demonstration: it is imitated, whatever its reward is"
    if not counts(scored):
        return "it is unscorable: no group and no loss includes it"
    if greedy is not None and scored.trajectory.task.id not in greedy:
        return "its question's greedy rollout has no reward: no loss includes it"
    return None


def _recompute_advantage(
    stored: Sequence[StoredTrajectory], place: int, train: TrainSpec
) -> tuple[float | None, tuple[float | None, ...], str]:
    """Mean and tokens of a trajectory's advantages; or why there are none."""
    from rlf.algo.estimator import advantages_by_world
    from rlf.training.batch import make_batch

    played = [one.scored for one in stored if _is_greedy(one.scored)]
    rewards = {one.trajectory.task.id: one.reward for one in played if one.reward is not None}
    greedy = rewards if train.algorithm.needs_greedy else None
    missing = find_missing(train.algorithm) if greedy is None else None
    if missing is not None:
        return None, (), missing
    missing = _find_unused(stored[place].scored, greedy)
    if missing is not None:
        return None, (), missing
    used = [one for one in stored if _find_unused(one.scored, greedy) is None]
    reads_turns = train.algorithm.reads_turns
    batch = make_batch([one.scored for one in used], reads_turns=reads_turns, greedy_by_task=greedy)
    asked = batch.advantage_input(train.reward_clip)
    advantages_BT = advantages_by_world(train.algorithm, asked).advantages_BT
    row = next(at for at, one in enumerate(used) if one is stored[place])
    mean = mean_advantages(advantages_BT, asked.action_mask_BT)[row]
    num_tokens = len(stored[place].scored.trajectory.tokens)
    values, mask = advantages_BT[row].tolist()[:num_tokens], asked.action_mask_BT[row].tolist()[:num_tokens]
    return mean, tuple(value if sampled else None for value, sampled in zip(values, mask, strict=True)), ""
