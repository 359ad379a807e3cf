"""Run lengths of a judge's control charts: `python benchmarks/drift.py` prints false alarms and delays.

A judge as tolerated errs in a tenth of its verdicts. Its values lie at .75 and .25, with some spread, on their side of
the threshold; each drift begins after 150 sentinels.
"""

from __future__ import annotations

import argparse
import math
import random
from statistics import fmean, median

from rlf.apps.judges.drift import Charts

NUM = 500_000
NUM_JUDGES = 400
WITHIN = 60
DRIFTS = {
    "errs in .3 of its verdicts": (0.3, 0.0, 0.0),
    "inflates all by .2": (0.1, 0.2, 0.2),
    "compresses by .2": (0.1, 0.2, -0.2),
    "inflates poor items by .2": (0.1, 0.2, 0.0),
    "deflates good items by .2": (0.1, 0.0, -0.2),
}
Judge = tuple[float, float, float]
"""Share of errors, shift of the values of poor items, shift of those of good items."""


def add(charts: Charts, draw: random.Random, judge: Judge, spread: float) -> bool:
    """Whether one more sentinel raises an alarm."""
    errors, poor, good = judge
    known = draw.random() < 0.5
    judged = known if draw.random() >= errors else not known
    value = (0.75 if judged else 0.25) + draw.choice((-spread, spread)) + (good if judged else poor)
    return charts.add(value, judged=judged, known=known) is not None


def main() -> None:
    """Prints both tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("a judge as tolerated: sentinels between false alarms (stated: 5000)")
    for spread in (0.0, 0.1, 0.2, 0.25):
        charts, draw = Charts(0.1, 0.3, 5000, None), random.Random(1)
        alarms = sum(add(charts, draw, (0.1, 0.0, 0.0), spread) for _ in range(NUM))
        print(f"  spread {spread:.2f}: {NUM / max(alarms, 1):9.0f}")
    print(f"a judge that drifts: sentinels until the alarm, of {NUM_JUDGES} judges, and the share found in {WITHIN}")
    for spread in (0.05, 0.1, 0.15, 0.2):
        for name, judge in DRIFTS.items():
            counts = [_delay(seed, judge, spread) for seed in range(NUM_JUDGES)]
            found = sum(count <= WITHIN for count in counts) / NUM_JUDGES
            best = _best(judge, spread)
            words = f"mean {fmean(counts):5.1f}  median {median(counts):5.1f}  found {found:6.1%}  bound {best:5.1f}"
            print(f"  spread {spread:.2f}, {name:26} {words}", flush=True)


def _delay(seed: int, judge: Judge, spread: float) -> int:
    charts, draw = Charts(0.1, 0.3, 5000, None), random.Random(seed)
    for _ in range(150):
        add(charts, draw, (0.1, 0.0, 0.0), spread)
    count = 1
    while not add(charts, draw, judge, spread):
        count += 1
    return count


def _best(judge: Judge, spread: float) -> float:
    """ln(run length) / information of a sentinel, which no chart's mean delay beats in the limit (Lorden 1971).

    Of values that are normal around their side's mean.
    """
    errors, poor, good = judge
    information = errors * math.log(errors / 0.1) + (1 - errors) * math.log((1 - errors) / 0.9)
    information += (1 - errors) * (poor**2 + good**2) / (4 * spread**2)
    return math.log(5000) / information


if __name__ == "__main__":
    main()
