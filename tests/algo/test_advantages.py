"""Estimators: worked numbers, parity with OpenRLHF, and what holds for every kind in the registry."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.algo import ESTIMATORS
from rlf.algo.advantages.dr_grpo import DrGrpo
from rlf.algo.advantages.gae import Gae
from rlf.algo.advantages.grpo import Grpo
from rlf.algo.advantages.reinforce import Reinforce
from rlf.algo.advantages.reinforce_baseline import ReinforceBaseline
from rlf.algo.advantages.rloo import Rloo
from rlf.algo.estimator import AdvantageInput, AdvantageOutput, take_rows
from rlf.apps.estimators.flash_reinforce import FlashReinforce
from rlf.core.callables import load_module

from .batches import random_batch, random_mask
from .openrlhf_reference import float64_kept, reference_advantages

OPENRLHF_NAME = {"grpo": "group_norm"}
ROOT = 2**0.5


def batch_of(rewards: list[float], groups: list[int], mask: list[list[int]], **fields: object) -> AdvantageInput:
    return AdvantageInput(
        rewards_B=torch.tensor(rewards, dtype=torch.float64),
        group_B=torch.tensor(groups),
        action_mask_BT=torch.tensor(mask, dtype=torch.bool),
        **fields,
    )


def assert_equal(actual: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)


# Worked numbers: two tasks of two rollouts; the second row has an observation at t = 1.
REWARDS, GROUPS = [1.0, 0.0, 4.0, 2.0], [7, 7, 3, 3]
MASK = [[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_grpo_divides_the_deviation_by_the_groups_standard_deviation() -> None:
    # mean .5, std sqrt(.25 + .25) = 1/sqrt(2): (1 - .5) / std = sqrt(2)/2; group two: mean 3, std sqrt(2), +-1/sqrt(2)
    a = ROOT / 2
    output = Grpo().advantages(batch_of(REWARDS, GROUPS, MASK))
    assert_equal(output.advantages_BT, [[a, a, 0], [-a, 0, -a], [0, a, a], [-a, -a, -a]])


def test_dr_grpo_is_the_deviation_from_the_group_mean() -> None:
    # 1 - .5 = .5, 0 - .5 = -.5; 4 - 3 = 1, 2 - 3 = -1
    output = DrGrpo().advantages(batch_of(REWARDS, GROUPS, MASK))
    assert_equal(output.advantages_BT, [[0.5, 0.5, 0], [-0.5, 0, -0.5], [0, 1, 1], [-1, -1, -1]])


def test_rloo_is_the_distance_to_the_mean_of_the_others() -> None:
    # group of three: 3 - (0 + 6)/2 = 0; 0 - (3 + 6)/2 = -4.5; 6 - (3 + 0)/2 = 4.5
    output = Rloo().advantages(batch_of([3.0, 0.0, 6.0], [0, 0, 0], [[1], [1], [1]]))
    assert_equal(output.advantages_BT, [[0.0], [-4.5], [4.5]])


def test_reinforce_discounts_then_whitens_over_the_sampled_tokens_of_the_batch() -> None:
    # gamma .5: row one returns .5 * 4 = 2 at t0, 4 at t1; row two: reward 0. Tokens 2, 4, 0, 0: mean 1.5,
    # var (.25 + 6.25 + 2.25 + 2.25)/4 = 2.75
    output = Reinforce(gamma=0.5).advantages(batch_of([4.0, 0.0], [0, 1], [[1, 1], [1, 1]]))
    assert_equal(output.returns_BT, [[2, 4], [0, 0]])
    deviation = 2.75**0.5
    expected = [[0.5 / deviation, 2.5 / deviation], [-1.5 / deviation, -1.5 / deviation]]
    assert_equal(output.advantages_BT, expected)


def test_reinforce_discounts_through_observation_tokens() -> None:
    # reward 8 on t2, observation at t1: G_0 = .5^2 * 8 = 2
    output = Reinforce(gamma=0.5).advantages(batch_of([8.0], [0], [[1, 0, 1]]))
    assert_equal(output.returns_BT, [[2, 0, 8]])


def test_reinforce_without_std_norm_only_subtracts_the_batch_mean() -> None:
    # tokens 4, 4, 0, 0: mean 2
    output = Reinforce(std_norm=False).advantages(batch_of([4.0, 0.0], [0, 1], [[1, 1], [1, 1]]))
    assert_equal(output.advantages_BT, [[2, 2], [-2, -2]])


def test_flash_reinforce_is_the_deviation_from_the_batchs_mean() -> None:
    # mean (1 + 0 + 4 + 2) / 4 = 1.75
    output = FlashReinforce().advantages(batch_of(REWARDS, GROUPS, MASK))
    expected = [[-0.75, -0.75, 0], [-1.75, 0, -1.75], [0, 2.25, 2.25], [0.25, 0.25, 0.25]]
    assert_equal(output.advantages_BT, expected)


def test_reinforce_baseline_centres_by_group_and_whitens_by_batch() -> None:
    # deviations .5 (2 tokens), -.5 (2), 1 (2), -1 (3): mean -1/9, mean square (4 * .25 + 5)/9 = 2/3,
    # var 2/3 - 1/81 = 53/81
    output = ReinforceBaseline().advantages(batch_of(REWARDS, GROUPS, MASK))
    a, b, c, d = ((x + 1 / 9) / (53 / 81) ** 0.5 for x in (0.5, -0.5, 1.0, -1.0))
    assert_equal(output.advantages_BT, [[a, a, 0], [b, 0, b], [0, c, c], [d, d, d]])
    assert_equal(output.returns_BT, [[0.5, 0.5, 0], [-0.5, 0, -0.5], [0, 1, 1], [-1, -1, -1]])


def test_gae_worked_by_hand() -> None:
    # V = .5, 1; r = 0, 2; gamma .5, lam .5. delta_1 = 2 - 1 = 1; delta_0 = .5 * 1 - .5 = 0.
    # A_1 = 1, A_0 = 0 + .25 * 1 = .25; returns .75, 2; mean .625, without std_norm -.375, .375
    batch = batch_of([2.0], [0], [[1, 1]], values_BT=torch.tensor([[0.5, 1.0]], dtype=torch.float64))
    output = Gae(gamma=0.5, lam=0.5, std_norm=False).advantages(batch)
    assert_equal(output.returns_BT, [[0.75, 2]])
    assert_equal(output.advantages_BT, [[-0.375, 0.375]])


def test_gae_takes_the_value_of_an_observation_as_zero() -> None:
    # V = 1, (9), 1 with an observation between; r = 0, -, 2; gamma 1, lam .5.
    # delta_2 = 2 - 1 = 1; delta_1 = V_2 - 0 = 1; delta_0 = 0 - 1 = -1
    # A_2 = 1, A_1 = 1 + .5 = 1.5, A_0 = -1 + .75 = -.25; returns .75, 2; mean .375
    batch = batch_of([2.0], [0], [[1, 0, 1]], values_BT=torch.tensor([[1.0, 9.0, 1.0]], dtype=torch.float64))
    output = Gae(lam=0.5, std_norm=False).advantages(batch)
    assert_equal(output.returns_BT, [[0.75, 0, 2]])
    assert_equal(output.advantages_BT, [[-0.625, 0, 0.625]])


def test_the_kl_penalty_lowers_every_sampled_token_and_the_reward() -> None:
    # kl .1, (observation), .3 with coefficient 2: rewards -.2, 0, 1 - .6 = .4; returns .2, 0, .4; sum .2
    kl_BT = torch.tensor([[0.1, 50.0, 0.3]], dtype=torch.float64)
    batch = batch_of([1.0], [0], [[1, 0, 1]], kl_BT=kl_BT, kl_coef=2.0)
    output = Reinforce(std_norm=False).advantages(batch)
    assert_equal(output.returns_BT, [[0.2, 0, 0.4]])
    assert_equal(output.rewards_B, [0.2])


def test_a_coefficient_of_0_is_no_penalty_however_far_the_policy_has_moved() -> None:
    kl_BT = torch.tensor([[torch.inf, torch.nan, 1.0]])
    output = Reinforce(std_norm=False).advantages(batch_of([1.0], [0], [[1, 1, 1]], kl_BT=kl_BT, kl_coef=0.0))
    assert_equal(output.returns_BT, [[1, 1, 1]])


def test_the_clip_bounds_the_scalar_after_the_baseline() -> None:
    # deviations 20, -20 clipped to 10, -10; the raw rewards 40 and 0 are not clipped first (that would give 5, -5)
    output = DrGrpo().advantages(batch_of([40.0, 0.0], [0, 0], [[1], [1]]))
    assert_equal(output.advantages_BT, [[10], [-10]])
    unclipped = DrGrpo().advantages(batch_of([40.0, 0.0], [0, 0], [[1], [1]], reward_clip=None))
    assert_equal(unclipped.advantages_BT, [[20], [-20]])


@pytest.mark.parametrize("reward", [0.1, 0.3, 0.35, 0.7, 1.1])
def test_eight_equal_float32_rewards_give_exactly_nothing(reward: float) -> None:
    rewards_B = torch.full((8,), reward, dtype=torch.float32)
    rounded_B = (rewards_B - rewards_B.mean()) / (rewards_B.std() + 1e-9)
    assert reward == 1.1 or rounded_B.abs().max() > 0.8, "the plain formula is fooled by rounding"
    batch = AdvantageInput(rewards_B, torch.zeros(8, dtype=torch.int64), torch.ones(8, 2, dtype=torch.bool))
    for estimator in (Grpo(), DrGrpo(), Rloo(), ReinforceBaseline()):
        assert estimator.advantages(batch).advantages_BT.count_nonzero() == 0


VARIANTS = [
    ("grpo", {}),
    ("dr_grpo", {}),
    ("rloo", {}),
    ("reinforce", {}),
    ("reinforce", {"gamma": 0.9}),
    ("reinforce", {"std_norm": False}),
    ("reinforce_baseline", {}),
    ("reinforce_baseline", {"std_norm": False}),
    ("flash_reinforce", {}),
    ("gae", {}),
    ("gae", {"gamma": 0.95, "lam": 0.8}),
    ("gae", {"gamma": 0.95, "lam": 0.8, "std_norm": False}),
]
BATCHES = {
    "plain": {},
    "kl": {"kl_coef": 0.05},
    "clipped": {"reward_scale": 9.0, "reward_clip": (-2.0, 3.0), "kl_coef": 0.3},
    "unclipped": {"reward_scale": 30.0, "reward_clip": None},
    "negative_kl_coef": {"kl_coef": -1.0},
}


@pytest.mark.parametrize("batch_name", BATCHES)
@pytest.mark.parametrize(("name", "settings_"), VARIANTS)
def test_equal_groups_give_openrlhfs_numbers(name: str, settings_: dict[str, float], batch_name: str) -> None:
    for seed in range(4):
        batch = random_batch(seed, **BATCHES[batch_name])
        ours = ESTIMATORS.get(name)(**settings_).advantages(batch)
        reference = OPENRLHF_NAME.get(name, name)
        with float64_kept():
            assert_parity(ours, reference_advantages(batch, reference, num_generations=4, **settings_), batch, 1e-10)
        assert_parity(ours, reference_advantages(batch, reference, num_generations=4, **settings_), batch, 1e-6)


def assert_parity(ours: AdvantageOutput, theirs: object, batch: AdvantageInput, tolerance: float) -> None:
    """OpenRLHF leaves numbers outside the mask, which its loss does not read; ours are 0 there."""
    mask_BT = batch.action_mask_BT
    for field in ("advantages_BT", "returns_BT"):
        actual, expected = getattr(ours, field), getattr(theirs, field)
        torch.testing.assert_close(actual[mask_BT], expected[mask_BT], rtol=0, atol=tolerance)
        assert actual[~mask_BT].count_nonzero() == 0
    torch.testing.assert_close(ours.rewards_B, theirs.rewards_B, rtol=0, atol=tolerance)


# What holds for every kind.

KINDS = ESTIMATORS.names()


def test_the_registry_lists_the_estimators() -> None:
    assert {"dr_grpo", "gae", "grpo", "reinforce", "reinforce_baseline", "rloo"} <= set(KINDS)
    assert {"gdpo", "gpg", "grpo_passk", "mt_grpo", "opo", "pass_at_k", "remax"} <= set(KINDS)


def test_listing_and_configuring_estimators_loads_no_torch() -> None:
    code = (
        "import sys; from rlf.algo import ESTIMATORS; import rlf.algo.loss_config\n"
        "[ESTIMATORS.get(name)() for name in ESTIMATORS.names()]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@st.composite
def ragged_batches(draw: st.DrawFn) -> AdvantageInput:
    """float64 rows of unequal, interleaved groups (of one, too), rows without a sampled token, NaN outside the mask."""
    groups = draw(st.lists(st.integers(-2, 3), min_size=1, max_size=9))
    finite = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.1, 1.0])
    rewards = draw(st.lists(finite, min_size=len(groups), max_size=len(groups)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    mask_BT = random_mask(len(groups), 7, generator)
    mask_BT[torch.rand(len(groups), generator=generator) < 0.1] = False
    noise_BT = torch.randn(len(groups), 7, generator=generator, dtype=torch.float64)
    noise_BT = noise_BT.masked_fill(~mask_BT, draw(st.sampled_from([0.0, float("nan"), float("inf")])))
    return AdvantageInput(
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(groups),
        mask_BT,
        kl_BT=noise_BT,
        kl_coef=draw(st.sampled_from([0.0, 0.1])),
        values_BT=noise_BT,
        old_logprobs_BT=noise_BT,
        teacher_logprobs_BT=noise_BT.flip(0),
        greedy_B=torch.zeros(len(groups), dtype=torch.float64),
        reward_clip=draw(st.sampled_from([None, (-10.0, 10.0)])),
    )


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=15, deadline=None)
@given(batch=ragged_batches(), data=st.data())
def test_advantages_are_finite_zero_outside_the_mask_and_know_neither_the_order_of_rows_nor_the_names_of_groups(
    name: str, batch: AdvantageInput, data: st.DataObject
) -> None:
    estimator = ESTIMATORS.get(name)()
    output = estimator.advantages(batch)
    for tensor in (output.advantages_BT, output.returns_BT):
        assert tensor.shape == batch.action_mask_BT.shape
        assert bool(tensor.isfinite().all())
        assert tensor[~batch.action_mask_BT].count_nonzero() == 0
        assert not tensor.requires_grad
    assert bool(output.rewards_B.isfinite().all())
    order = torch.tensor(data.draw(st.permutations(range(len(batch.group_B)))))
    moved = estimator.advantages(replace(take_rows(batch, order), group_B=100 - 3 * batch.group_B[order]))
    atol = 1e-6 + 1e-10 * batch.rewards_B.abs().max().item()  # of sums in another order
    torch.testing.assert_close(moved.advantages_BT, output.advantages_BT[order], rtol=1e-6, atol=atol)
    torch.testing.assert_close(moved.returns_BT, output.returns_BT[order], rtol=1e-6, atol=atol)


@pytest.mark.parametrize("name", [name for name in KINDS if ESTIMATORS.get(name).needs_group])
@settings(max_examples=10, deadline=None)
@given(reward=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 9))
def test_a_group_of_equal_rewards_teaches_nothing(name: str, reward: float, size: int) -> None:
    mask_BT = torch.ones(size, 3, dtype=torch.bool)
    batch = AdvantageInput(torch.full((size,), reward), torch.zeros(size, dtype=torch.int64), mask_BT)
    assert ESTIMATORS.get(name)().advantages(batch).advantages_BT.count_nonzero() == 0


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_groups_of_unequal_size_equal_the_same_groups_alone(name: str) -> None:
    estimator = ESTIMATORS.get(name)()
    whole = random_batch(3, groups=3, num_generations=4)
    rows = torch.tensor([9, 0, 5, 2, 8, 1, 4, 10])
    part = AdvantageInput(whole.rewards_B[rows], whole.group_B[rows], whole.action_mask_BT[rows])
    together = estimator.advantages(part).advantages_BT
    for group in range(3):
        mine = part.group_B == group
        alone = AdvantageInput(part.rewards_B[mine], part.group_B[mine], part.action_mask_BT[mine])
        torch.testing.assert_close(together[mine], estimator.advantages(alone).advantages_BT)


@pytest.mark.parametrize("name", KINDS)
def test_half_precision_rewards_are_computed_in_float32(name: str) -> None:
    batch = random_batch(0)
    values_BT = None if batch.values_BT is None else batch.values_BT.bfloat16()
    greedy_B = None if batch.greedy_B is None else batch.greedy_B.bfloat16()
    assert batch.old_logprobs_BT is not None
    said_BT = batch.old_logprobs_BT.bfloat16()
    low = replace(
        batch, rewards_B=batch.rewards_B.bfloat16(), values_BT=values_BT, greedy_B=greedy_B, old_logprobs_BT=said_BT,
        teacher_logprobs_BT=said_BT,
    )  # fmt: skip
    assert ESTIMATORS.get(name)().advantages(low).advantages_BT.dtype == torch.float32


@pytest.mark.parametrize("name", KINDS)
def test_advantages_carry_no_gradient(name: str) -> None:
    batch = random_batch(0, kl_coef=0.1)
    assert batch.values_BT is not None and batch.kl_BT is not None
    live = replace(batch, values_BT=batch.values_BT.requires_grad_(), kl_BT=batch.kl_BT.requires_grad_())
    output = ESTIMATORS.get(name)().advantages(live)
    assert not (output.advantages_BT.requires_grad or output.returns_BT.requires_grad or output.rewards_B.requires_grad)


def test_gae_without_values_says_what_is_missing() -> None:
    with pytest.raises(AssertionError, match="values_BT"):
        Gae().advantages(batch_of([1.0], [0], [[1]]))


def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(AssertionError, match="finite"):
        batch_of([float("nan")], [0], [[1]])


def test_tensors_that_do_not_fit_one_another_are_refused() -> None:
    with pytest.raises(AssertionError, match="2 trajectories"):
        batch_of([1.0], [0], [[1], [1]])
    with pytest.raises(AssertionError, match="values"):
        batch_of([1.0], [0], [[1]], values_BT=torch.zeros(1, 2))


def test_every_estimator_and_loss_is_what_plain_python_makes_of_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["batches.py", "--batches", "24"])
    assert load_module(str(Path(__file__).parents[2] / "benchmarks" / "batches.py")).main() == 0
