"""Dynamic filtering: which groups stay in a step. Those that everyone or no one solved teach nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlf.spec.models import FilterSpec
from rlf.training.counting import counts
from rlf.types.score import Scored


def is_kept(rewards: Sequence[float], filtering: FilterSpec | None) -> bool:
    """Whether the mean of a group's rewards lies strictly inside the range; one without rewards does not.

    DAPO (arXiv:2503.14476), equation 11, the constraint on the number of right answers. Mirrors OpenRLHF
    `SamplesGenerator._generate_vllm` with `dynamic_filtering_range`: the *mean* decides, so a group that scored 0.5
    throughout is kept although its advantages are 0. A group with a NaN is dropped.
    """
    return filtering is None or (bool(rewards) and filtering.low < sum(rewards) / len(rewards) < filtering.high)


def keep_groups(scored: Sequence[Scored], filtering: FilterSpec | None) -> list[Scored]:
    """The trajectories of the groups that are kept, those that do not count included."""
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for item in scored:
        if counts(item) and item.reward is not None:
            rewards[item.trajectory.task.id].append(item.reward)
    return [item for item in scored if is_kept(rewards[item.trajectory.task.id], filtering)]
