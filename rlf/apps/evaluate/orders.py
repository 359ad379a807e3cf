"""At which weight of a reward term two trajectories of a group change places. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from rlf.lineage.records import StoredTrajectory

_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A weight at which two trajectories have equal rewards, and beyond which the other one has more."""

    weight: float
    gains: int
    """Position in its step of the one that has more beyond it."""
    loses: int


@dataclass(frozen=True, slots=True)
class TermOrder:
    """How far the order within a group rests on the weight of one term, the other weights as they are."""

    term: str
    weight: float
    """As it counted."""
    below: OrderChange | None
    """The nearest lower weight of its sign; None: no such weight changes the order."""
    above: OrderChange | None
    """The nearest higher one of its sign."""


def find_orders(group: Sequence[StoredTrajectory]) -> tuple[TermOrder, ...]:
    """The terms of a group with what would change its order; those that have weight nowhere are left out.

    R_i(w) = R_i + (w - w_0) v_i, where v_i is the value of the term, 0 where it did not count: R_i(w) = R_j(w) at
    w = w_0 - (R_i - R_j) / (v_i - v_j).
    """
    counted = [one for one in group if one.summary.reward is not None]
    names = dict.fromkeys(score.term for one in counted for score in one.scored.scores)
    return tuple(found for name in names if (found := _find_order(name, counted)) is not None)


def _find_order(name: str, group: Sequence[StoredTrajectory]) -> TermOrder | None:
    scores = [next((score for score in one.scored.scores if score.term == name), None) for one in group]
    weight = max((score.weight for score in scores if score is not None), key=abs, default=0.0)
    if not weight or len(group) < 2:
        return None
    rows = [
        (one.summary.k, one.summary.reward or 0.0, score.value or 0.0 if score is not None and score.weight else 0.0)
        for one, score in zip(group, scores, strict=True)
    ]
    below, above = list[OrderChange](), list[OrderChange]()
    for one, other in combinations(sorted(rows, key=lambda row: row[2]), 2):
        (low, low_reward, low_value), (high, high_reward, high_value) = one, other
        if high_value - low_value <= _SAME:
            continue
        equal = weight - (high_reward - low_reward) / (high_value - low_value)
        if abs(equal - weight) <= _SAME:  # equal now: any other weight puts one before the other
            equal = weight
        if equal * weight >= 0:  # a weight keeps its sign
            below += [OrderChange(equal, gains=low, loses=high)] if equal <= weight else []
            above += [OrderChange(equal, gains=high, loses=low)] if equal >= weight else []
    return TermOrder(
        name,
        weight,
        max(below, key=lambda one: one.weight, default=None),
        min(above, key=lambda one: one.weight, default=None),
    )


def order_words(found: TermOrder) -> str:
    """For people: `weight of 'brief', now 4: below 2.5 trajectory 3 has more than 1; above it the order stays`."""
    sides = ((found.below, "below", "lower"), (found.above, "above", "higher"))
    words = [
        f"{side} {one.weight:g} trajectory {one.gains} has more than {one.loses}"
        if one is not None
        else f"no {other} one changes the order"
        for one, side, other in sides
    ]
    return f"weight of {found.term!r}, now {found.weight:g}: {'; '.join(words)}"
