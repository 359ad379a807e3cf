"""Sentinels: whether a judge still judges as it should, while it judges."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import stdev
from typing import Any

from rlf.apps.judges.settings import Compare, Judging, OnDrift, Sentinels
from rlf.core import RunError
from rlf.core.identity import derive_seed
from rlf.rewards.labels import LabelledLine, read_json_lines
from rlf.types import Trajectory

# Control charts of a judge: CUSUMs of its errors and of its calibrated residuals, with a stated run length.
#
# Nine one-sided charts run side by side, each S = max(0, S + x), Page 1954. One is of errors, where x is the
# log-likelihood ratio of drifted to tolerated: the Bernoulli CUSUM of Reynolds and Stoumbos 1999. Eight are of right
# verdicts, whose residual d is the value less the judge's own mean on that side of the threshold, from its first
# verdicts there. Four take both sides, at heights for the widest spread: up (d), down (-d), compressed towards the
# threshold (-d on the good side, d on the poor one) and spread away from it. Four take one side, up or down, at heights
# for the spread that its first verdicts have. Invariant: a judge that errs as tolerated, with any spread of values on
# their side, has `run_length` sentinels or more between alarms on average.

_NUM_RESIDUAL_CHARTS = 8
"""They share one half of the false alarms; the chart of errors has the other one."""
CALIBRATION = 30
"""Right verdicts on a side of the threshold that its mean and spread are of."""
_SLACK = 0.1
"""Half of the shift of values that is to be found."""
_MEAN_ERROR = 0.03
"""What a mean of so few verdicts may err at that spread, for which heights leave room."""
_SPREAD = 0.25
"""Largest deviation of values on one side, a half of the range: the worst case that heights are made for."""
_LEAST_SPREAD = 0.08
"""What so few equal values leave possible: one in ten may lie elsewhere."""
_SPREAD_ERROR = 1.2
"""How much larger a spread may be than that of so few verdicts."""
_FURTHEST = 0.35
"""Residuals of one side count at most so much: one stray verdict is no drift."""
_CELLS = 150
_NAMES = ("values are inflated", "values are deflated", "values are compressed", "values are spread")
_BOTH_SIDES = dict(zip(((1, 1), (-1, -1), (1, -1), (-1, 1)), _NAMES, strict=True))
"""By where the poor and the good side have moved."""


class _Side:
    """The right verdicts on one side of the threshold: the first ones, then two charts of what follows."""

    def __init__(self, run_length: int, seen: Sequence[float] = (), charts: Sequence[float] = (0.0, 0.0)) -> None:
        self._run_length = run_length
        self.seen = list(seen)
        self.charts = list(charts)
        """Up and down."""

    @property
    def is_calibrated(self) -> bool:
        return len(self.seen) == CALIBRATION

    @cached_property
    def mean(self) -> float:
        """Of the first verdicts, once these are all there."""
        return math.fsum(self.seen) / CALIBRATION

    def add(self, residual: float) -> bool:
        """Whether an alarm is due."""
        steps = (min(residual, _FURTHEST), min(-residual, _FURTHEST))
        self.charts = [max(0.0, s + x - _SLACK) for s, x in zip(self.charts, steps, strict=True)]
        return max(self.charts) > self._alarm_height

    @property
    def moved(self) -> int:
        """1 for up, -1 for down, 0 where neither chart is half as high as an alarm."""
        up, down = self.charts
        return 0 if max(up, down) <= self._alarm_height / 2 else 1 if up > down else -1

    @cached_property
    def _alarm_height(self) -> float:
        """That of the two residuals that reach it soonest for their spread and their highest value, Bennett 1962."""
        spread = min(_SPREAD, max(_LEAST_SPREAD, math.ceil(50 * _SPREAD_ERROR * stdev(self.seen)) / 50))
        slack = _SLACK - _MEAN_ERROR * spread / _SPREAD
        share = spread**2 / (_FURTHEST**2 + spread**2)
        outcomes = ((share, _FURTHEST - slack), (1 - share, -(spread**2) / _FURTHEST - slack))
        return height_of(outcomes, self._run_length)


class Charts:
    """The charts of one judge."""

    def __init__(self, tolerated: float, drifted: float, run_length: int, alarm: float | None) -> None:
        """`alarm` is the height of the errors' chart; None: the one that keeps `run_length`."""
        self._error = math.log(drifted / tolerated)
        self._right = math.log((1 - drifted) / (1 - tolerated))
        outcomes = ((tolerated, self._error), (1 - tolerated, self._right))
        self._error_height = alarm or height_of(outcomes, 2 * run_length)
        each = 2 * _NUM_RESIDUAL_CHARTS * run_length
        slack = _SLACK - _MEAN_ERROR
        noise = ((0.5, _SPREAD - slack), (0.5, -_SPREAD - slack))
        self._residual_height = height_of(noise, each)
        self._errors = 0.0
        self._residuals = [0.0] * len(_NAMES)
        self._each = each
        self._poor, self._good = _Side(each), _Side(each)

    def add(self, value: float, *, judged: bool, known: bool) -> str | None:
        """Counts a verdict; what has drifted, where an alarm is due. Its charts start again from 0."""
        self._errors = max(0.0, self._errors + (self._right if judged == known else self._error))
        if self._errors > self._error_height:
            self._errors = 0.0
            return "it is wrong too often"
        side = self._good if known else self._poor
        if judged != known:
            return None
        if not side.is_calibrated:
            side.seen.append(value)
            return None
        what = self._describe_drift(side, value - side.mean)
        if what is not None:
            self._residuals = [0.0] * len(_NAMES)
            self._poor.charts, self._good.charts = [0.0, 0.0], [0.0, 0.0]
        return what

    def _describe_drift(self, side: _Side, residual: float) -> str | None:
        inward = -residual if side is self._good else residual
        steps = (residual, -residual, inward, -inward)
        self._residuals = [max(0.0, s + x - _SLACK) for s, x in zip(self._residuals, steps, strict=True)]
        if side.add(residual):
            other = self._poor if side is self._good else self._good
            if other.is_calibrated and other.moved:
                return _BOTH_SIDES[self._poor.moved, self._good.moved]
            which = "good" if side is self._good else "poor"
            return f"values of {which} items are {'inflated' if side.moved > 0 else 'deflated'}"
        highest = max(range(len(_NAMES)), key=self._residuals.__getitem__)
        return _NAMES[highest] if self._residuals[highest] > self._residual_height else None

    def state(self) -> dict[str, Any]:
        """All that the charts have counted, as JSON has it."""
        return {
            "errors": self._errors,
            "residuals": list(self._residuals),
            "poor": list(self._poor.seen),
            "good": list(self._good.seen),
            "sides": [list(self._poor.charts), list(self._good.charts)],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`; one that was written before there were charts of one side starts these from 0."""
        self._errors, self._residuals = state["errors"], list(state["residuals"])
        charts = state.get("sides", ([0.0, 0.0], [0.0, 0.0]))
        self._poor = _Side(self._each, state["poor"], charts[0])
        self._good = _Side(self._each, state["good"], charts[1])


@cache
def height_of(outcomes: tuple[tuple[float, float], ...], run_length: int) -> float:
    """The least height, to 4 %, whose average run length is `run_length` under (probability, step) outcomes."""
    low, high = 0.0, 1.0
    while _run_length(outcomes, high) < run_length:
        low, high = high, 2 * high
    while high - low > 0.04 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _run_length(outcomes, middle) < run_length else (low, middle)
    return high


def _run_length(outcomes: Sequence[tuple[float, float]], height: float) -> float:
    """Expected verdicts until S passes the height, from 0: the Markov chain of Brook and Evans 1972.

    L(s) = 1 + sum_x p(x) L(max(0, s + x)), with L = 0 beyond the height, on cells of S; a step that ends between two
    cells is shared between them, which keeps its mean.
    """
    import numpy as np

    width, size = height / _CELLS, _CELLS + 1
    left = np.eye(size)
    for cell in range(size):
        for probability, step in outcomes:
            there = max(0.0, cell + step / width)
            below = int(there)
            for near, share in ((below, 1 - (there - below)), (below + 1, there - below)):
                if near < size:
                    left[cell, near] -= probability * share
    return float(np.linalg.solve(left, np.ones(size))[0])


# Agreement of two raters.


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Agreement beyond chance: (p_o - p_e) / (1 - p_e), Cohen 1960, eq. 1.

    p_o is the share of pairs that agree, p_e the sum over classes of the product of both raters' shares. None where
    both always say the same one thing, so that agreement is no achievement, and where there is no pair.
    """
    if not pairs:
        return None
    num = len(pairs)
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    observed = sum(one == other for one, other in pairs) / num
    chance = sum(count * others[each] for each, count in ones.items()) / (num * num)
    return None if chance == 1 else (observed - chance) / (1 - chance)


# Trajectories with verdicts of people in a JSONL file: what judges are calibrated with, and sentinels.

_WINNERS: Mapping[str, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True, slots=True)
class LabelledItem:
    """A trajectory and what people say of it."""

    trajectory: Trajectory
    label: float
    """Between 0 and 1; of a comparison 1, 1/2 or 0."""
    author: str | None


def read_labels(path: str, judging: Judging) -> list[LabelledItem]:
    """The items of a file, as a judge takes them. Raises RlfError, or SpecError with every line that is wrong."""

    def read(value: Any, number: int) -> LabelledItem:
        return _read_label(LabelledLine.model_validate(value), number, judging)

    return read_json_lines(path, "labelled trajectories", read, key_depth=1)


def _read_label(line: LabelledLine, number: int, judging: Judging) -> LabelledItem:
    name = line.id or f"line {number}"
    task = line.question or name if judging.compares_groups else name
    if judging.compare is Compare.PAIRWISE and not judging.compares_groups:
        if line.label not in _WINNERS or line.other is None:
            raise ValueError("expected `other`, and a label of first, second or tie, for a judge that compares pairs")
        line = line.model_copy(update={"gold": line.other})
        return LabelledItem(line.trajectory(name, task_id=task), _WINNERS[str(line.label)], line.author)
    if isinstance(line.label, str):
        raise ValueError(
            f"the label {line.label!r} is for a judge that compares pairs; expected a number, true or false"
        )
    return LabelledItem(line.trajectory(name, task_id=task), _scale_label(line.label, judging.range), line.author)


def _scale_label(label: bool | float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if isinstance(label, bool):
        return float(label)
    if not low <= label <= high:
        raise ValueError(f"the label {label:g} lies outside the judge's range, {low:g} to {high:g}")
    return (label - low) / (high - low)


_SEED_BITS = 63


class Watchman:
    """Chooses sentinels, counts their verdicts and raises the alarm. A checkpoint holds its `state`."""

    def __init__(
        self,
        name: str,
        settings: Sentinels,
        items: Sequence[LabelledItem],
        seed: int,
        notify: Callable[[str, str], None],
    ) -> None:
        """`name` is the term's; `notify` takes a level and the words."""
        assert items, "a watchman without sentinels"
        self._name = name
        self._settings = settings
        self._items = items
        self._seed = seed
        self._notify = notify
        self._step: int | None = None
        self._charts = Charts(settings.tolerated, settings.drifted, settings.run_length, settings.alarm)
        self._latest: deque[tuple[bool, bool]] = deque(maxlen=settings.window)
        self.kappa: float | None = None
        """Of judge and labels, over the latest sentinels of the steps before; None while it cannot be computed."""
        self.frozen: str | None = None
        """Why the term has no value any more; None while it has."""

    def sentinel(self, trajectory_id: str, step: int) -> LabelledItem | None:
        """The sentinel to try beside a trajectory; None beside most. The first of a step always has one."""
        is_first = self._step is None or step > self._step  # steps may overlap
        if is_first:
            self._step = step
            self.kappa = cohen_kappa(list(self._latest)) if len(self._latest) > 1 else None
        drawn = derive_seed(self._seed, "sentinel", step, trajectory_id)
        if not is_first and drawn / 2**_SEED_BITS >= self._settings.rate:
            return None
        return self._items[derive_seed(self._seed, "item", step, trajectory_id) % len(self._items)]

    def observe(self, value: float, item: LabelledItem) -> None:
        """Counts the judge's verdict on a sentinel, until the term is frozen. Raises RunError where it ends the run."""
        if self.frozen is not None:
            return
        threshold = self._settings.threshold
        judged, known = value >= threshold, item.label >= threshold
        self._latest.append((judged, known))
        if (what := self._charts.add(value, judged=judged, known=known)) is not None:
            self._raise_alarm(what)

    def state(self) -> dict[str, Any]:
        """The state in a checkpoint, as JSON has it."""
        latest = [list(pair) for pair in self._latest]
        return {"charts": self._charts.state(), "latest": latest, "kappa": self.kappa, "frozen": self.frozen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        self._charts.restore(state["charts"])
        self._latest.extend((bool(judged), bool(known)) for judged, known in state["latest"])
        self.kappa, self.frozen = state["kappa"], state["frozen"]

    def _raise_alarm(self, what: str) -> None:
        wrong = sum(judged != known for judged, known in self._latest)
        kappa = cohen_kappa(list(self._latest))
        agreement = "" if kappa is None else f", kappa {kappa:.2f}"
        words = (
            f"{self._name}: the judge has drifted: {what}; {wrong} of the latest {len(self._latest)} sentinels judged "
            f"wrongly{agreement} (step {self._step})"
        )
        if self._settings.on_drift is OnDrift.STOP:
            raise RunError(f"rewards.{words}. Check the judge and its prompt, then resume with `rlf resume`.")
        if self._settings.on_drift is OnDrift.FREEZE:
            self.frozen = f"frozen since step {self._step}, when the judge had drifted"
            words += "; the term is frozen"
        self._notify("alarm", f"rewards.{words}")
