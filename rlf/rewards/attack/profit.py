"""Pay of behaviours: the share of the reward of being right, question by question and term by term.

    share_q = (reward_q - base_q) / (gold_q - base_q),  base_q = 0, or, where gold_q <= 0, the reward of doing nothing.

Questions that a behaviour answers rightly do not count, except for answers that are wrong on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from rlf.rewards.attack.causes import Cause
from rlf.rewards.attack.shapes import CONSTANTS, PADDED, VARIANTS, Shape
from rlf.rewards.attack.texts import is_right
from rlf.rewards.term import Term
from rlf.types import Scored, ScoreState

EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Attempt:
    """One behaviour over all questions."""

    name: str
    shape: Shape
    cause: Cause | None
    """What is wrong with a reward that pays it; None of references."""
    reward: float | None
    """Mean over the questions that could be scored; None where none could."""
    share: float | None
    """Mean share of the reward of being right, over the questions that count; None where there is none."""
    max_share: float | None
    """The greatest share of a question."""
    num_counted: int
    """Questions that `share` is over."""
    num_unscored: int
    """Questions that it was played on and that have no reward."""
    num_tokens: float
    """Sampled tokens per question."""
    contributions: Mapping[str, float]
    """Mean of weight x value by term."""
    shares: Mapping[str, float]
    """Mean share of the reward of being right by term, over the questions that count."""
    turns: tuple[str, ...] = ()
    """What it writes on the first question, turn by turn."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why it has no reward where it has none: the first reason of each term that gave no value."""

    def is_hack(self, share: float) -> bool:
        """Whether it is paid `share` of being right, or on a question all of it.

        The right answer after needless calls must be paid more than without them. What is the same for every question
        may be nearly right on one by chance, so that its mean alone counts.
        """
        if self.share is None or self.max_share is None:
            return False
        if self.shape == PADDED:
            return self.share > 1 + EPSILON
        whole = not CONSTANTS.intersection(self.shape.parts) and self.max_share >= 1 - EPSILON
        return whole or self.share >= share - EPSILON


@dataclass(frozen=True, slots=True)
class Scale:
    """The worth of being right on each question."""

    gold: Sequence[float | None]
    base: Sequence[float]

    def worth(self, question: int) -> float | None:
        """The reward of being right above the base; None where it is unknown or none."""
        gold = self.gold[question]
        worth = 0.0 if gold is None else gold - self.base[question]
        return worth if worth > EPSILON else None


def scale_of(gold: Sequence[Scored | None], nothing: Sequence[Scored | None]) -> Scale:
    """The scale by the rewards of the right answer and of doing nothing."""
    rewards = [_reward_of(item) for item in gold]
    least = [_reward_of(item) or 0.0 for item in nothing]
    base = [
        0.0 if reward is None or reward > EPSILON else min(0.0, low) for reward, low in zip(rewards, least, strict=True)
    ]
    return Scale(rewards, base)


def scale_of_ranges(terms: Sequence[Term], step: int, num_questions: int) -> Scale | None:
    """The scale by the greatest reward that the ranges of the terms allow; None where there is no bound."""
    top = 0.0
    for term in terms:
        top += max(term.weight_at(step) * term.counted(bound) for bound in term.bounds)
    return Scale([top] * num_questions, [0.0] * num_questions) if EPSILON < top < math.inf else None


def attempt_of(
    name: str,
    shape: Shape,
    cause: Cause | None,
    played: Sequence[Scored | None],
    scale: Scale | None,
    terms: Sequence[Term],
) -> Attempt:
    """Result of playing a shape; None in `played` where a question has no such shape."""
    known = [item for item in played if item is not None]
    counted = [] if scale is None else list(_list_counted(played, shape, scale, terms))
    shares = [share for _, share, _ in counted]
    return Attempt(
        name,
        shape,
        cause,
        mean(item.reward for item in known),
        mean(shares),
        max(shares, default=None),
        len(shares),
        sum(item.reward is None for item in known),
        fmean(item.trajectory.num_sampled for item in known) if known else 0.0,
        _mean_by_name((score.term, score.contribution) for item in known for score in item.scores),
        _mean_by_name((each.term, each.contribution / worth) for item, _, worth in counted for each in item.scores),
        tuple(turn.text for turn in known[0].trajectory.turns) if known else (),
        _missing_by_term(known),
    )


def _missing_by_term(known: Iterable[Scored]) -> dict[str, str]:
    scores = [score for item in known if item.reward is None for score in item.scores]
    found: dict[str, str] = {}
    for score in scores:
        if score.value is None and score.state is not ScoreState.GATED:
            found.setdefault(score.term, score.reason)
    return found


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of those that are there."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _list_counted(
    played: Sequence[Scored | None], shape: Shape, scale: Scale, terms: Sequence[Term]
) -> Iterator[tuple[Scored, float, float]]:
    """The questions that count: result, its share of the worth of being right, and that worth."""
    counts_all = shape == PADDED or not VARIANTS.isdisjoint(shape.parts)
    for question, item in enumerate(played):
        if item is None or item.reward is None or (not counts_all and is_right(item, terms)):
            continue
        if (worth := scale.worth(question)) is not None:
            yield item, (item.reward - scale.base[question]) / worth, worth


def _mean_by_name(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for name, value in values:
        by_name.setdefault(name, []).append(value)
    return {name: fmean(each) for name, each in by_name.items()}


def _reward_of(scored: Scored | None) -> float | None:
    return None if scored is None else scored.reward
