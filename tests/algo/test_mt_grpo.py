"""MT-GRPO: turns with advantages of their own, by hand, and what it has in common with GRPO."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.algo.advantages.dr_grpo import DrGrpo
from rlf.algo.advantages.grpo import Grpo
from rlf.algo.estimator import AdvantageInput, TurnRewards
from rlf.apps.estimators.mt_grpo import MtGrpo

from .batches import random_batch

A = 2**-0.5
"""(x - mean) / std of the greater of two: (d/2) / sqrt(2 (d/2)^2) = 1/sqrt(2)."""


def batch_of(
    outcomes: list[float], turns: list[list[float]], turn_of: list[list[int | None]], **fields: object
) -> AdvantageInput:
    """One group. `turn_of` tells the turn of each token, None where nothing was sampled."""
    most = max(map(len, turns))
    rewards_BK = torch.tensor([row + [99.0] * (most - len(row)) for row in turns], dtype=torch.float64)
    outcome_B = torch.tensor(outcomes, dtype=torch.float64)
    return AdvantageInput(
        rewards_B=outcome_B + 7.0,
        group_B=torch.zeros(len(outcomes), dtype=torch.int64),
        action_mask_BT=torch.tensor([[turn is not None for turn in row] for row in turn_of]),
        turns=TurnRewards(
            outcome_B,
            rewards_BK,
            torch.tensor([len(row) for row in turns]),
            torch.tensor([[turn or 0 for turn in row] for row in turn_of]),
            torch.zeros(rewards_BK.shape, dtype=torch.int64),
        ),
        **fields,
    )


def about(numbers: list[float]) -> object:
    return pytest.approx(numbers, abs=1e-8)


def advantages(batch: AdvantageInput, **keys: float | bool) -> list[list[float]]:
    return MtGrpo(**keys).advantages(batch).advantages_BT.tolist()


TWO_TURNS = [[0, None, 1], [0, None, 1]]


def test_the_first_of_two_turns_has_its_own_advantage_and_the_outcomes_the_last_the_outcomes_alone() -> None:
    # the paper's case: turn 1 rewarded 1 and 0, turn 2 not; outcomes 0 and 1. Turn 1: A - A = 0; turn 2: -A, A
    got = advantages(batch_of([0.0, 1.0], [[1.0, 0.0], [0.0, 0.0]], TWO_TURNS))
    assert got == [about([0, 0, -A]), about([0, 0, A])]


def test_a_turn_is_credited_with_what_later_turns_earn_discounted_by_turn() -> None:
    # r = [1, 0] and [0, 2], gamma .5: G_1 = 1 + .5 * 0 = 1 and 0 + .5 * 2 = 1, equal, so 0; G_2 = 0 and 2: -A, A
    got = advantages(batch_of([1.0, 0.0], [[1.0, 0.0], [0.0, 2.0]], TWO_TURNS), gamma=0.5)
    assert got == [about([A, 0, 0]), about([-A, 0, 0])]
    # gamma 0: G_1 = 1 and 0
    got = advantages(batch_of([1.0, 0.0], [[1.0, 0.0], [0.0, 2.0]], TWO_TURNS), gamma=0.0)
    assert got == [about([2 * A, 0, 0]), about([-2 * A, 0, 0])]


def test_a_rollout_without_a_second_turn_is_not_in_the_group_of_second_turns() -> None:
    # turn 2 of rows one and two alone: G = 3, 1 -> A, -A; turn 1: G = 3, 2, 1 has mean 2, std 1 -> 1, 0, -1
    batch = batch_of([0.0] * 3, [[0.0, 3.0], [1.0, 1.0], [1.0]], [[0, 1], [0, 1], [0, 0]])
    assert advantages(batch) == [about([1, A]), about([0, -A]), about([-1, -1])]


def test_without_std_norm_the_weights_of_terms_count() -> None:
    # outcomes 1, 0: +-.5; G_1 = .2, 0: +-.1, twice over .2; G_2 = 0
    batch = batch_of([1.0, 0.0], [[0.2, 0.0], [0.0, 0.0]], TWO_TURNS)
    got = advantages(batch, std_norm=False, turn_coef=2.0)
    assert got == [about([0.7, 0, 0.5]), about([-0.7, 0, -0.5])]


def test_outcome_and_turns_are_clipped_each_and_the_penalty_is_taken_from_what_follows() -> None:
    # +-50 clipped to 1 each; kl .1 and .2 with coefficient 1: -.3 from token 1 on, -.2 on the last
    kl_BT = torch.tensor([[0.1, 9.0, 0.2], [0.0, 0.0, 0.0]], dtype=torch.float64)
    batch = batch_of(
        [100.0, 0.0], [[100.0, 0.0], [0.0, 0.0]], TWO_TURNS, kl_BT=kl_BT, kl_coef=1.0, reward_clip=(-1.0, 1.0)
    )
    got = advantages(batch, std_norm=False)
    assert got == [about([1.7, 0, 0.8]), about([-2, 0, -1])]


@pytest.mark.parametrize(("std_norm", "plain"), [(True, Grpo()), (False, DrGrpo())])
def test_without_turn_rewards_it_is_grpo_or_dr_grpo(std_norm: bool, plain: Grpo | DrGrpo) -> None:
    batch = random_batch(1, kl_coef=0.1)
    rows, tokens = batch.action_mask_BT.shape
    nothing = TurnRewards(
        batch.rewards_B,
        torch.zeros(rows, 3),
        torch.full((rows,), 3),
        torch.randint(0, 3, (rows, tokens)),
        torch.zeros(rows, 3, dtype=torch.int64),
    )
    expected = plain.advantages(batch).advantages_BT
    for turns in (None, nothing):
        got = MtGrpo(std_norm=std_norm).advantages(replace(batch, turns=turns)).advantages_BT
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_single_turn_that_alone_is_rewarded_has_grpos_advantage() -> None:
    batch = random_batch(2)
    rows, tokens = batch.action_mask_BT.shape
    turns = TurnRewards(
        torch.zeros(rows),
        batch.rewards_B[:, None],
        torch.ones(rows).long(),
        torch.zeros(rows, tokens).long(),
        torch.zeros(rows, 1).long(),
    )
    got = MtGrpo().advantages(replace(batch, turns=turns)).advantages_BT
    torch.testing.assert_close(got, Grpo().advantages(batch).advantages_BT)


@st.composite
def turned(draw: st.DrawFn) -> AdvantageInput:
    """Groups of any size whose trajectories have none to three turns."""
    groups = draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))
    rows, tokens, most = len(groups), 6, 3
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    num_turns_B = torch.randint(0, most + 1, (rows,), generator=generator)
    turn_BT = torch.randint(0, most, (rows, tokens), generator=generator)
    turn_BT = torch.minimum(turn_BT, (num_turns_B - 1).clamp(min=0)[:, None])
    rewards_BK = torch.randint(-2, 3, (rows, most), generator=generator).double()
    rewards_BK[torch.arange(most) >= num_turns_B[:, None]] = draw(st.sampled_from([0.0, 5.0, float("nan")]))
    mask_BT = (torch.rand(rows, tokens, generator=generator) < 0.5) & (num_turns_B > 0)[:, None]
    outcome_B = torch.randint(0, 2, (rows,), generator=generator).double()
    turns = TurnRewards(outcome_B, rewards_BK, num_turns_B, turn_BT, torch.zeros(rewards_BK.shape).long())
    return AdvantageInput(outcome_B, torch.tensor(groups), mask_BT, turns=turns)


@settings(max_examples=30, deadline=None)
@given(batch=turned(), data=st.data())
def test_advantages_are_finite_nothing_outside_the_mask_and_know_no_order_of_rows(
    batch: AdvantageInput, data: st.DataObject
) -> None:
    got = MtGrpo().advantages(batch).advantages_BT
    assert bool(got.isfinite().all()) and got[~batch.action_mask_BT].count_nonzero() == 0
    order, turns = torch.tensor(data.draw(st.permutations(range(len(batch.group_B))))), batch.turns
    assert turns is not None
    all_B = (turns.outcome_B, turns.rewards_BK, turns.num_turns_B, turns.turn_BT, turns.state_BK)
    moved = TurnRewards(*(tensor[order] for tensor in all_B))
    again = replace(
        batch,
        rewards_B=batch.rewards_B[order],
        group_B=9 - batch.group_B[order],
        action_mask_BT=batch.action_mask_BT[order],
        turns=moved,
    )
    torch.testing.assert_close(MtGrpo().advantages(again).advantages_BT, got[order], rtol=1e-6, atol=1e-6)
