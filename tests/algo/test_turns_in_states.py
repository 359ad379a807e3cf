"""GiGPO and returns by turn: worked numbers, and the papers' formulas in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rlf.algo.advantages.grpo import Grpo
from rlf.algo.estimator import AdvantageInput, TurnRewards
from rlf.apps.estimators.gigpo import Gigpo
from rlf.apps.estimators.turn_returns import TurnReturns

A = 2**-0.5
"""(x - mean) / std of the greater of two."""


def batch_of(
    outcomes: list[float], states: list[list[int]], groups: list[int], by_turn: list[list[float]] | None = None
) -> AdvantageInput:
    """One token a turn."""
    most = max(map(len, states))
    own = by_turn or [[0.0] * len(row) for row in states]
    outcome_B = torch.tensor(outcomes, dtype=torch.float64)
    turns = TurnRewards(
        outcome_B,
        torch.tensor([row + [99.0] * (most - len(row)) for row in own], dtype=torch.float64),
        torch.tensor([len(row) for row in states]),
        torch.arange(most).repeat(len(states), 1),
        torch.tensor([row + [0] * (most - len(row)) for row in states]),
    )
    mask_BT = torch.tensor([[turn < len(row) for turn in range(most)] for row in states])
    totals_B = outcome_B + torch.tensor([sum(row) for row in own], dtype=torch.float64)
    return AdvantageInput(totals_B, torch.tensor(groups), mask_BT, turns=turns)


def test_a_success_in_fewer_turns_is_better() -> None:
    # gamma .5: G = .5, 1 and 1; turn 1: .5 against 1, so -A and A; turn 2 has no other, so 0
    batch = batch_of([1.0, 1.0], [[0, 1], [0]], [0, 0])
    assert TurnReturns(gamma=0.5).advantages(batch).advantages_BT.tolist() == [
        pytest.approx([-A, 0], abs=1e-8), pytest.approx([A, 0], abs=1e-8),
    ]  # fmt: skip
    assert TurnReturns(gamma=1.0).advantages(batch).advantages_BT.count_nonzero() == 0


def test_turns_that_begin_in_one_state_are_compared_wherever_they_stand() -> None:
    # rewards 1 and 0: N = A, -A. gamma .5: G = .5, 1 and 0, 0. States 7 8 and 8 9: state 8 has G = 1 and 0, so A, -A
    batch = batch_of([1.0, 0.0], [[7, 8], [8, 9]], [0, 0])
    got = Gigpo(gamma=0.5).advantages(batch).advantages_BT.tolist()
    assert got == [pytest.approx([A, 2 * A], abs=1e-8), pytest.approx([-2 * A, -A], abs=1e-8)]
    half = Gigpo(gamma=0.5, turn_coef=0.5).advantages(batch).advantages_BT.tolist()
    assert half == [pytest.approx([A, 1.5 * A], abs=1e-8), pytest.approx([-1.5 * A, -A], abs=1e-8)]


def test_without_states_that_recur_and_without_turns_it_is_grpo() -> None:
    batch = batch_of([1.0, 0.0, 3.0], [[1, 2], [3], [4, 5]], [0, 0, 0])
    for other in (batch, replace(batch, turns=None)):
        torch.testing.assert_close(Gigpo().advantages(other).advantages_BT, Grpo().advantages(other).advantages_BT)
    torch.testing.assert_close(
        TurnReturns().advantages(replace(batch, turns=None)).advantages_BT, Grpo().advantages(batch).advantages_BT
    )


def reference(
    outcomes: np.ndarray, rewards: list[list[float]], keys: list[list[object]], gamma: float
) -> list[list[float]]:
    """Discounted returns, normalised among equal keys: loops alone."""
    returns = []
    for outcome, row in zip(outcomes, rewards, strict=True):
        own = [*row[:-1], row[-1] + outcome]
        returns.append([sum(gamma ** (at - k) * own[at] for at in range(k, len(own))) for k in range(len(own))])
    out = []
    for i, row in enumerate(returns):
        out.append([])
        for k, value in enumerate(row):
            alike = [
                returns[j][at]
                for j in range(len(returns))
                for at in range(len(returns[j]))
                if keys[j][at] == keys[i][k]
            ]
            std = np.std(alike, ddof=1) if len(alike) > 1 else 0.0
            out[i].append((value - np.mean(alike)) / (std + 1e-9) if len(alike) > 1 else 0.0)
    return out


@pytest.mark.parametrize("seed", range(4))
def test_both_are_the_formulas_over_random_trajectories(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths, groups = generator.integers(1, 5, size=8), [0, 0, 0, 0, 1, 1, 1, 1]
    outcomes = generator.normal(size=8)
    rewards = [generator.normal(size=n).tolist() for n in lengths]
    states = [
        [int(s) + 10 * group for s in generator.integers(0, 3, size=n)]
        for n, group in zip(lengths, groups, strict=True)
    ]
    batch = batch_of(outcomes.tolist(), states, groups, rewards)
    totals = np.array([outcomes[i] + sum(rewards[i]) for i in range(8)])
    whole = [
        (totals[i] - totals[4 * g : 4 * g + 4].mean()) / (totals[4 * g : 4 * g + 4].std(ddof=1) + 1e-9)
        for i, g in enumerate(groups)
    ]
    by_state = reference(outcomes, rewards, [[(s,) for s in row] for row in states], 0.9)
    by_turn = reference(
        outcomes, rewards, [[(g, k) for k in range(n)] for n, g in zip(lengths, groups, strict=True)], 0.9
    )
    ours = Gigpo(gamma=0.9, turn_coef=0.7).advantages(batch).advantages_BT
    returns = TurnReturns(gamma=0.9).advantages(batch).advantages_BT
    for i, n in enumerate(lengths):
        assert ours[i, :n].tolist() == pytest.approx([whole[i] + 0.7 * x for x in by_state[i]], abs=1e-6)
        assert returns[i, :n].tolist() == pytest.approx(by_turn[i], abs=1e-6)
        assert ours[i, n:].count_nonzero() == 0
