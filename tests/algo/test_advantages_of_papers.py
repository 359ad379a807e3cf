"""Estimators beyond OpenRLHF's: worked numbers, and the papers' and libraries' formulas written out again."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch

from rlf.algo.advantages.gae import Gae
from rlf.algo.advantages.grpo import Grpo
from rlf.algo.advantages.supervised import Supervised
from rlf.algo.estimator import AdvantageInput, Estimator, TermRewards
from rlf.apps.estimators.gdpo import Gdpo
from rlf.apps.estimators.gpg import Gpg
from rlf.apps.estimators.grpo_passk import GrpoPassk
from rlf.apps.estimators.maxrl import Maxrl
from rlf.apps.estimators.opo import Opo
from rlf.apps.estimators.pass_at_k import PassAtK
from rlf.apps.estimators.remax import Remax

from .batches import random_batch
from .test_advantages import assert_equal, batch_of


def of_one_token(estimator: Estimator, rewards: list[float], groups: list[int], **fields: object) -> list[float]:
    output = estimator.advantages(batch_of(rewards, groups, [[1]] * len(rewards), **fields))
    return [row[0] for row in output.advantages_BT.tolist()]


def test_gae_skips_observations_as_verl_does() -> None:
    # V = 1, (9), 1, r = 0, -, 2; gamma .5, lam .5. delta_2 = 2 - 1 = 1, A_2 = 1; t0's next value is V_2:
    # delta_0 = .5 * 1 - 1 = -.5, A_0 = -.5 + .25 * 1 = -.25. returns .75, 2; mean .375
    batch = batch_of([2.0], [0], [[1, 0, 1]], values_BT=torch.tensor([[1.0, 9.0, 1.0]], dtype=torch.float64))
    output = Gae(gamma=0.5, lam=0.5, std_norm=False, observations="skip").advantages(batch)
    assert_equal(output.returns_BT, [[0.75, 0, 2]])
    assert_equal(output.advantages_BT, [[-0.625, 0, 0.625]])


def test_gae_that_skips_is_gae_of_the_sampled_tokens_alone() -> None:
    batch = random_batch(2, kl_coef=0.1)
    skipping = Gae(gamma=0.9, lam=0.8, observations="skip").advantages(batch)
    packed = torch.zeros(batch.action_mask_BT.shape, dtype=torch.bool)
    values, kl = (torch.zeros(packed.shape, dtype=torch.float64) for _ in range(2))
    for number, mask in enumerate(batch.action_mask_BT):
        count = int(mask.sum())
        packed[number, :count] = True
        values[number, :count], kl[number, :count] = batch.values_BT[number, mask], batch.kl_BT[number, mask]
    alone = AdvantageInput(batch.rewards_B, batch.group_B, packed, kl_BT=kl, kl_coef=0.1, values_BT=values)
    expected = Gae(gamma=0.9, lam=0.8).advantages(alone)
    torch.testing.assert_close(skipping.advantages_BT[batch.action_mask_BT], expected.advantages_BT[packed])
    torch.testing.assert_close(skipping.returns_BT[batch.action_mask_BT], expected.returns_BT[packed])


def test_both_ways_over_observations_agree_with_gamma_and_lam_of_one_and_differ_otherwise() -> None:
    batch = random_batch(3)
    for gamma, lam, same in ((1.0, 1.0, True), (1.0, 0.9, False), (0.95, 1.0, False)):
        one, other = (
            Gae(gamma=gamma, lam=lam, observations=way).advantages(batch).advantages_BT for way in ("bootstrap", "skip")
        )
        assert torch.allclose(one, other) is same


def test_opo_weighs_the_baseline_by_length() -> None:
    # lengths 1, 3; rewards 4, 0: baseline (1 * 4 + 3 * 0) / 4 = 1
    output = Opo().advantages(batch_of([4.0, 0.0], [0, 0], [[1, 0, 0], [1, 1, 1]]))
    assert_equal(output.advantages_BT, [[3, 0, 0], [-1, -1, -1]])


def test_gpg_makes_up_for_groups_that_teach_nothing() -> None:
    # six rollouts, two of them in a group of equal rewards: factor 6 / 4; deviations .5, -.5, 1, -1
    advantages = of_one_token(Gpg(), [1, 0, 3, 1, 2, 2], [0, 0, 1, 1, 2, 2])
    assert advantages == pytest.approx([0.75, -0.75, 1.5, -1.5, 0, 0])


def test_supervised_weighs_every_token_that_is_imitated_alike() -> None:
    # rewards 1, 0, 2 of 1, 3 and 2 tokens: N = 6 sampled, K = 3 of those that reach 1, so that each weighs 6 / 3
    output = Supervised().advantages(batch_of([1.0, 0.0, 2.0], [0, 0, 1], [[1, 0, 0], [1, 1, 1], [1, 1, 0]]))
    assert_equal(output.advantages_BT, [[2, 0, 0], [0, 0, 0], [2, 2, 0]])
    none = Supervised(min_reward=3.0).advantages(batch_of([1.0, 2.0], [0, 0], [[1, 1], [1, 1]]))
    assert_equal(none.advantages_BT, [[0, 0], [0, 0]])


def test_remax_subtracts_the_greedy_reward_of_the_task() -> None:
    greedy = torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64)
    assert of_one_token(Remax(), [1, 0, 1], [0, 0, 1], greedy_B=greedy) == pytest.approx([0.5, -0.5, 0.0])


def test_remax_without_greedy_rewards_says_what_is_missing() -> None:
    with pytest.raises(AssertionError, match="greedy_B"):
        of_one_token(Remax(), [1.0], [0])


def test_grpo_passk_pays_the_lead_of_the_best_alone() -> None:
    # group one: 3 leads 1 by 2, std of (0, 1, 3) = sqrt(7/3); group two: a tie leads by nothing
    advantages = of_one_token(GrpoPassk(), [0, 3, 1, 2, 2], [0, 0, 0, 1, 1])
    assert advantages == pytest.approx([0, 2 / ((7 / 3) ** 0.5 + 1e-6), 0, 0, 0])
    assert of_one_token(GrpoPassk(std_norm=False), [0, 3, 1], [0, 0, 0]) == [0, 2, 0]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("num_right", [0, 1, 3, 7, 8])
def test_pass_at_k_is_the_papers_formula_for_right_and_wrong(k: int, num_right: int) -> None:
    num, wrong = 8, 8 - num_right
    advantages = of_one_token(PassAtK(k=k), [1.0] * num_right + [0.0] * wrong, [0] * num)
    mean = 1 - comb(wrong, k) / comb(num, k)
    deviation = (mean * (1 - mean)) ** 0.5
    if deviation == 0:
        assert advantages == [0.0] * num
        return
    right = (1 - mean) / deviation
    missed = comb(wrong - 1, k - 1) / comb(num - 1, k - 1) if wrong else 0.0
    assert advantages == pytest.approx([right] * num_right + [(1 - mean - missed) / deviation] * wrong)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_of_any_rewards_is_what_all_subsets_say(k: int) -> None:
    rewards = [0.3, -1.0, 2.0, 0.3, 0.7, 2.0]
    subsets = list(itertools.combinations(range(6), k))
    best = [max(rewards[i] for i in subset) for subset in subsets]
    mean, deviation = statistics.fmean(best), statistics.pstdev(best)
    expected = [
        (statistics.fmean(b for b, subset in zip(best, subsets, strict=True) if i in subset) - mean) / deviation
        for i in range(6)
    ]
    assert of_one_token(PassAtK(k=k), rewards, [0] * 6) == pytest.approx(expected)


def terms_of(values: list[list[float | None]], weights: list[float]) -> TermRewards:
    return TermRewards(
        torch.tensor([[w * (v or 0.0) for v, w in zip(row, weights, strict=True)] for row in values]).double(),
        torch.tensor([[v is not None for v in row] for row in values]),
        torch.tensor(weights),
    )


def test_gdpo_normalises_each_term_then_sums_then_scales_by_the_batch() -> None:
    # two terms over one group of three, weights 1 and -2: (0, 3, 3) -> (-2, 1, 1) / sqrt(3),
    # (5, 5, 8) -> (-1, -1, 2) / sqrt(3), twice taken off: sums (0, 3, -3) / sqrt(3); std over three: sqrt(3)
    terms = terms_of([[0, 5], [3, 5], [3, 8]], [1.0, -2.0])
    assert of_one_token(Gdpo(), [-10, -7, -13], [0, 0, 0], terms=terms) == pytest.approx([0, 1, -1], abs=1e-4)


def test_gdpo_is_trls_normalize_then_sum() -> None:
    # TRL: nan where a function says nothing; nanmean, nanstd (n - 1), nansum by weight, then over the batch with 1e-4
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    values = [[None if (row + term) % 7 == 0 else float(raw[row, term]) for term in range(3)] for row in range(12)]
    weights = [1.0, 0.5, 2.0]
    sums = [0.0] * 12
    for term, weight in enumerate(weights):
        for start in range(0, 12, 4):
            there = [row for row in range(start, start + 4) if values[row][term] is not None]
            group = [values[row][term] for row in there]
            for row in there:
                sums[row] += weight * (values[row][term] - statistics.fmean(group)) / statistics.stdev(group)
    expected = [(each - statistics.fmean(sums)) / (statistics.stdev(sums) + 1e-4) for each in sums]
    terms = terms_of(values, weights)
    rewards = terms.values_BK.sum(1).tolist()
    groups = [row // 4 for row in range(12)]
    assert of_one_token(Gdpo(), rewards, groups, terms=terms) == pytest.approx(expected, abs=1e-6)


def test_terms_that_cancel_leave_gdpo_no_advantage() -> None:
    # of two rollouts the better by one term is the worse by the other: N is (1, -1) / sqrt(2) and its opposite
    values = [[0.1, 0.9], [0.3, 0.2], [0.7, 0.11], [0.123, 0.77]]
    rows: list[list[float | None]] = [list(row) for row in values]
    terms = terms_of(rows, [1.0, 1.0])
    single = replace(terms, values_BK=terms.values_BK.float())
    for each in (terms, single):
        advantages = of_one_token(Gdpo(), [1.0, 0.5, 0.81, 0.893], [0, 0, 1, 1], terms=each)
        assert advantages == pytest.approx([0.0] * 4, abs=0.01)


def test_the_factor_of_gpg_is_as_exact_as_the_rewards() -> None:
    advantages = of_one_token(Gpg(), [1, 0, 5, 5, 1, 0, 0], [0, 0, 1, 1, 2, 2, 2])
    assert advantages[0] == pytest.approx(0.5 * 7 / 5, rel=1e-14)


def test_gdpo_of_one_term_is_grpo_up_to_the_scale_of_the_batch() -> None:
    batch = random_batch(0)
    one, other = (estimator.advantages(batch).advantages_BT for estimator in (Gdpo(), Grpo()))
    at = batch.action_mask_BT.nonzero()[0]
    torch.testing.assert_close(one * (other[tuple(at)] / one[tuple(at)]), other)


def test_maxrl_divides_the_deviation_by_the_groups_mean() -> None:
    # group 0: mean .25, so (1 - .25) / .25 = 3 and -1; group 1: mean .5, so 1 and -1; group 2: mean 0, so 0
    assert of_one_token(Maxrl(), [1, 0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 2, 2]) == [3, -1, -1, -1, 1, -1, 0, 0]
    assert of_one_token(Maxrl(), [-1, -3, 2, -2], [0, 0, 1, 1]) == [0, 0, 0, 0], (
        "a mean that is not above 0 scales none"
    )


def test_maxrl_is_the_gradient_of_the_log_of_the_success_rate_up_to_the_number_of_rollouts() -> None:
    # The paper's estimator, in numpy: the mean of grad log p(y) over the K right ones of n, less the mean over all n.
    generator = np.random.default_rng(0)
    for num_right in (0, 1, 3, 5):
        grads, rewards = generator.normal(size=(5, 3)), np.array([1.0] * num_right + [0.0] * (5 - num_right))
        theirs = grads[rewards == 1].mean(0) - grads.mean(0) if num_right else np.zeros(3)
        ours = np.array(of_one_token(Maxrl(), rewards.tolist(), [0] * 5))
        np.testing.assert_allclose((ours[:, None] * grads).mean(0), theirs, atol=1e-12)


def test_one_success_among_many_is_cut_at_the_reward_clip() -> None:
    assert max(of_one_token(Maxrl(), [1] + [0] * 15, [0] * 16)) == 10
    assert max(of_one_token(Maxrl(), [1] + [0] * 15, [0] * 16, reward_clip=None)) == 15
