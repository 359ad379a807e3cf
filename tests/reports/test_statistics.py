"""Intervals, pass@k and the paired test against worked numbers."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlf.reports.graded import area_under, mean_interval, pass_at_k, share_interval, welch_interval
from rlf.reports.statistics import holm, holm_levels, mcnemar, wilson_interval


def test_the_wilson_interval_of_8_in_10_is_the_published_one() -> None:
    # p = 0.8, z = 1.959964: centre (0.8 + 0.19207) / 1.38415 = 0.71674, half 1.959964 sqrt(0.016 + 0.0096036) / 1.38415
    low, high = wilson_interval(8, 10)
    assert low == pytest.approx(0.490162, abs=1e-6)
    assert high == pytest.approx(0.943318, abs=1e-6)


def test_the_wilson_interval_does_not_collapse_at_the_ends() -> None:
    # p = 0: high = (z²/2n + z z/2n) / (1 + z²/n) = z² / (n + z²), n = 20
    z = 1.959963985
    assert wilson_interval(0, 20) == pytest.approx((0.0, z * z / (20 + z * z)))
    assert wilson_interval(20, 20) == pytest.approx((20 / (20 + z * z), 1.0))


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_holds_the_rate_and_stays_within_0_and_1(outcome: tuple[int, int]) -> None:
    successes, n = outcome
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 4), (5, 4)])
def test_a_rate_that_is_none_is_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected n > 0"):
        wilson_interval(successes, n)


def test_pass_at_k_is_one_minus_the_share_of_all_wrong_draws() -> None:
    # 5 samples, 2 right, k = 2: 1 - C(3,2) / C(5,2) = 1 - 3/10
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_at_k(4, 1, 1) == pytest.approx(0.25)
    assert pass_at_k(4, 0, 4) == 0.0
    assert pass_at_k(4, 1, 4) == 1.0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_counts_the_draws_with_a_right_sample(case: tuple[int, int, int]) -> None:
    n, correct, k = case
    draws = list(itertools.combinations(range(n), k))
    share = sum(any(sample < correct for sample in draw) for draw in draws) / len(draws)
    assert pass_at_k(n, correct, k) == pytest.approx(share)


def test_more_draws_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="k = 5"):
        pass_at_k(4, 1, 5)


def test_the_exact_mcnemar_test_doubles_the_smaller_tail() -> None:
    # 6 gained, 1 lost: 2 (C(7,0) + C(7,1)) / 2^7 = 16 / 128
    assert mcnemar(6, 1) == pytest.approx(0.125)
    assert mcnemar(1, 6) == mcnemar(6, 1)
    assert mcnemar(10, 0) == pytest.approx(2 / 2**10)


def test_no_change_says_nothing() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(4, 4) == 1.0


def test_thousands_of_pairs_do_not_overflow() -> None:
    assert 0 <= mcnemar(3000, 10) < 1e-100


def test_statistics_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for gained, lost in [(6, 1), (30, 12), (5, 5)]:
        assert mcnemar(gained, lost) == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
    for successes, n in [(8, 10), (0, 5), (250, 256)]:
        interval = stats.binomtest(successes, n).proportion_ci(method="wilson")
        assert wilson_interval(successes, n) == pytest.approx((interval.low, interval.high))
    assert math.isclose(wilson_interval(8, 10, 0.9).low, stats.binomtest(8, 10).proportion_ci(0.9, "wilson").low)


def test_the_interval_of_graded_shares_is_students_with_both_extremes_once_more() -> None:
    values = [0.5, 0.75, 1.0, 0.25, 0.5]
    theirs = stats.ttest_1samp([*values, 0.25, 1.0], 0.0).confidence_interval(0.95)
    assert share_interval(values) == pytest.approx((theirs.low, theirs.high))
    assert share_interval([1.0, 0.0, 1.0]) == wilson_interval(2, 3)
    same = share_interval([0.5] * 16)
    assert same is not None and same.low < 0.45 and same.high > 0.55
    assert share_interval([0.5]) is None


def test_holms_adjustment_is_the_published_one_and_agrees_with_the_level_of_each_step() -> None:
    # k = 4, alpha = 0.05: 0.005 x 4, 0.01 x 3, then 0.03 x 2 = 0.06 which 0.04 x 1 cannot go below
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_levels(p_values) == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])
    assert holm([]) == holm_levels([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_a_p_value_is_within_its_level_exactly_where_the_adjusted_one_is_within_alpha(p_values: list[float]) -> None:
    for p, adjusted, level in zip(p_values, holm(p_values), holm_levels(p_values), strict=True):
        assert (p <= level) == (adjusted <= 0.05) or abs(adjusted - 0.05) < 1e-12


def test_the_interval_of_a_mean_is_scipys() -> None:
    values = [0.91, 0.94, 0.99]
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((theirs.low, theirs.high))
    assert mean_interval([0.9]) is None
    assert mean_interval([0.9, 0.9]) is None


def test_welchs_interval_is_scipys() -> None:
    left, right = [0.41, 0.44, 0.52], [0.91, 0.94, 0.99, 0.97]
    theirs = stats.ttest_ind(right, left, equal_var=False).confidence_interval(0.95)
    assert welch_interval(left, right) == pytest.approx((theirs.low, theirs.high))
    assert welch_interval([0.4], right) is None
    assert welch_interval([0.4, 0.4], [0.5, 0.5]) is None


def test_the_area_under_a_curve_is_its_mean_height() -> None:
    assert area_under([0, 4, 8], [0.2, 0.8, 1.0]) == pytest.approx((0.5 * 4 + 0.9 * 4) / 8)
    assert area_under([0, 1, 10], [0.0, 1.0, 1.0]) == pytest.approx(0.95)
    assert area_under([3], [0.5]) is None


def test_mcnemar_is_scipys_binomial_test() -> None:
    assert mcnemar(20, 6) == pytest.approx(stats.binomtest(6, 26, 0.5).pvalue)
