"""Curves in one line."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rlf.cli.board import sparkline


def test_a_rising_curve_climbs_through_the_levels() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20) == "▁▂▃▄▅▆▇█"


def test_given_bounds_fix_the_levels() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10, 0.0, 1.0) == "▁▅█"
    assert sparkline([0.5], 10, 0.0, 1.0) == "▅"


def test_a_flat_curve_lies_at_the_bottom_of_its_own_range() -> None:
    assert sparkline([0.3, 0.3], 10) == "▁▁"


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    assert sparkline([0.0, math.nan, 1.0], 10) == "▁ █"
    assert sparkline([math.nan], 10) == " "


def test_a_long_curve_is_averaged_into_the_width() -> None:
    assert sparkline([0, 0, 10, 10], 2) == "▁█"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=80), st.integers(1, 40))
def test_it_never_exceeds_its_width(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(len(values), width)
