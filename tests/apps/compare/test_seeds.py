"""The interval over seeds and questions: Welch's where runs alone vary, worked numbers, coverage, agreement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlf.apps.compare.outcomes import crossed_evidence
from rlf.reports.paired import ALPHA, judge
from rlf.runs.planning import separable_difference

from ...reports.test_evidence import assert_agrees, fixed


def test_what_several_seeds_separate_is_what_their_interval_shows_four_times_in_five() -> None:
    difference = separable_difference(3, 200, 0.02)
    assert separable_difference(5, 200, 0.02) < difference < separable_difference(3, 200, 0.04)
    assert difference < separable_difference(3, 200, 0.02, inflation=2.0)
    random, shows = np.random.default_rng(0), 0
    for _ in range(300):
        gained = random.random(200) < difference
        sides = [random.normal(0, 0.02, (3, 1)) + random.normal(0, 0.05**0.5, (3, 200)) for _ in "AB"]
        sides[1] += gained
        named = [[{f"{q:03d}": v for q, v in enumerate(run)} for run in side.tolist()] for side in sides]
        found = crossed_evidence(*named, {})
        shows += found is not None and found.p <= ALPHA
    assert 0.7 <= shows / 300 <= 0.9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5), st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_an_interval_over_seeds_excludes_0_exactly_where_welchs_test_claims(
    left: list[float], right: list[float]
) -> None:
    assert_agrees(judge([crossed_evidence(seeds(left), seeds(right), {}), fixed(0.5)])[0])


@pytest.mark.parametrize(("num_left", "num_right", "spread"), [(2, 8, 1.0), (8, 2, 0.25), (3, 8, 1.0), (3, 3, 4.0)])
def test_few_seeds_of_equal_arms_are_claimed_to_differ_in_at_most_5_of_100_cases(
    num_left: int, num_right: int, spread: float
) -> None:
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(1000):
        left, right = random.normal(0.5, 0.02, num_left), random.normal(0.5, 0.02 * spread, num_right)
        found = crossed_evidence(seeds(left.tolist()), seeds(right.tolist()), {})
        wrong += found is not None and found.p <= ALPHA
    assert (
        wrong / 1000 <= 0.06
    )  # three standard errors above what 0.043 would give; Welch's own df gives 0.09 for 2 and 8


def seeds(values: list[float]) -> list[dict[str, float]]:
    """Runs that differ in all questions alike, so that nothing but the runs varies."""
    return [{"a": value, "b": value} for value in values]


def test_where_only_runs_vary_the_crossed_interval_is_welchs() -> None:
    left, right = [0.41, 0.44, 0.52], [0.51, 0.54, 0.59]
    found = crossed_evidence(seeds(left), seeds(right), {})
    theirs = stats.ttest_ind(right, left, equal_var=False)
    assert found is not None
    assert found.p == pytest.approx(theirs.pvalue)
    assert found.interval_at(0.9) == pytest.approx(tuple(theirs.confidence_interval(0.9)))
    assert crossed_evidence(seeds(left)[:1], seeds(right), {}) is None
    assert crossed_evidence(seeds([0.4, 0.4]), seeds([0.5, 0.5]), {}) is None


def test_runs_and_questions_both_widen_the_crossed_interval() -> None:
    # two runs a side, two questions: run means .4, .6 and .5, .7; changes of the questions 0.3 and -0.1, no interaction
    left = [{"a": 0.3, "b": 0.5}, {"a": 0.5, "b": 0.7}]
    right = [{"a": 0.6, "b": 0.4}, {"a": 0.8, "b": 0.6}]
    found = crossed_evidence(left, right, {})
    assert found is not None and found.difference == pytest.approx(0.1)
    # a = .02 / 2 + .02 / 2 with 2 degrees, b = (.3 + .1)² / 2 / 2 with 1 degree, c = 0
    half = (stats.t.ppf(0.75, 2) ** 2 * 0.02 + stats.t.ppf(0.75, 1) ** 2 * 0.04) ** 0.5
    assert found.interval_at(0.5) == pytest.approx((0.1 - half, 0.1 + half))
    low, high = found.interval_at(1 - found.p)
    assert min(abs(low), abs(high)) < 1e-9


def test_what_single_answers_add_is_not_counted_twice() -> None:
    # no seed and no question differs in itself: answers alone vary, and both views hold their whole variance
    random = np.random.default_rng(3)
    sides = [[dict(enumerate(run)) for run in (random.random((40, 60)) < 0.5).astype(float).tolist()] for _ in "AB"]
    found = crossed_evidence(*[[{str(task): v for task, v in run.items()} for run in side] for side in sides], {})
    assert found is not None
    low, high = found.interval_at(0.95)
    assert (high - low) / 2 == pytest.approx(1.96 * (0.25 * 2 / (40 * 60)) ** 0.5, rel=0.25)
