"""Sums of what is spent, and their bounds."""

from __future__ import annotations

from rlf.core.meter import COST, Meter


def test_a_bound_is_reached_by_ten_tenths_of_it() -> None:
    meter, stops = Meter(), list[float]()
    with meter.bounded(1.0, lambda: stops.append(len(stops))):
        for _ in range(10):
            assert not stops
            meter.add({COST: 0.1})
    assert sum([0.1] * 10) < 1.0 and stops == [0]
