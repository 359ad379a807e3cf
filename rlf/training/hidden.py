"""The gap between what is trained on and what is hidden: the share of a trained term's pay that a hidden term refuses.

One value for each group: sum of p (1 - h) over sum of p, p what the trained term pays a rollout above its least, h the
hidden term's value scaled to 0 to 1. A share stays where it is while a policy gets better at what both mean, however
strict the hidden term is; it rises when the policy finds what pays without being meant. Rollouts of one task resemble
each other, so groups are the sample. What is never trained on never reaches the policy: no advantage, filter or
checkpoint reads any of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from rlf.algo.health import Alarm, Guard
from rlf.reports.sheets import percent
from rlf.rewards.term import Success, Term
from rlf.rollout.signal import quote, show_example
from rlf.types.events import SAMPLED, EvaluationFinished, RunEvent, StepFinished
from rlf.types.score import Score, Scored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ALPHA = 0.05
"""Chance of any alarm in a run whose gaps never rise."""
_UNKNOWN = 0.1
"""The share that is taken for the lowest while none is shown to have been lower: a sound second measurement refuses
about so much of what is right. A hole that is found before the first step, beside other pay, never raises the share."""
_STANDS_FOR = 2 / 3
"""Of the share of all rollouts that the hidden term refuses, what it refuses of a term's pay, at most, where that term
claims to measure the same."""
_OF_LOWEST = 0.2
"""Of the chance of an alarm, what the bound below which the share was may take; showing the rise has the rest."""
_MOST = 0.99
"""The greatest share above which a rise is looked for."""
_SHOWN = 3
"""Rollouts that an alarm shows."""


class _Rollout(NamedTuple):
    """One rollout that counts."""

    task_id: str
    scores: dict[str, Score]
    """By term."""


class _Part(NamedTuple):
    """A rollout as one trained and one hidden term have it."""

    place: int
    """Within the step."""
    pay: float
    refused: float
    """From 0 to 1."""


@dataclass(slots=True)
class _Gap:
    """One trained term against one hidden one, over the run so far."""

    hidden: Term
    trained: Term
    is_main: bool
    """Whether the trained term is what success is, or weighs most: what is meant by the reward."""
    alpha: float
    high: UpperBound = field(init=False)
    least: UpperBound = field(init=False)
    """Of 1 - the share: 1 - its bound is a lower one."""
    rise: RiseTest = field(init=False)
    lowest: float = _UNKNOWN
    """The share was at most this at some step."""
    since: int | None = None
    """The first step of those that show the rise."""
    num_shown: int = 0
    """Steps since it is shown."""
    sums: tuple[float, float] = (0.0, 0.0)
    """Over groups: shares of the pay, and of all rollouts, that are refused."""

    def __post_init__(self) -> None:
        self.high, self.least = UpperBound(_OF_LOWEST * self.alpha), UpperBound((1 - _OF_LOWEST) * self.alpha)
        self.rise = RiseTest((1 - _OF_LOWEST) * self.alpha)

    @property
    def guard(self) -> str:
        """What its alarm is called."""
        return f"hidden/{self.hidden.name}/{self.trained.name}"

    @property
    def claims_it(self) -> bool:
        """Whether the trained term claims to measure what the hidden one does."""
        return self.is_main or self.sums[0] <= _STANDS_FOR * self.sums[1] > 0

    def take(self, step: int, groups: Sequence[Sequence[_Part]], tolerated: float) -> list[float]:
        """Takes the groups of a step, or of the evaluation before the first one, step 0; the share of each."""
        shares = []
        if self.rise.log_capital <= 0 and not self.rise.is_shown:
            self.since = step
        for parts in groups:
            pay = sum(part.pay for part in parts)
            share = sum(part.pay * part.refused for part in parts) / pay
            self.rise.add(share, min(_MOST, self.lowest + tolerated), len(groups))
            refused = sum(part.refused for part in parts) / len(parts)
            self.sums = (self.sums[0] + share, self.sums[1] + refused)
            shares.append(share)
        if step == 0:  # other questions, of which the hidden term may refuse fewer: no later share is compared to these
            return shares
        self.high.add(shares)
        self.least.add([1 - share for share in shares])
        self.lowest = min(self.lowest, self.high.high)
        # What a term claims is known no sooner than a rise: bets are placed on every term, and count once it is.
        is_due = self.rise.is_shown and self.claims_it and self.rise.is_rising
        self.num_shown += is_due or self.num_shown > 0
        return shares


class HiddenWatch:
    """The hidden terms of one run under way: a fold over its steps."""

    def __init__(self, terms: Sequence[Term], success: Success | None, guard: Guard | None) -> None:
        hidden, trained = [t for t in terms if t.hidden], [t for t in terms if t.peak_weight]
        named = terms[0].name if success is None else success.term
        main = max(trained, key=lambda term: (term.name == named, term.peak_weight), default=None)
        pairs = [(h, t, t is main) for h in hidden for t in trained if t is main or not t.pays_for_form]
        self._gaps = [_Gap(h, t, is_main, _ALPHA / len(pairs)) for h, t, is_main in pairs]
        self._guard = guard
        self._has_begun = False
        self.raised = set[str]()
        """Names of alarms that are raised once and not again: a person has seen them and continued the run."""
        self.terms = frozenset(term.name for gap in self._gaps for term in (gap.hidden, gap.trained))
        """Names of the terms whose scores are read."""

    def measure(self, event: RunEvent, command: Callable[[int, int], str]) -> tuple[RunEvent, list[Alarm]]:
        """A step with its gaps among its metrics, and their alarms, with the rollouts that are paid most of a gap.

        Args:
            event: any; what is no step stays as it is. The sampled evaluation before the first one is betted on too.
            command: shows a trajectory, by its step and its position there.
        """
        if not self._gaps or not isinstance(event, StepFinished | EvaluationFinished):
            return event, []
        if isinstance(event, EvaluationFinished) and (event.step, event.mode, self._has_begun) != (0, SAMPLED, False):
            return event, []  # what a resumed run repeats is known from the lineage
        rollouts = [
            None if item.reward is None else _Rollout(item.trajectory.task.id, {s.term: s for s in item.scores})
            for item in event.trajectories
        ]
        metrics, alarms = self._look(event.step, rollouts)
        for at, alarm in enumerate(alarms):
            lines = [f"{alarm.text}. Most of it:"]
            for k in alarm.trajectories:
                lines += [_show(event.trajectories[k], self.terms), f"Look: {command(event.step, k)}"]
            alarms[at] = replace(alarm, text="\n  ".join(lines))
        return replace(event, metrics={**event.metrics, **metrics}), alarms

    def replay(self, scores: Iterable[tuple[int, int, str, Score]]) -> list[Alarm]:
        """Takes the scores of earlier steps: step, position, task's id, score. Their alarms are not raised again."""
        raised: list[Alarm] = []
        for step, rows in groupby(scores, key=lambda row: row[0]):
            rollouts: dict[int, _Rollout] = {}
            for _, k, task_id, score in rows:
                rollouts.setdefault(k, _Rollout(task_id, {})).scores[score.term] = score
            raised += self._look(step, list(rollouts.values()))[1]
        return raised

    def _look(self, step: int, rollouts: Sequence[_Rollout | None]) -> tuple[dict[str, float], list[Alarm]]:
        metrics: dict[str, float] = {}
        alarms: list[Alarm] = []
        self._has_begun = True
        for gap in self._gaps:
            groups = _group(gap, rollouts, step)
            if not groups:
                continue
            shares = gap.take(step, groups, 0.0 if self._guard is None else self._guard.above or 0.0)
            if step == 0:
                continue
            name, mean = f"gap/{gap.hidden.name}/{gap.trained.name}", fmean(shares)
            metrics |= {name: mean, f"{name}/low": 1 - gap.least.high, f"{name}/high": gap.high.high}
            is_due = self._guard is not None and gap.num_shown == self._guard.steps and gap.guard not in self.raised
            if self._guard is not None and is_due:
                alarms.append(_make_alarm(gap, self._guard, step, mean, groups))
        return metrics, alarms


def _group(gap: _Gap, rollouts: Sequence[_Rollout | None], step: int) -> list[list[_Part]]:
    """The rollouts by group, of groups in which the trained term pays something."""
    groups: dict[str, list[tuple[int, Score, float]]] = {}
    low, high = gap.hidden.counted_bounds
    for place, rollout in enumerate(rollouts):
        scores = {} if rollout is None else rollout.scores
        hidden, trained = scores.get(gap.hidden.name), scores.get(gap.trained.name)
        if rollout is not None and trained is not None and hidden is not None and hidden.value is not None:
            refused = (high - hidden.value) / (high - low)
            groups.setdefault(rollout.task_id, []).append((place, trained, refused))
    sign = 1 if gap.trained.weight_at(step) >= 0 else -1
    least = min(sign * bound for bound in gap.trained.counted_bounds)
    found = [list(_parts(items, sign, least)) for items in groups.values()]
    return [parts for parts in found if sum(part.pay for part in parts) > 0]


def _parts(items: Sequence[tuple[int, Score, float]], sign: int, least: float) -> Iterator[_Part]:
    # Where a term has no least value, the group's worst rollout is paid nothing. A closed gate, and a gain that a
    # required term takes away, pay nothing either: the score's weight is 0 then.
    values = [sign * score.value for _, score, _ in items if score.value is not None]
    floor = min(values, default=0.0) if least == -inf else least
    for place, score, refused in items:
        is_paid = score.value is not None and score.weight != 0
        yield _Part(place, sign * score.value - floor if is_paid and score.value is not None else 0.0, refused)


def _make_alarm(gap: _Gap, guard: Guard, step: int, mean: float, groups: Sequence[Sequence[_Part]]) -> Alarm:
    since, bound = gap.since or step, min(_MOST, gap.lowest + (guard.above or 0.0))
    before = (
        f"at most {percent(gap.lowest)} before"
        if gap.lowest < _UNKNOWN
        else f"and never shown to be below {percent(_UNKNOWN)}"
    )
    text = f"hidden term {gap.hidden.name!r} refuses {percent(mean)} of what {gap.trained.name!r} pays; "
    text += f"since step {since} more than {percent(bound)}, {before}"
    by_group = [sorted(parts, key=lambda part: -part.pay * part.refused) for parts in groups]
    # The first of each group before the second of any: three of one task would show one thing.
    ranked = sorted(
        (rank, -part.pay * part.refused, part.place) for parts in by_group for rank, part in enumerate(parts)
    )
    places = tuple(place for _, paid, place in ranked if paid < 0)[:_SHOWN]
    return Alarm(gap.guard, text, guard.action, step, since, mean, places)


def _show(item: Scored, terms: Collection[str]) -> str:
    verdicts = [
        f"{score.term} {score.value:g}" + (f" {quote(score.reason)}" if score.reason else "")
        for score in item.scores
        if score.term in terms and score.value is not None
    ]
    return "; ".join([show_example(item), *verdicts])


# Means of values from 0 to 1 that are looked at as they come. By betting: capital that grows only where a hypothesis is
# wrong reaches 1 / alpha, at any time, with a chance of at most alpha where it holds (Ville's inequality); Waudby-Smith
# and Ramdas 2024 (arXiv:2010.09686). The values may depend on those before, and their means may move.

_GRID = 200
"""Parts of 0 to 1 between which bounds lie."""
_STAKES = (0.2, 0.5, 0.9)
"""Shares of the most that may be bet; each has a third of the capital."""
_NUM_SHARES = 20
"""Shares of the capital from which `RiseTest` chooses what it bets, below 1."""
_HALF_LIFE = 32
"""Values after which one counts half in what `RiseTest` expects of the next, at least."""
_EXPECTED = 6
"""Values of which `RiseTest` supposes at first that half are 1 and half are 0: a rise worth an alarm is large, and what
it bets on is most often seen while few values are there."""


class UpperBound:
    """A bound that the mean was below at some look so far, at every look at once.

    For every m of a grid, K(m) = sum over k of w_k prod_(i >= k) (1 + c (m - x_i) / (1 - m)) is a supermartingale where
    no x_i had a mean below m, given those before: bets that begin at each look k with w_k = 1 / (k (k + 1)), so that
    early values do not weigh on later ones. `high` is the least m whose K(m) is 1 / alpha or more.
    """

    def __init__(self, alpha: float) -> None:
        import numpy as np

        self.high = 1.0
        self._needed = math.log(1 / alpha)
        self._means = np.arange(1, _GRID) / _GRID
        self._stakes = np.array(_STAKES)[:, None] / (1 - self._means)
        self._logs = np.full(self._stakes.shape, -math.inf)
        self._num_looks = 0

    def add(self, values: Sequence[float]) -> None:
        """Takes the values of the next look."""
        import numpy as np

        self._num_looks += 1
        share = 1 / (len(_STAKES) * self._num_looks * (self._num_looks + 1))
        self._logs = np.logaddexp(self._logs, math.log(share))
        for value in values:
            self._logs += np.log1p(self._stakes * (self._means - value))
        above = self._means[np.logaddexp.reduce(self._logs, axis=0) >= self._needed]
        self.high = float(above.min()) if above.size else 1.0


class RiseTest:
    """Whether the mean has been above a bound that is set before each value, at every look at once.

    prod_i (1 + f_i (x_i - m_i) / m_i) is a supermartingale where no x_i had a mean above its bound m_i, given those
    before. Of a grid, f_i is the share of the capital with which recent values would have made it grow the most
    (section B.2); it is 0 while values are below the bound, so that nothing is lost then.
    """

    def __init__(self, alpha: float) -> None:
        import numpy as np

        self.is_shown = False
        self.log_capital = 0.0
        self._needed = math.log(1 / alpha)
        self._shares = np.arange(_NUM_SHARES) / _NUM_SHARES
        self._growth: NDArray[np.float64] | None = None

    @property
    def is_rising(self) -> bool:
        """Whether recent values are above the bound."""
        return self._growth is not None and bool(self._growth.argmax())

    def add(self, value: float, bound: float, num_recent: int) -> None:
        """Takes the next value.

        Args:
            bound: above 0 and below 1.
            num_recent: values that come at once, which the half-life of what counts as recent is not below.
        """
        import numpy as np

        of_one, of_zero, grown = (np.log1p(self._shares * (each / bound - 1)) for each in (1.0, 0.0, value))
        if self._growth is None:
            self._growth = _EXPECTED * (of_one + of_zero) / 2
        self.log_capital += float(grown[self._growth.argmax()])
        self.is_shown = self.is_shown or self.log_capital >= self._needed
        self._growth = 0.5 ** (1 / max(_HALF_LIFE, num_recent)) * self._growth + grown
