"""Groups that are trees: where rollouts branch, which turns they share, and what is counted of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rlf.rollout.rollout import Prefix
from rlf.spec.models import TreeSpec
from rlf.training.batch import make_batch
from rlf.training.branches import branch_rollouts, tree_metrics
from rlf.training.counting import training_rollout
from rlf.types import Task

from .trajectories import played

TASK = Task("q", ())
TREE = TreeSpec(roots=2, rounds=2)
SIZE = 10
"""Rollouts of the group: two roots, and four in each round."""


def rounds():
    """The rollouts of one group, by round."""
    found = [[], [], []]
    for sample in range(SIZE):
        found[TREE.round_of(sample, SIZE)].append(training_rollout(TASK, 3, sample, 0))
    return found


def test_each_round_adds_equally_many_to_each_tree():
    assert [[one.sample_index for one in part] for part in rounds()] == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    for part in rounds()[1:]:
        assert Counter(TREE.tree_of(one.sample_index) for one in part) == {0: 2, 1: 2}


def test_a_rollout_branches_at_a_later_turn_of_its_own_tree_and_keeps_what_is_before():
    first, second, _ = rounds()
    whole = [played(first[0], 4), played(first[1], 3)]
    branched = branch_rollouts(second, whole, TREE.tree_of, 0)
    assert [(one.id, one.seed) for one in branched] == [(one.id, one.seed) for one in second]
    for one in branched:
        parent = whole[TREE.tree_of(one.sample_index)].trajectory
        assert one.prefix.trajectory is parent and 1 <= one.prefix.num_turns < len(parent.turns)
        assert not one.prefix.is_trained and one.prefix.replays_calls
        end = parent.turns[one.prefix.num_turns - 1].observation_end
        assert list(one.prefix.record().tokens) == list(parent.tokens[:end])
    for tree in (0, 1):  # no place twice before all of the tree's places had one
        drawn = [one.prefix.num_turns for one in branched if TREE.tree_of(one.sample_index) == tree]
        assert len(set(drawn)) == 2


def test_where_rollouts_branch_follows_from_the_seed_and_each_place_is_as_likely():
    first, second, _ = rounds()
    whole = [played(first[0], 4), played(first[1], 4)]
    drawn = [
        [one.prefix.num_turns for one in branch_rollouts(second, whole, TREE.tree_of, seed)] for seed in range(300)
    ]
    assert drawn == [
        [one.prefix.num_turns for one in branch_rollouts(second, whole, TREE.tree_of, seed)] for seed in range(300)
    ]
    counts = Counter(row[0] for row in drawn)
    assert set(counts) == {1, 2, 3} and min(counts.values()) > 70


def test_a_place_that_several_share_counts_once():
    first, second, third = rounds()
    root = played(first[0], 3)
    shared = played(replace(second[0], prefix=Prefix(root.trajectory, 1, is_trained=False)), 3)
    whole = [root, shared]
    own = {(root.trajectory.id, 1), (root.trajectory.id, 2), (shared.trajectory.id, 2)}
    found = {
        (one.prefix.trajectory.id, one.prefix.num_turns)
        for seed in range(60)
        for one in branch_rollouts(third[:1], whole, TREE.tree_of, seed)
    }
    assert found == own


def test_a_tree_without_a_later_turn_grows_from_its_prompt_and_broken_rollouts_have_no_branches():
    first, second, _ = rounds()
    whole = [played(first[0], 1), replace(played(first[1], 4), reward=None)]
    assert branch_rollouts(second, whole, TREE.tree_of, 0) == second


def test_turns_of_a_prefix_are_the_turns_of_the_trajectory_that_sampled_them():
    first, second, third = rounds()
    root, other = played(first[0], 4), played(first[1], 2)
    branch = played(replace(second[0], prefix=Prefix(root.trajectory, 2, is_trained=False)), 4)
    twig = played(replace(third[0], prefix=Prefix(branch.trajectory, 3, is_trained=False)), 4)
    items = [root, other, branch, twig]
    batch = make_batch(items, reads_turns=True)
    (a, b, c, d), (e, f, *_), (g, h, i, j), (k, m, n, o) = batch.turns.node_BK.tolist()
    assert (g, h, k, m, n) == (a, b, a, b, i)
    assert len({a, b, c, d, e, f, i, j, o}) == 9
    assert make_batch([root, other], reads_turns=True).turns.node_BK is None
    sampled = [(turn.end - turn.start) for turn in (*root.trajectory.turns, *other.trajectory.turns)]
    assert batch.loss_mask_BT.sum().item() == sum(sampled) + 2 * 2 + 2, "each sampled token once"
    counted = {"tree/branches": 2.0, "tree/shared_tokens": 10.0}
    assert tree_metrics(items) == counted | {"tree/roots/success": 1.0}
    failed = [root, other, *(replace(item, success=0.0) for item in (branch, twig))]
    assert tree_metrics(failed)["tree/roots/success"] == 1.0, "of the roots alone"
    assert tree_metrics([branch, twig]) == counted
