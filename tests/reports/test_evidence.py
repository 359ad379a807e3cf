"""Intervals and tests of paired differences: published numbers, independent computations, coverage, agreement."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from rlf.reports.graded import graded_interval, graded_p, sign_flip_p
from rlf.reports.paired import (
    ALPHA,
    Evidence,
    PairedFinding,
    detectable_difference,
    flips_evidence,
    flips_interval,
    judge,
    mcnemar_power,
    paired_evidence,
    power_of,
    power_words,
    tango_interval,
)
from rlf.reports.statistics import Interval, find_spread, mcnemar

COUNTS = st.integers(2, 200).flatmap(
    lambda n: st.tuples(st.integers(0, n), st.just(n)).flatmap(
        lambda pair: st.tuples(st.just(pair[0]), st.integers(0, pair[1] - pair[0]), st.just(pair[1]))
    )
)


def test_tangos_interval_is_the_published_one() -> None:
    # Bentur et al. 2009, airway hyper-responsiveness of 21 children before and after, 1 and 7 changed: -0.286; the
    # interval is that of Fagerland, Lydersen and Laake 2014, table VI: -0.517 to -0.026
    assert tango_interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(("gained", "lost", "n"), [(4, 0, 64), (9, 1, 14), (40, 20, 160), (0, 3, 16), (2, 1, 500)])
def test_tangos_interval_holds_the_differences_that_a_fitted_likelihood_does_not_reject(
    gained: int, lost: int, n: int
) -> None:
    def score(difference: float) -> float:
        """The same statistic, with the lost share found by maximising the likelihood numerically."""

        def surprise(share: float) -> float:
            parts = ((gained, share + difference), (lost, share), (n - gained - lost, 1 - 2 * share - difference))
            return -sum(count * np.log(max(chance, 1e-300)) for count, chance in parts if count)

        bounds = (max(0.0, -difference), (1 - difference) / 2)
        share = optimize.minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
        return float((gained - lost - n * difference) / np.sqrt(n * (2 * share + difference * (1 - difference))))

    low, high = tango_interval(gained, lost, n)
    assert score(low) == pytest.approx(1.959964, abs=2e-3)
    assert score(high) == pytest.approx(-1.959964, abs=2e-3)


def test_no_interval_vanishes_where_every_pair_came_out_alike() -> None:
    # all gained: the likeliest lost share is (1 - D) / 2, so n (1 - D) / sqrt(n (1 - D²)) = z: D = (n - z²) / (n + z²)
    z = 1.959963985
    assert tango_interval(64, 0, 64) == pytest.approx(((64 - z * z) / (64 + z * z), 1.0))
    assert tango_interval(0, 64, 64) == pytest.approx((-1.0, -(64 - z * z) / (64 + z * z)))
    # none changed: n D / sqrt(n D (1 - D)) = z gives D = z² / (n + z²)
    assert tango_interval(0, 0, 64) == pytest.approx((-z * z / (64 + z * z), z * z / (64 + z * z)))
    for differences in ([0.5] * 32, [0.0] * 32, [1.0] * 32):
        low, high = graded_interval(differences)
        assert high - low > 0.01


@pytest.mark.parametrize("counts", [(0, 0, 0), (3, 2, 4), (-1, 0, 4)])
def test_counts_that_are_none_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected n >= 1"):
        tango_interval(*counts)


def test_the_interval_of_flips_is_tangos_with_the_variance_of_a_sample() -> None:
    # z² n / (n - 1) in place of z², none of 64 changed: D = y / (n + y) with y = 1.959964² 64 / 63
    y = 1.959963985**2 * 64 / 63
    assert flips_interval(0, 0, 64) == pytest.approx((-y / (64 + y), y / (64 + y)))
    # 10 of 10 at 99.8 %: the exact test rejects (2 / 2^10 = 0.00195), with the factor 10 x 9 / 10 < z² = 9.55
    assert flips_interval(10, 0, 10, 0.998) == tango_interval(10, 0, 10, 0.998)
    assert flips_interval(10, 0, 10, 0.998).low > 0


@given(COUNTS, st.floats(0.5, 0.999))
def test_tangos_interval_holds_the_difference_and_turns_with_the_sides(
    counts: tuple[int, int, int], confidence: float
) -> None:
    gained, lost, n = counts
    low, high = tango_interval(gained, lost, n, confidence)
    assert -1 <= low <= (gained - lost) / n + 1e-9 and (gained - lost) / n - 1e-9 <= high <= 1
    assert tango_interval(lost, gained, n, confidence) == pytest.approx((-high, -low))


def test_a_graded_interval_adds_one_gain_and_one_loss_and_less_of_them_beside_many_changes() -> None:
    # 1 gained, 1 lost of 40, as Bonett and Price with t: 4 of 42 changed, mean 0, variance 4 / 41 of the 42 values
    half = stats.t.ppf(0.975, 41) * (4 / 41 / 42) ** 0.5
    assert graded_interval([1.0, -1.0] + [0.0] * 38) == pytest.approx((-half, half))
    # 10 gained, 10 lost of 40: weight 2 / 20, so that 20.2 of 40.2 changed
    half = stats.t.ppf(0.975, 39.2) * (20.2 / 39.2 / 40.2) ** 0.5
    assert graded_interval([1.0] * 10 + [-1.0] * 10 + [0.0] * 20) == pytest.approx((-half, half))
    # All but 2 gained wholly: those that are not the commonest count, so that it is as wide as beside 0s.
    low, high = graded_interval([1.0] * 38 + [0.5] * 2)
    assert low < 0.95 and high - low > 0.05


def test_the_interval_of_graded_outcomes_holds_95_percent_also_of_few_questions() -> None:
    random = np.random.default_rng(5)
    for left, right, most in ((0.5, 0.5, 967), (0.8, 0.9, 967), (0.02, 0.98, 1000)):
        held = 0
        for _ in range(1000):
            change = random.binomial(4, right, 32) / 4 - random.binomial(4, left, 32) / 4
            low, high = graded_interval(change.tolist())
            held += low <= right - left <= high
        assert 930 <= held <= most  # 950 ± 2.5 of 6.9; 974 and 978 where both have the weight 1


def test_the_sign_flip_test_is_scipys_permutation_test() -> None:
    few = [0.5, 0.25, -0.25, 0.75, 0.5, 0.0, 1.0]
    theirs = stats.permutation_test((few,), np.mean, permutation_type="samples", n_resamples=10**6)
    assert sign_flip_p(few) == pytest.approx(theirs.pvalue)
    assert sign_flip_p([1.0] * 6 + [-1.0] + [0.0] * 9) == pytest.approx(mcnemar(6, 1))
    for many in ([0.25, -0.5, 0.5, 0.75] * 8, [0.3, -0.28, 0.51, -0.49] * 200):
        assert sign_flip_p(many) == pytest.approx(stats.ttest_1samp(many, 0).pvalue, abs=0.02)
    assert sign_flip_p([0.0, 0.0]) == graded_p([0.0, 0.0]) == 1.0


def test_the_power_of_mcnemars_test_is_the_sum_over_every_outcome() -> None:
    n, gained, lost = 24, 0.3, 0.05
    rejected = [
        stats.multinomial.pmf([g, b, n - g - b], n, [gained, lost, 1 - gained - lost])
        for g, b in product(range(n + 1), repeat=2)
        if g + b <= n and mcnemar(g, b) <= 0.05
    ]
    assert mcnemar_power(n, gained, lost) == pytest.approx(sum(rejected))


def test_the_smallest_difference_is_the_one_with_that_power() -> None:
    found = detectable_difference(64, share_lost=0.05, alpha=0.05, power=0.8)
    assert found is not None
    assert mcnemar_power(64, found + 0.05, 0.05) == pytest.approx(0.8, abs=1e-4)
    # five of five is 2 / 2^5 = 0.0625: five questions never reject
    assert detectable_difference(5) is None
    assert power_words(power_of(5)) == "5 questions are too few to show any difference with 80 % power."
    assert power_words(power_of(64, 3)).startswith("64 questions and 3 arms against the first show a difference of ")


@pytest.mark.parametrize("num_arms", [1, 2, 5, 25])
def test_an_interval_of_flips_excludes_0_exactly_where_the_exact_test_claims(num_arms: int) -> None:
    others = [fixed(1.0)] * (num_arms - 1)
    for gained, lost in ((g, b) for g in range(0, 31) for b in range(0, 10)):
        found = judge([flips_evidence(gained, lost, 40), *others])[0]
        assert found is not None
        assert found.p == mcnemar(gained, lost)
        assert found.shown == (found.p_adjusted <= ALPHA) == (not found.interval.low <= 0 <= found.interval.high)


def test_a_level_of_many_arms_never_lets_the_exact_test_claim_what_the_score_does_not() -> None:
    for num_arms in range(1, 26):
        alpha = ALPHA / num_arms
        for changed in range(1, 60):
            rejected = [b for b in range(changed // 2 + 1) if mcnemar(changed - b, b) <= alpha]
            if rejected:
                assert tango_interval(changed - max(rejected), max(rejected), changed, 1 - alpha).low > 0


VALUES = st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=40)


@given(VALUES, st.lists(st.floats(0, 1), max_size=4))
def test_a_graded_interval_excludes_0_exactly_where_its_test_claims(values: list[float], others: list[float]) -> None:
    left = {str(place): 0.0 for place in range(len(values))}
    right = {str(place): value for place, value in enumerate(values)}
    assert_agrees(judge([paired_evidence(left, right, binary=False), *map(fixed, others)])[0])


def fixed(p: float) -> Evidence:
    """Another difference of the same report."""
    return Evidence(0.1, p, lambda _: Interval(-1.0, 1.0))


def assert_agrees(found: PairedFinding | None) -> None:
    if found is not None and abs(found.p_adjusted - ALPHA) > 1e-9:
        assert found.shown == (not found.interval.low <= 0 <= found.interval.high)


def covered(n: int, gained: float, lost: float) -> tuple[float, float]:
    """Exact coverage of the score interval and chance of a claim, summed over every outcome that matters."""
    total = holds = claims = 0.0
    for g in range(n + 1):
        at_g = stats.binom.pmf(g, n, gained)
        if at_g < 1e-6:
            continue
        at_b = stats.binom.pmf(np.arange(n - g + 1), n - g, lost / (1 - gained))
        for b in np.flatnonzero(at_g * at_b > 1e-6):
            chance = float(at_g * at_b[b])
            low, high = flips_interval(g, int(b), n)
            total += chance
            holds += chance * (low <= gained - lost <= high)
            claims += chance * (mcnemar(g, int(b)) <= ALPHA)
    return holds / total, claims / total


@pytest.mark.parametrize(
    ("n", "gained", "lost", "least"),
    [
        (64, 0.0485, 0.0285, 0.94),  # success .95 to .97, outcomes independent: 0.91 by the bootstrap
        (128, 0.0485, 0.0285, 0.94),
        (64, 0.25, 0.25, 0.94),
        (32, 0.28, 0.10, 0.94),
        (64, 0.027, 0.097, 0.94),  # .97 to .90: plain Tango covers 0.938
    ],
)
def test_the_score_interval_covers_what_it_says(n: int, gained: float, lost: float, least: float) -> None:
    coverage, _ = covered(n, gained, lost)
    assert least <= coverage <= 0.965


@pytest.mark.parametrize(("n", "flips"), [(64, 0.05), (64, 0.1), (32, 0.4), (16, 0.5)])
def test_equal_arms_are_claimed_to_differ_in_at_most_5_of_100_cases(n: int, flips: float) -> None:
    _, claims = covered(n, flips / 2, flips / 2)
    assert claims <= ALPHA


def test_five_equal_arms_are_distinguished_in_at_most_5_of_100_reports() -> None:
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(600):
        outcomes = random.random((5, 64)) < random.beta(8, 2, 64)
        counts = [(int(np.sum(o & ~outcomes[0])), int(np.sum(outcomes[0] & ~o))) for o in outcomes[1:]]
        wrong += any(found is not None and found.shown for found in judge([flips_evidence(*c, 64) for c in counts]))
    assert wrong / 600 <= ALPHA


def clustered(sums: list[list[float]]) -> tuple[dict[str, float], dict[str, str]]:
    """Values by question, and the cluster of each."""
    named = [
        (f"{place}-{at}", value, str(place)) for place, values in enumerate(sums) for at, value in enumerate(values)
    ]
    return {task: value for task, value, _ in named}, {task: name for task, _, name in named}


def test_the_spread_of_equal_clusters_is_that_of_their_means() -> None:
    values, clusters = clustered([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    found = find_spread(values, clusters)
    assert found is not None and found.freedom == pytest.approx(3)
    means, plain = [2 / 3, 0, 1, 1 / 3], list(values.values())
    # variance of the mean of four means, beside that of twelve independent values
    assert found.inflation == pytest.approx((np.var(means, ddof=1) / 4) / (np.var(plain, ddof=1) / 12))
    assert found.quantile(0.95) == pytest.approx(stats.t.ppf(0.975, 3) * found.inflation**0.5)


def test_the_spread_of_unequal_clusters_is_cr2s_and_its_freedom_less_than_one_fewer() -> None:
    values, clusters = clustered([[1, 0, 1, 1, 1, 0], [0, 0], [1], [0, 1, 1]])
    found = find_spread(values, clusters)
    assert found is not None and 1 < found.freedom < 3
    # CR2 by its definition, with the matrices of a regression on a constant
    y, n = np.array(list(values.values())), len(values)
    residuals, hat = y - y.mean(), np.full((n, n), 1 / n)
    total = 0.0
    for name in dict.fromkeys(clusters.values()):
        at = [place for place, task in enumerate(values) if clusters[task] == name]
        eigenvalues, vectors = np.linalg.eigh(np.eye(len(at)) - hat[np.ix_(at, at)])
        total += float((vectors @ np.diag(eigenvalues**-0.5) @ vectors.T @ residuals[at]).sum()) ** 2
    assert found.inflation >= total / n**2 / (y.var(ddof=1) / n) - 1e-12


def test_without_clusters_nothing_widens_and_one_cluster_says_nothing() -> None:
    values, _ = clustered([[1, 0], [1, 1]])
    assert find_spread(values, {}) is None
    alone = paired_evidence(dict.fromkeys(values, 0.0), dict.fromkeys(values, 1.0), binary=True)
    together = dict.fromkeys(values, "one")
    one = paired_evidence(dict.fromkeys(values, 0.0), dict.fromkeys(values, 1.0), binary=True, cluster_by_task=together)
    assert alone is not None and one is not None and one.p > alone.p and one.p > 0.4
    low, high = one.interval_at(0.95)
    assert low < 0.05 and high == 1.0


def test_every_question_of_a_cluster_that_agrees_counts_as_one() -> None:
    # eight documents of sixteen questions, all gained in seven of them: as seven gains of eight, not 112 of 128
    values, clusters = clustered([[1.0] * 16] * 7 + [[0.0] * 16])
    found = paired_evidence(dict.fromkeys(values, 0.0), values, binary=True, cluster_by_task=clusters)
    assert found is not None
    # means of clusters 1, ..., 1, 0: variance of their mean (7 / 8² + (7 / 8)²) / 7 / 8, of 128 values 7 / 8² / 127
    inflation = (7 / 64 + 49 / 64) / 56 / (7 / 64 / 127)
    assert found.p == pytest.approx(2 * stats.t.sf((112 / inflation) ** 0.5, 7))
    assert found.p > mcnemar(7, 0) > mcnemar(112, 0)


def test_ten_looks_find_nothing_where_there_is_nothing() -> None:
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(500):
        looked = [flips_evidence(int(g), int(b), 64) for g, b, _ in random.multinomial(64, [0.1, 0.1, 0.8], size=10)]
        wrong += any(one.after_looks(at).p <= ALPHA for at, one in enumerate(looked, 1))
    assert wrong / 500 <= ALPHA
    # looks 1, 2, 3, ... are tested at alpha / 2, alpha / 6, alpha / 12, ..., which is alpha in all
    assert flips_evidence(9, 0, 64).after_looks(3).p == pytest.approx(12 * mcnemar(9, 0))
    assert flips_evidence(9, 0, 64).after_looks(0).p == mcnemar(9, 0)


def test_four_gains_and_no_loss_are_no_claim() -> None:
    found = judge([flips_evidence(4, 0, 64)])[0]
    assert found is not None and not found.shown
    assert found.p == 0.125 and found.interval.low <= 0
