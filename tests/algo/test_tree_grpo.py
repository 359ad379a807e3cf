"""Rollouts that share turns: worked numbers, and Tree-GRPO's formula in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rlf.algo.advantages.grpo import Grpo
from rlf.algo.estimator import AdvantageInput, TurnRewards, advantages_by_world
from rlf.apps.estimators.tree_grpo import TreeGrpo

A = 2**-0.5
"""(x - mean) / std of the greater of two."""


def batch_of(rewards: list[float], nodes: list[list[int]], own_from: list[int], groups: list[int]) -> AdvantageInput:
    """One token a turn, an action where the rollout sampled it itself."""
    most = max(map(len, nodes))
    outcome_B = torch.tensor(rewards, dtype=torch.float64)
    turns = TurnRewards(
        outcome_B,
        torch.zeros(len(nodes), most, dtype=torch.float64),
        torch.tensor([len(row) for row in nodes]),
        torch.arange(most).repeat(len(nodes), 1),
        torch.zeros(len(nodes), most, dtype=torch.int64),
        torch.tensor([row + [0] * (most - len(row)) for row in nodes]),
    )
    mask_BT = torch.tensor(
        [[first <= turn < len(row) for turn in range(most)] for row, first in zip(nodes, own_from, strict=True)]
    )
    return AdvantageInput(outcome_B, torch.tensor(groups), mask_BT, turns=turns)


def test_a_shared_turn_has_the_mean_of_its_rollouts_and_an_own_turn_its_rollouts() -> None:
    # One tree: turn 7 is shared by rewards 1 and 0. N and N_tree: A and -A each, so 2A and -2A; their mean is 0.
    batch = batch_of([1.0, 0.0], [[7, 8], [7, 9]], [0, 1], [0, 0])
    got = TreeGrpo().advantages(batch).advantages_BT.tolist()
    assert got == [pytest.approx([0, 2 * A], abs=1e-8), pytest.approx([0, -2 * A], abs=1e-8)]
    half = TreeGrpo(tree_coef=0.5).advantages(batch).advantages_BT.tolist()
    assert half == [pytest.approx([0, 1.5 * A], abs=1e-8), pytest.approx([0, -1.5 * A], abs=1e-8)]
    # two trees, of rewards 1 1 and 0 0: within a tree nothing differs, so only the group's: 3/4 ^ .5 and its negative
    batch = batch_of([1.0, 1.0, 0.0, 0.0], [[1, 2], [1, 3], [4], [4, 5]], [0, 1, 0, 1], [0] * 4)
    between = 0.75**0.5
    assert TreeGrpo().advantages(batch).advantages_BT.tolist() == [
        pytest.approx(row, abs=1e-8) for row in ([between, between], [0, between], [-between, 0], [0, -between])
    ]


def test_more_branches_do_not_make_the_shared_turn_count_more() -> None:
    # A tree that fails whole beside one that succeeds: whatever the number of branches, the turn's weight is the mean.
    for num_branches in (1, 2, 5):
        rewards = [1.0] * (1 + num_branches) + [0.0] * (1 + num_branches)
        nodes = [[0, 1]] + [[0, 10 + at] for at in range(num_branches)]
        nodes += [[2, 3]] + [[2, 30 + at] for at in range(num_branches)]
        own_from = ([0] + [1] * num_branches) * 2
        batch = batch_of(rewards, nodes, own_from, [0] * len(rewards))
        weight_BT = TreeGrpo(std_norm=False).advantages(batch).advantages_BT
        assert weight_BT[:, 0].sum().item() == pytest.approx(0.5 - 0.5, abs=1e-12)
        assert weight_BT[0, 0].item() == pytest.approx(0.5, abs=1e-12), "not once for each leaf"
        assert weight_BT[1 : 1 + num_branches, 0].count_nonzero() == 0, "sampled by the first rollout alone"


def test_without_trees_it_is_grpo() -> None:
    batch = batch_of([1.0, 0.0, 3.0], [[1, 2], [3], [4, 5]], [0, 0, 0], [0, 0, 0])
    assert batch.turns is not None
    for turns in (batch.turns, replace(batch.turns, node_BK=None), None):
        other = replace(batch, turns=turns)
        torch.testing.assert_close(TreeGrpo().advantages(other).advantages_BT, Grpo().advantages(batch).advantages_BT)


def normal(value: float, values: list[float]) -> float:
    return 0.0 if len(values) < 2 else (value - np.mean(values)) / (np.std(values, ddof=1) + 1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_worlds", [1, 2])
def test_it_is_the_papers_sum_of_two_advantages_averaged_over_those_that_share_a_turn(
    seed: int, num_worlds: int
) -> None:
    generator = np.random.default_rng(seed)
    nodes, own_from, groups, trees, next_node = list[list[int]](), list[int](), list[int](), list[int](), 0
    for tree in range(4):
        rows: list[list[int]] = []
        for leaf in range(4):
            kept = [] if leaf == 0 else (parent := rows[generator.integers(0, len(rows))])[: max(1, len(parent) - 1)]
            own = int(generator.integers(1, 4))
            rows.append([*kept, *range(next_node, next_node + own)])
            next_node += own
            own_from.append(len(kept))
            groups.append(tree // 2)
            trees.append(tree)
        nodes += rows
    rewards = generator.normal(size=len(nodes)).tolist()
    batch = batch_of(rewards, nodes, own_from, groups)
    if num_worlds == 2:  # each world's rows by themselves, which are whole groups
        batch = replace(batch, world_B=batch.group_B)
    got_BT = advantages_by_world(TreeGrpo(tree_coef=0.7), batch).advantages_BT
    leaves = [
        normal(reward, [rewards[at] for at in range(len(nodes)) if groups[at] == groups[i]])
        + 0.7 * normal(reward, [rewards[at] for at in range(len(nodes)) if trees[at] == trees[i]])
        for i, reward in enumerate(rewards)
    ]
    for i, row in enumerate(nodes):
        for k in range(got_BT.shape[1]):
            through = [leaves[j] for j, other in enumerate(nodes) if k < len(row) and row[k] in other]
            expected = float(np.mean(through)) if own_from[i] <= k < len(row) else 0.0
            assert got_BT[i, k].item() == pytest.approx(expected, abs=1e-6)
