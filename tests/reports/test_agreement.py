"""Agreement statistics: worked numbers, and scipy as the reference."""

from __future__ import annotations

import random

import pytest
from scipy import stats

from rlf.apps.judges.calibration import (
    PositionBias,
    accuracy,
    kappa,
    length_bias,
    position_bias,
    self_preference,
    spearman,
)
from rlf.reports.statistics import Estimate

COHEN = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15


def test_kappa_has_a_bootstrap_interval_about_its_large_sample_one() -> None:
    found = kappa(COHEN)
    assert found.value == pytest.approx(0.4)
    # Fleiss, Cohen and Everitt 1969, eq. 8, for this table: standard error 0.1270
    assert found.interval == pytest.approx((0.4 - 1.96 * 0.1270, 0.4 + 1.96 * 0.1270), abs=0.03)
    assert kappa(COHEN) == found


def test_the_interval_of_kappa_narrows_with_the_number_of_items() -> None:
    width = [interval.high - interval.low for interval in (kappa(COHEN).interval, kappa(COHEN * 16).interval)]
    assert width[1] == pytest.approx(width[0] / 4, rel=0.2)


def test_kappa_without_variety_is_no_number() -> None:
    assert kappa([("y", "y")] * 5) == Estimate(None, None)
    assert kappa([]) == Estimate(None, None)


def test_accuracy_is_the_share_that_agrees_with_wilsons_interval() -> None:
    found = accuracy(COHEN)
    assert found.value == 0.7
    assert found.interval == pytest.approx((0.5625, 0.8090), abs=1e-4)
    assert accuracy([]) == Estimate(None, None)


def test_spearman_equals_scipys_with_ties() -> None:
    draw = random.Random(0)
    one = [draw.randrange(5) for _ in range(60)]
    other = [x + draw.randrange(4) for x in one]
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826816681233)  # scipy's own example
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([], []) is None


def test_length_bias_is_the_rank_correlation_among_equal_labels() -> None:
    labels = [0.0] * 4 + [1.0] * 4
    assert length_bias([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9], [1, 2, 3, 4, 1, 2, 3, 4], labels) == pytest.approx(1)
    assert length_bias([0.4, 0.3, 0.2, 0.1, 0.9, 0.8, 0.7, 0.6], [1, 2, 3, 4, 1, 2, 3, 4], labels) == pytest.approx(-1)
    # one stratum: Spearman's rho itself
    one, other = [0.3, 0.1, 0.5, 0.2], [7, 9, 8, 1]
    assert length_bias(one, other, [1.0] * 4) == pytest.approx(stats.spearmanr(one, other).statistic)


def test_what_people_like_about_longer_answers_is_no_bias_of_the_judge() -> None:
    labels, lengths = [0.0, 0.0, 1.0, 1.0], [10, 11, 100, 110]
    assert length_bias([0.2, 0.2, 0.9, 0.9], lengths, labels) is None
    crossed = length_bias([0.2, 0.1, 0.8, 0.9], lengths, labels)
    assert crossed == pytest.approx(0.0)
    assert spearman([0.2, 0.1, 0.8, 0.9], lengths) == pytest.approx(0.8)


def test_labels_of_many_levels_are_split_at_one_half() -> None:
    labels = [at / 20 for at in range(20)]
    assert length_bias(labels, list(range(20)), labels) == pytest.approx(1.0)


def test_self_preference_is_the_difference_of_the_excesses_with_welchs_interval() -> None:
    own, others = [0.3, 0.2, 0.4], [0.0, 0.1, -0.1, 0.0]
    found = self_preference(own, others)
    assert found.value == pytest.approx(0.3)
    reference = stats.ttest_ind(own, others, equal_var=False).confidence_interval(0.95)
    assert found.interval == pytest.approx((reference.low, reference.high))
    assert self_preference([], others) == Estimate(None, None)


def test_position_bias_counts_verdicts_that_flip_and_the_liking_of_the_first() -> None:
    # consistent; always the first; always the second; a tie both ways
    orders = [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.5, 0.5)]
    assert position_bias(orders) == PositionBias(0.5, 0.5)
    assert position_bias([(1.0, 1.0)]) == PositionBias(1.0, 1.0)
    assert position_bias([]) is None
