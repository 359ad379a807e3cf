"""What a forecast says beyond a step's figures: whether a run fits the GPUs named, how long like runs took to learn,
and which budgets cut.

The first two are known elsewhere: by the formulas of `rlf plan`, and from the curves of runs in the lineage.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import Any

from rlf.core.errors import RlfError
from rlf.lineage.read_only import has_lineage
from rlf.plan.compiler import Plan
from rlf.reports.sheets import counted, duration
from rlf.rollout.signal import SOLVED, CauseKind, Signal
from rlf.runs.planning import report_plan
from rlf.spec import RunSpec
from rlf.spec.models import WITHOUT_EFFECT, TrainSpec
from rlf.types import RunStatus, Scored, StopReason
from rlf.types.score import costs_by_name

_GPUS = {
    "T4": 16,
    "L4": 24,
    "A10": 24,
    "A10G": 24,
    "RTX4090": 24,
    "L40S": 48,
    "A6000": 48,
    "A100": 80,
    "H100": 80,
    "H200": 141,
    "B200": 180,
}
"""Memory of cards in GB, as their makers name them; of an A100 the larger."""
_ASKED = re.compile(
    r"(?:(?P<number>[0-9]{1,5})x)?(?:(?P<card>[a-z]+[0-9]+[a-z]*)|(?P<size>[0-9]{1,5}(?:\.[0-9]+)?)GB)", re.IGNORECASE
)
_NEAR_END = 0.9
"""Share of a run's gain from which it has learned most of it."""
_LEAST_GAIN = 0.05
CUT = 0.01
"""Share of trajectories that a budget may cut."""
_FREE = ("seed", "name", *WITHOUT_EFFECT)
_FREE_TRAIN = ("steps", "learning_rate")
"""What like runs may differ in: these, and how often they are evaluated and saved."""


@dataclass(frozen=True, slots=True)
class GpuOutlook:
    """Whether a run fits the GPUs named, by the formulas of `rlf plan`."""

    asked: str
    num_gpus: int
    size_bytes: int
    """Of each."""
    num_needed: int
    """GPUs that the spec asks for."""
    fullest_bytes: int | None
    """Of the fullest GPU."""
    fits: bool | None
    """Whether there are enough GPUs, each large enough; None where sizes are not known."""
    why: str
    """Why it does not fit, or is not known; empty where the sizes say it."""


@dataclass(frozen=True, slots=True)
class CutLimit:
    """A limit that cuts trajectories."""

    key: str
    limit: int
    cut: float
    """Share of the trajectories that it ended."""
    needed: int | None
    """From where it would cut fewer than 1 %, by those that ended by themselves; None where they do not say."""


@dataclass(frozen=True, slots=True)
class StepsOutlook:
    """After how many steps like runs had most of their gain on held-out questions."""

    low: int
    median: float
    high: int
    num_runs: int
    """That gained."""
    num_still: int
    """That did not."""
    run_ids: tuple[str, ...]


def parse_gpus(text: str) -> tuple[int, int]:
    """Number and bytes of `8xH100`, `H200` or `2x24GB`. Raises RlfError."""
    match = _ASKED.fullmatch(text.strip())
    size = None if match is None else match["size"] or _GPUS.get(match["card"].upper())
    if match is None or size is None:
        known = ", ".join(_GPUS)
        raise RlfError(f"--gpus: got {text!r}; expected e.g. `8xH100` or `8x80GB` (known: {known}).")
    return int(match["number"] or 1), int(float(size) * 1e9)


def expect_gpus(files: Sequence[Path], overrides: Sequence[str], asked: str, runs_folder: Path) -> GpuOutlook:
    """What `rlf plan` says of a spec on these GPUs. Raises RlfError, SpecError."""
    number, size_bytes = parse_gpus(asked)
    report = report_plan(files, overrides, gpu=f"{size_bytes / 1e9:g}GB", runs_folder=runs_folder)
    peaks = [group.peak_bytes for group in report.gpus] or (
        [] if report.memory is None else [report.memory.total_bytes]
    )
    needed, fits = max(1, report.num_gpus), None if report.fit is None else report.fit.fits
    why = next((group.lacks for group in report.gpus if group.lacks), report.memory_unknown)
    if number < needed:
        fits, why = False, f"the spec asks for {counted(needed, 'GPU')}"
    return GpuOutlook(asked, number, size_bytes, needed, max(peaks, default=None), fits, why)


def gpu_words(found: GpuOutlook) -> str:
    """For people. Time is not estimated: only a run knows it."""
    verdict = {True: "fits", False: "does not fit", None: "cannot say whether it fits"}[found.fits]
    why = f": {found.why}" if found.why else ""
    if found.fullest_bytes is not None and not why:
        sizes = f"{found.fullest_bytes / 1e9:.3g} GB of {found.size_bytes / 1e9:.3g} GB"
        why = f": {sizes} on the fullest of {counted(found.num_needed, 'GPU')}, estimated"
    return f"{found.asked}: {verdict}{why}; time there: cannot say before a run has made a step on it"


def expect_steps(plan: Plan, runs_folder: Path) -> StepsOutlook | None:
    """When runs like this one had learned, whatever their seeds, lengths and learning rates; None without any."""
    if not has_lineage(runs_folder):
        return None
    from rlf.runs.place import open_reader  # loads the database's library

    own, reached, still = _comparable(plan.model_dump(mode="json", by_alias=True)["spec"]), dict[str, int](), 0
    with open_reader(runs_folder) as reader:
        for line in reader.run_lines():
            run = reader.get_run(line.id)
            if run.status is not RunStatus.FINISHED or _comparable(run.record.plan.get("spec", {})) != own:
                continue
            curve = [
                (one.step, one.metrics["success"])
                for one in reader.evaluations(line.id)
                if one.mode == "sampled" and "success" in one.metrics
            ]
            step = find_step(curve)
            if step is not None:
                reached[line.id] = step
            else:
                still += len(curve) > 1
    if not reached and not still:
        return None
    steps = list(reached.values()) or [0]
    return StepsOutlook(min(steps), median(steps), max(steps), len(reached), still, tuple(reached))


def find_step(curve: Sequence[tuple[int, float]]) -> int | None:
    """The first evaluation with most of the gain from the first to the best one; None for a curve that did not rise."""
    if len(curve) < 2:
        return None
    first, best = curve[0][1], max(success for _, success in curve)
    if best - first < _LEAST_GAIN:
        return None
    return next(step for step, success in curve if success >= first + _NEAR_END * (best - first))


def _comparable(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if key not in (*_FREE, "eval", "checkpoint")}
    train = {key: value for key, value in kept.get("train", {}).items() if key not in _FREE_TRAIN}
    return {**kept, "train": train}


def steps_words(found: StepsOutlook | None, num_steps: int, step_s: float | None) -> Iterator[str]:
    """For people."""
    if found is None:
        yield "steps to expect: cannot say; no run that differs only in seed, steps and learning rate has finished here"
        return
    of = f"{counted(found.num_runs + found.num_still, 'run')} like this one"
    if not found.num_runs:
        yield f"steps to expect: cannot say; none of {of} gained {100 * _LEAST_GAIN:.0f} points on held-out questions"
        return
    each = "" if step_s is None else f" ({duration(step_s * found.median)})"
    few = f"; this one has {num_steps}" if num_steps < found.median else ""
    yield (
        f"steps to expect: {found.median:g}{each}, from {found.low} to {found.high}, until {found.num_runs} of {of} "
        f"had {100 * _NEAR_END:.0f} % of their gain on held-out questions{few}"
    )


def read_budgets(played: Sequence[Scored], spec: RunSpec) -> Iterator[CutLimit]:
    """The limits that cut some trajectories."""
    rollout = spec.rollout
    trajectories = [item.trajectory for item in played if item.trajectory.turns]
    per_turn = rollout.max_new_tokens
    longest = [max(turn.end - turn.start for turn in each.turns) for each in trajectories]
    is_long = [each.stop is StopReason.LENGTH for each in trajectories]
    by_turn = [
        cut and per_turn is not None and length >= per_turn for cut, length in zip(is_long, longest, strict=True)
    ]
    total = [cut and not of_turn for cut, of_turn in zip(is_long, by_turn, strict=True)]
    turns = [each.stop is StopReason.MAX_TURNS for each in trajectories]
    for key, limit, sizes, cut in (
        ("rollout.max_new_tokens", per_turn, longest, by_turn),
        ("rollout.max_total_tokens", rollout.max_total_tokens, [len(each.tokens) for each in trajectories], total),
        ("rollout.max_turns", rollout.max_turns, [len(each.turns) for each in trajectories], turns),
    ):
        if limit is not None and any(cut):
            yield CutLimit(key, limit, fmean(cut), find_needed(sizes, cut))


def find_needed(sizes: Sequence[int], cut: Sequence[bool]) -> int | None:
    """The size that fewer than 1 % would exceed, by Kaplan and Meier (1958): what was cut has at least its size.

    None where more than that are cut at the largest size that ended by itself.
    """
    left, at_risk = 1.0, len(sizes)
    for size, is_cut in sorted(zip(sizes, cut, strict=True)):
        if not is_cut:
            left *= 1 - 1 / at_risk
        at_risk -= 1
        if left < CUT * (1 - 1e-9):  # up to what rounding leaves
            return size
    return None


# Success p follows the replicator's curve: logit(p / r) rises by the learning rate times the number of updates times a
# constant, measured on the built-in models; r is the share of tasks of kinds that the policy solves at all. Pure.

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
