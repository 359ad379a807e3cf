"""Control charts of a judge: CUSUMs of its errors and of its calibrated residuals, with a stated run length.

Five one-sided charts run side by side, each S = max(0, S + x), Page 1954. One is of errors, where x is the
log-likelihood ratio of drifted to tolerated: the Bernoulli CUSUM of Reynolds and Stoumbos 1999. Four are of right
verdicts, whose residual d is the value less the judge's own mean on that side of the threshold, from its first
verdicts there: up (d), down (-d), compressed towards the threshold (-d on the good side, d on the poor one) and
spread away from it. Invariant: a judge that errs as tolerated, with any spread of values on their side, has
`run_length` sentinels or more between alarms on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

NUM_CHARTS = 5
CALIBRATION = 30
"""Right verdicts on a side of the threshold that its mean is of."""
_SLACK = 0.1
"""Half of the shift of values that is to be found."""
_MEAN_ERROR = 0.03
"""What a mean of so few verdicts may err, for which heights leave room."""
_SPREAD = 0.25
"""Largest deviation of values on one side, a half of the range: the worst case that heights are made for."""
_CELLS = 150
_NAMES = ("values are inflated", "values are deflated", "values are compressed", "values are spread")


class Charts:
    """The charts of one judge."""

    def __init__(self, tolerated: float, drifted: float, run_length: int, alarm: float | None) -> None:
        """`alarm` is the height of the errors' chart; None: the one that keeps `run_length`."""
        self._error = math.log(drifted / tolerated)
        self._right = math.log((1 - drifted) / (1 - tolerated))
        each = NUM_CHARTS * run_length
        outcomes = ((tolerated, self._error), (1 - tolerated, self._right))
        self._error_height = alarm or height_of(outcomes, each)
        slack = _SLACK - _MEAN_ERROR
        noise = ((0.5, _SPREAD - slack), (0.5, -_SPREAD - slack))
        self._residual_height = height_of(noise, each)
        self._errors = 0.0
        self._residuals = [0.0] * len(_NAMES)
        self._seen: dict[bool, list[float]] = {False: [], True: []}

    def add(self, value: float, *, judged: bool, known: bool) -> str | None:
        """Counts a verdict; what has drifted, where an alarm is due. Its chart starts again from 0."""
        self._errors = max(0.0, self._errors + (self._right if judged == known else self._error))
        if self._errors > self._error_height:
            self._errors = 0.0
            return "it errs too often"
        if judged != known:
            return None
        seen = self._seen[known]
        if len(seen) < CALIBRATION:
            seen.append(value)
            return None
        return self._add_residual(value - math.fsum(seen) / len(seen), 1.0 if known else -1.0)

    def _add_residual(self, residual: float, side: float) -> str | None:
        steps = (residual, -residual, -side * residual, side * residual)
        self._residuals = [max(0.0, s + x - _SLACK) for s, x in zip(self._residuals, steps, strict=True)]
        highest = max(range(len(_NAMES)), key=self._residuals.__getitem__)
        if self._residuals[highest] <= self._residual_height:
            return None
        self._residuals = [0.0] * len(_NAMES)
        return _NAMES[highest]

    def state(self) -> dict[str, Any]:
        """All that the charts have counted, as JSON has it."""
        return {
            "errors": self._errors,
            "residuals": list(self._residuals),
            "poor": list(self._seen[False]),
            "good": list(self._seen[True]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`."""
        self._errors, self._residuals = state["errors"], list(state["residuals"])
        self._seen = {False: list(state["poor"]), True: list(state["good"])}


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
