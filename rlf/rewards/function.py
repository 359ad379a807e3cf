"""The reward: R = sum of weight_i * value_i over the terms, or none when one of them cannot say.

Unscorable is a third thing beside good and bad: such a trajectory is recorded and stays out of group and loss.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from time import perf_counter

from rlf.core import RlfError
from rlf.rewards.answers import golds
from rlf.rewards.term import Term, Verdict
from rlf.types import Score, Scored, Trajectory


class RewardFunction:
    """The declared terms, in order; the first one is what counts as success."""

    def __init__(self, terms: Sequence[Term]) -> None:
        """Prepares every term. Raises RlfError when one cannot be used."""
        assert terms, "a reward without terms"
        repeated = [name for name, count in Counter(term.name for term in terms).items() if count > 1]
        if repeated:
            raise RlfError(f"rewards: {repeated[0]!r} names two terms; give each term a name of its own")
        for term in terms:
            term.prepare()
        self.terms = tuple(terms)

    async def score(self, trajectory: Trajectory) -> Scored:
        """Every term's score and the reward; an unscorable trajectory has neither."""
        if not trajectory.scorable:
            return Scored(trajectory, scores=(), reward=None, success=None)
        scores = tuple([await _score(term, trajectory) for term in self.terms])
        return Scored(trajectory, scores, weighted_sum(scores), success=scores[0].value)

    async def score_all(self, trajectories: Iterable[Trajectory]) -> list[Scored]:
        """Scores many at once, in the order given."""
        return list(await asyncio.gather(*(self.score(trajectory) for trajectory in trajectories)))


def weighted_sum(scores: Sequence[Score]) -> float | None:
    """sum(weight * value); None if a value is missing or the sum is no finite number."""
    reward = 0.0
    for score in scores:
        if score.value is None:
            return None
        reward += score.weight * score.value
    return reward if math.isfinite(reward) else None


async def _score(term: Term, trajectory: Trajectory) -> Score:
    started = perf_counter()
    verdict = await _verdict(term, trajectory)
    return Score(term.name, verdict.value, term.weight, verdict.reason, perf_counter() - started)


async def _verdict(term: Term, trajectory: Trajectory) -> Verdict:
    """The term's verdict, or none with the reason: whatever a term does, the run goes on."""
    if term.needs_answer and not golds(trajectory.task.answer):
        return Verdict(None, f"task {trajectory.task.id} has no gold answer")
    try:
        verdict = await term.score(trajectory)
    except (Exception, SystemExit) as fault:  # noqa: BLE001 - a term may be anybody's code
        return Verdict(None, f"{type(fault).__name__}: {fault}"[:500])
    if verdict.value is not None and not math.isfinite(verdict.value):
        return Verdict(None, f"{verdict.value} is no finite number")
    return verdict
