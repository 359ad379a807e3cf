"""Whether a run will learn, what shows it, what it costs: how a policy that is rewarded for what it does moves on.

Success p follows the replicator's curve: logit(p / r) rises by the learning rate times the number of updates times a
constant, measured on the built-in models; r is the share of tasks of kinds that the policy solves at all. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist, fmean

from rlf.rollout.signal import SOLVED, CauseKind, Signal
from rlf.spec import RunSpec
from rlf.spec.models import TrainSpec
from rlf.types import Scored
from rlf.types.score import costs_by_name

_SPEED = 3500.0
"""Rise of the logit of success by an update with a learning rate of 1."""
_STILL = 0.1
"""Rise over the whole run up to which the rate is too low."""
_BREAKS = 0.01
"""Learning rate from which an update breaks a policy."""
_CHANCE = 0.03
"""Success at which it may be by chance as well, with nothing to build on."""
_QUESTIONS = 256
"""That are taken where there are none."""
_LEAST, _BROKEN = 0.02, 0.05
_GENERATIONS = (2, 4, 8, 16, 32, 64)
_CHANGE = 0.05


class Obstacle(StrEnum):
    """A reason why nothing is learned from rewards that are as they should be."""

    LEARNING_RATE_LOW = "learning_rate_low"
    """All updates together hardly move the policy."""
    LEARNING_RATE_HIGH = "learning_rate_high"
    """One update breaks it."""
    SOLVED = "solved"
    """There is nothing left to gain."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a run will probably not learn."""

    kind: CauseKind | Obstacle
    seen: str
    advice: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Success over a run."""

    start: float
    reach: float
    """Share of tasks that it can come to."""
    rise: float
    """Of the logit, by an update."""

    def at(self, step: int) -> float:
        """Success after some steps."""
        share = min(max(self.start / self.reach, 1e-3), 1 - 1e-3) if self.reach else 0.0
        odds = share / (1 - share) * math.exp(min(step * self.rise, 500.0))
        return self.reach * odds / (1 + odds)

    def done(self, step: int) -> float:
        """How much of the way from the start to what can be reached is made."""
        left = self.reach - self.start
        return min(1.0, max(0.0, (self.at(step) - self.start) / left)) if left > 0 else 0.0


def expect_curve(groups: Sequence[Sequence[Scored]], train: TrainSpec) -> Curve | None:
    """The curve from groups of rollouts; None where none has a success. Kinds that none solved stay as they are."""
    known = [(group[0].trajectory.task.kind, [one.success or 0.0 for one in group]) for group in groups]
    if not known:
        return None
    solved = {kind for kind, values in known if max(values) > 0}
    reach = fmean(kind in solved for kind, _ in known)
    rise = _SPEED * train.learning_rate * train.epochs * train.mini_batches
    return Curve(fmean(fmean(values) for _, values in known), reach, rise)


def expect_learning(
    curve: Curve | None, signal: Signal, train: TrainSpec, num_questions: int, share_lost: float
) -> float:
    """The chance that held-out success rises by more than chance explains: the power of McNemar's test at its end."""
    if curve is None or signal is not Signal.SOME:
        return _LEAST
    if train.learning_rate >= _BREAKS:
        return _BROKEN
    gain, num = curve.at(train.steps) - curve.start, num_questions or _QUESTIONS
    differ = max(gain + 2 * share_lost * curve.done(train.steps), 1 / num)
    z = gain / math.sqrt(differ / num) - NormalDist().inv_cdf(0.975)
    real = curve.start / (curve.start + _CHANCE)
    return min(1 - _LEAST, max(_LEAST, real * NormalDist().cdf(z)))


def find_obstacle(curve: Curve | None, train: TrainSpec) -> Hindrance | None:
    """Why nothing is learned, where tasks, tools and rewards are as they should be."""
    seen = f"train.learning_rate {train.learning_rate:g} over {train.steps} steps"
    if curve is not None and curve.start >= SOLVED:
        advice = "Take harder tasks."
        return Hindrance(Obstacle.SOLVED, f"{100 * curve.start:.0f} % succeed before training", advice)
    if train.learning_rate >= _BREAKS:
        return Hindrance(Obstacle.LEARNING_RATE_HIGH, f"{seen}: such updates break a policy", "Write a lower one.")
    if curve is not None and curve.rise * train.steps <= _STILL:
        return Hindrance(Obstacle.LEARNING_RATE_LOW, f"{seen} hardly moves the policy", "Write a higher one.")
    return None


def expect_cost(
    groups: Sequence[Sequence[Scored]],
    curve: Curve | None,
    spec: RunSpec,
    num_questions: int,
    kinds: Mapping[str | None, int],
) -> float:
    """US dollars of a run's tools and judges, its evaluations included.

    A policy that learns comes to play as those of its trajectories that are right, kind by kind.

    Args:
        num_questions: held-out ones.
        kinds: how many tasks the training set has of each kind, of which the groups are a sample.
    """
    costs, right = dict[str | None, list[float]](), dict[str | None, list[float]]()
    for item in (item for group in groups for item in group):
        cost, kind = sum(costs_by_name([item]).values()), item.trajectory.task.kind
        costs.setdefault(kind, []).append(cost)
        right.setdefault(kind, []).extend([cost] if item.success == 1.0 else [])
    if not any(map(any, costs.values())):
        return 0.0
    total = sum(kinds[kind] for kind in costs)
    now, then = (
        sum(kinds[kind] / total * fmean(side[kind] or costs[kind]) for kind in costs) for side in (costs, right)
    )

    def each(step: int) -> float:
        return now if curve is None else now + curve.done(step) * (then - now)

    train, evals = spec.train, spec.eval
    played = sum(map(each, range(train.steps))) * train.prompts_per_step * spec.rollout.num_generations
    tries = num_questions * (evals.num_samples + evals.greedy)
    return played + sum(map(each, evals.due_steps(train.steps))) * tries


def expect_differing(successes: Sequence[Sequence[float]]) -> dict[int, float]:
    """The share of groups of k in which some succeed and some fail.

    1 - E[p^k] - E[(1 - p)^k] over the tasks. Up to the number that were sampled it is the share of subsets of k, which
    is unbiased; beyond, p is Beta(a, b) with the mean and the variance of the groups, taken from their counts.
    """
    if not successes:
        return {}
    fewest = min(len(values) for values in successes)
    mean = fmean(fmean(values) for values in successes)
    pairs = [_share_differing(values, 2) for values in successes] if fewest > 1 else [0.0]
    # Two tries of a task differ with chance 2 E[p (1 - p)], which is 2 m (1 - m) of tasks that are alike.
    alike = fmean(pairs) / (2 * mean * (1 - mean)) if 0 < mean < 1 else 0.0
    total = alike / (1 - alike) if alike < 1 else math.inf
    found = {}
    for k in _GENERATIONS:
        if k <= fewest:
            found[k] = fmean(_share_differing(values, k) for values in successes)
        elif total in (0.0, math.inf):
            found[k] = 0.0 if total == 0 else 1 - mean**k - (1 - mean) ** k
        else:
            right = math.prod((mean * total + at) / (total + at) for at in range(k))
            wrong = math.prod(((1 - mean) * total + at) / (total + at) for at in range(k))
            found[k] = 1 - right - wrong
    return found


def _share_differing(values: Sequence[float], k: int) -> float:
    """Of the subsets of k values, those with a success and a failure."""
    right = round(sum(values))
    same = math.comb(right, k) + math.comb(len(values) - right, k)
    return 1 - same / math.comb(len(values), k)


def find_questions(share_lost: float) -> int:
    """n = (z_a sqrt(d) + z_b sqrt(d - c^2))^2 / c^2, Connor (1987): by McNemar's test at 5 %, with a chance of 80 %.

    c is the change, d = c + 2 share_lost: of two tries the first alone succeeds in that share of the questions.
    """
    differ = _CHANGE + 2 * share_lost
    z_a, z_b = (NormalDist().inv_cdf(level) for level in (0.975, 0.8))
    return math.ceil(((z_a * math.sqrt(differ) + z_b * math.sqrt(differ - _CHANGE**2)) / _CHANGE) ** 2)
