"""`rlf why`: which turn of a trajectory decided, and how its scores became its advantage.

A turn's worth is how it changed the chance of success: the share of right ones among continuations of the same
beginning, with the turn and without it. What was sampled is kept token by token, so that only the turn differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

from rlf.apps.evaluate.advantage import AdvantageReason, TermPart, explain_advantage, term_parts
from rlf.apps.evaluate.branches import Branches, BranchPoint, find_trajectory, play_points
from rlf.apps.evaluate.findings import Findings
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.text import shorten
from rlf.lineage.records import TRAIN, StoredTrajectory, TrajectoryFilter
from rlf.reports.pages.chart import Chart, Line
from rlf.reports.sheets import Sheet, decimal, percent, points, points_range
from rlf.reports.statistics import Interval, wilson_interval
from rlf.rollout.rollout import Prefix
from rlf.runs.place import open_reader
from rlf.types import Trajectory, Turn

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


CONFIDENCE = 0.95
"""That no turn is named by chance, all turns of the trajectory together."""
_LEAST = 0.2
"""Change below which a turn is not named: the last one always settles what was open."""
_SHOWN = 60
"""Characters of a turn that are shown."""


@dataclass(frozen=True, slots=True)
class TurnWorth:
    """What one turn changed."""

    turn: int
    """From 1."""
    text: str
    """Its calls, or its answer."""
    before: float
    """Share of right continuations without it."""
    after: float
    """With it; of the last turn 1 or 0, as it ended."""
    change: Interval
    """Of `after - before`, wide enough for all turns together."""
    branches: str | None
    """The evaluation with the continuations without it."""

    @property
    def decides(self) -> bool:
        """Whether the change is large, and beyond chance."""
        return abs(self.after - self.before) >= _LEAST and (self.change.low > 0 or self.change.high < 0)


@dataclass(frozen=True, slots=True)
class Explanation(Jsonable):
    """Why a trajectory ended as it did, and what it was worth."""

    of: BranchPoint
    target: str
    """The model that played the continuations: `RUN@STEP`."""
    success: float
    reward: float | None
    terms: tuple[TermPart, ...]
    group: tuple[float | None, ...]
    """Rewards of the trajectories of the same task in its step, its own included."""
    orders: tuple[TermOrder, ...]
    """Which weights of terms would change the order of the group."""
    advantage: AdvantageReason | None
    """From the group's rewards to each token's advantage, against what was stored; None outside of training."""
    num_samples: int
    turns: tuple[TurnWorth, ...]
    decided: int | None
    """The turn with the largest change towards the end, of those of at least 20 points and beyond chance; None where
    there is none: cannot say."""


def explain_turns(
    point: BranchPoint, num_samples: int, *, at: str | None = None, runs_folder: Path, command: Sequence[str]
) -> Explanation:
    """Plays continuations from before each turn of a trajectory.

    Args:
        point: names it; its turn is not read.
        num_samples: continuations from each turn.
        at: the step of the checkpoint whose model plays; None: the newest.

    Raises:
        RlfError: there is no such trajectory or model, or the trajectory has no success to explain.
    """
    run_id, stored = find_trajectory(point, runs_folder)
    point, trajectory = replace(point, run=run_id), stored.scored.trajectory
    success = stored.summary.success
    if success is None or stored.summary.reward is None or not trajectory.turns:
        raise RlfError(
            f"{point.phase} {point.step}, {point.k} of {run_id}: it has no success to explain. Name another."
        )
    turns = [turn for turn in Prefix.choices(trajectory) if turn < len(trajectory.turns)]
    points = [replace(point, turn=turn) for turn in turns]
    played = play_points(
        run_id, lambda chat: points, stored, num_samples, at=at, runs_folder=runs_folder, command=command
    )
    worths = find_worths(trajectory, played, is_right=success >= 1.0)
    sign = 1 if success >= 1.0 else -1
    with open_reader(runs_folder) as reader:
        wanted = TrajectoryFilter(phase=point.phase, step=point.step, task_id=stored.summary.task_id)
        group = [one for one in reader.wholes(run_id, reader.trajectories(run_id, wanted)) if one is not None]
    deciding = [one for one in worths if one.decides and sign * (one.after - one.before) > 0]
    return Explanation(
        of=point,
        target=played[0].target,
        success=success,
        reward=stored.summary.reward,
        terms=term_parts(stored.scored),
        group=tuple(one.summary.reward for one in group),
        orders=find_orders(group),
        advantage=explain_advantage(run_id, runs_folder, point.step, point.k) if point.phase == TRAIN else None,
        num_samples=num_samples,
        turns=tuple(worths),
        decided=max(deciding, key=lambda one: abs(one.after - one.before)).turn if deciding else None,
    )


def find_worths(trajectory: Trajectory, played: Sequence[Branches], *, is_right: bool) -> list[TurnWorth]:
    """What each turn changed, of those with continuations from before and after them.

    Intervals of a difference of shares by Newcombe (1998), method 10, from Wilson's of either, at 1 - 0.05 / turns
    (Bonferroni); of the last turn, whose end is known, from Wilson's of the other.
    """
    turns = trajectory.turns
    confidence = 1 - (1 - CONFIDENCE) / len(turns)
    shares = [right_share(one, confidence) for one in played]
    if len(played) == len(turns):
        end = float(is_right)
        shares.append((end, Interval(end, end)))
    found = []
    for at, (before, after) in enumerate(pairwise(shares)):
        text = show_turn(turns[at], trajectory.answer if at == len(turns) - 1 else None)
        found.append(TurnWorth(at + 1, text, before[0], after[0], change_of(before, after), played[at].run_id))
    return found


def right_share(played: Branches, confidence: float) -> tuple[float, Interval]:
    """The share of right continuations. Raises RlfError where none could be scored."""
    num = played.num_played - played.num_unscorable
    if not num:
        raise RlfError(f"run {played.run_id}: none of {played.num_played} continuations could be scored; cannot say.")
    return played.num_right / num, wilson_interval(played.num_right, num, confidence)


def change_of(before: tuple[float, Interval], after: tuple[float, Interval]) -> Interval:
    """Of `after - before`, by Newcombe (1998), method 10, from the intervals of either."""
    (first, known), (second, then) = before, after
    low = math.hypot(second - then.low, known.high - first)
    high = math.hypot(then.high - second, first - known.low)
    return Interval(second - first - low, second - first + high)


def show_turn(turn: Turn, answer: str | None = None) -> str:
    """Its calls, or its answer."""
    text = ", ".join(f"{record.call.name}({dict(record.call.arguments)})" for record in turn.calls)
    if not text:
        text = " ".join((turn.text if answer is None else answer).split())
    return shorten(text, _SHOWN)


def show_explanation(found: Explanation) -> Findings:
    """For people, with the chance of success after each turn as a curve."""
    of, lines = found.of, list(_lines(found))
    title = f"why {of.phase} {of.step}, {of.k} of {of.run}"
    return Findings(title, [_sheet(found)], lines, charts=[_chart(found)])


def _sheet(found: Explanation) -> Sheet:
    rows = tuple(
        (
            str(one.turn),
            one.text,
            percent(one.before),
            percent(one.after),
            f"{points(one.after - one.before, signed=True)} ({points_range(one.change.low, one.change.high)})",
        )
        for one in found.turns
    )
    note = f"shares of {found.num_samples} continuations by {found.target}; 95 %, all turns together"
    return Sheet("Chance of success", note, ("turn", "what it did", "before", "after", "change"), rows)


def _chart(found: Explanation) -> Chart:
    first = found.turns[0].before if found.turns else found.success
    places = [(0.0, first), *((float(one.turn), one.after) for one in found.turns)]
    num = found.num_samples
    known = places if found.turns and found.turns[-1].branches is None else places[:-1]
    band = ((x, *wilson_interval(round(share * num), num)) for x, share in known)
    return Chart("Chance of success after each turn", (Line("success", 0, tuple(places), tuple(band)),), share=True)


def _lines(found: Explanation) -> Iterator[str]:
    end = "right" if found.success >= 1.0 else "wrong"
    if found.decided is None:
        yield f"it ended {end}; cannot say which turn decided: no change is large and beyond chance"
    else:
        one = found.turns[found.decided - 1]
        yield f"it ended {end}; turn {one.turn} decided: {percent(one.before)} before it, {percent(one.after)} after"
    terms = [f"{one.weight:g} x {decimal(one.value)} ({one.term})" for one in found.terms if one.value is not None]
    yield f"reward {decimal(found.reward)} = {' + '.join(terms) or 'no term has a value'}"
    if (reason := found.advantage) is not None:
        rewards = sum(member.counts for member in reason.group)
        yield (
            f"its group: {rewards} rewards, mean {decimal(reason.group_mean)}, deviation {decimal(reason.group_std)}; "
            f"{reason.algorithm}: {reason.formula}"
        )
        tokens = [value for value in reason.tokens if value is not None]
        if reason.recomputed is None:
            yield f"its advantage {decimal(reason.stored)}; it cannot be computed again: {reason.missing}"
        else:
            low, high = decimal(min(tokens)), decimal(max(tokens))
            values = low if low == high else f"{low} to {high}"
            same = {True: "as stored", False: f"stored was {decimal(reason.stored)}", None: "none was stored"}
            state = same[reason.agrees]
            yield f"its advantage {decimal(reason.recomputed)} ({state}): {values} for {len(tokens)} tokens"
    yield from (order_words(one) for one in found.orders)
