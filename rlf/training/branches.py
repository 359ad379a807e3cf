"""Rollouts that continue others: groups that begin in a state of an earlier rollout, and trees."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from rlf.core.identity import derive_seed
from rlf.rollout.rollout import Prefix, Rollout
from rlf.training.counting import counts
from rlf.types.score import Scored
from rlf.types.trajectory import Trajectory


def opening_rollouts(rollouts: Sequence[Rollout], seed: int) -> list[Rollout]:
    """One rollout of each task, from whose states its group continues."""
    firsts: dict[str, Rollout] = {}
    for rollout in rollouts:
        firsts.setdefault(rollout.task.id, rollout)
    ids = {task: f"{first.id.rpartition('/')[0]}/prefix" for task, first in firsts.items()}
    return [Rollout(ids[task], first.task, 0, derive_seed(seed, ids[task])) for task, first in firsts.items()]


def draw_prefix(trajectory: Trajectory, seed: int) -> Prefix:
    """A state that a trajectory went through, each as likely as the others; what led there is not trained on."""
    choices = Prefix.choices(trajectory)
    return Prefix(trajectory, choices[derive_seed(seed, "prefix", trajectory.id) % len(choices)], is_trained=False)


def branch_rollouts(
    rollouts: Sequence[Rollout], played: Sequence[Scored], tree_of: Callable[[int], int], seed: int
) -> list[Rollout]:
    """Rollouts of the next round of trees, each from the start of a later turn of its tree, where there is one.

    A place is a turn that ended with an observation, and counts once, whichever rollouts share it. Those of a tree are
    drawn in a random order, again from the first on once all are drawn.

    Args:
        played: the rollouts of earlier rounds.
        tree_of: the tree of a group's rollout, by its place in the group.
    """
    places = defaultdict[tuple[str, int], list[tuple[Trajectory, int]]](list)
    for item in filter(counts, played):
        trajectory = item.trajectory
        own = Prefix.choices(trajectory)[trajectory.num_prefix_turns + 1 :]
        places[trajectory.task.id, tree_of(trajectory.sample_index)] += [(trajectory, num_turns) for num_turns in own]
    branched, num_drawn = list[Rollout](), Counter[tuple[str, int]]()
    for rollout in rollouts:
        tree = rollout.task.id, tree_of(rollout.sample_index)
        if found := places[tree]:
            if not num_drawn[tree]:
                random.Random(derive_seed(seed, "branch", rollout.id)).shuffle(found)
            trajectory, num_turns = found[num_drawn[tree] % len(found)]
            num_drawn[tree] += 1
            rollout = replace(rollout, prefix=Prefix(trajectory, num_turns, is_trained=False))
        branched.append(rollout)
    return branched


def tree_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """How many of the trajectories branched, what they did not sample again, and the success of those that did not."""
    branches = [item.trajectory for item in scored if item.trajectory.prefix_of]
    roots = [item.success for item in scored if not item.trajectory.prefix_of and item.success is not None]
    shared = [each.turns[: each.num_prefix_turns] for each in branches]
    metrics = {
        "tree/branches": float(len(branches)),
        "tree/shared_tokens": float(sum(turn.end - turn.start for turns in shared for turn in turns)),
    }
    return metrics | ({"tree/roots/success": fmean(roots)} if roots else {})
