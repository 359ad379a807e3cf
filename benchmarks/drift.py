"""Run lengths of a judge's control charts: `python benchmarks/drift.py` prints false alarms and delays.

A judge as tolerated errs in a tenth of its verdicts. Its values lie at .75 and .25, with some spread, on their side of
the threshold; each drift begins after 150 sentinels.
"""

from __future__ import annotations

import random
from statistics import fmean, median

from rlf.rewards.judging.charts import Charts

NUM = 500_000
DRIFTS = {
    "errs in .3 of its verdicts": (0.3, 0.0, 0.0),
    "inflates by .2": (0.1, 0.2, 0.0),
    "deflates by .2": (0.1, -0.2, 0.0),
    "compresses by .2": (0.1, 0.0, 0.2),
    "spreads by .2": (0.1, 0.0, -0.2),
}
Judge = tuple[float, float, float]
"""Share of errors, shift of all values, shift towards the threshold."""


def add(charts: Charts, draw: random.Random, judge: Judge, spread: float) -> bool:
    """Whether one more sentinel raises an alarm."""
    errors, shift, inward = judge
    known = draw.random() < 0.5
    judged = known if draw.random() >= errors else not known
    value = (0.75 if judged else 0.25) + draw.choice((-spread, spread)) + shift - (inward if judged else -inward)
    return charts.add(value, judged=judged, known=known) is not None


def main() -> None:
    """Prints both tables."""
    print("a judge as tolerated: sentinels between false alarms (stated: 5000)")
    for spread in (0.0, 0.1, 0.2, 0.25):
        charts, draw = Charts(0.1, 0.3, 5000, None), random.Random(1)
        alarms = sum(add(charts, draw, (0.1, 0.0, 0.0), spread) for _ in range(NUM))
        print(f"  spread {spread:.2f}: {NUM / max(alarms, 1):9.0f}")
    print("a judge that drifts: sentinels until the alarm, of 500 judges")
    for name, judge in DRIFTS.items():
        counts = [_delay(seed, judge) for seed in range(500)]
        print(f"  {name:28} mean {fmean(counts):5.1f}  median {median(counts):5.1f}")


def _delay(seed: int, judge: Judge) -> int:
    charts, draw = Charts(0.1, 0.3, 5000, None), random.Random(seed)
    for _ in range(150):
        add(charts, draw, (0.1, 0.0, 0.0), 0.05)
    count = 1
    while not add(charts, draw, judge, 0.05):
        count += 1
    return count


if __name__ == "__main__":
    main()
