"""Dynamic filtering: groups that everyone or no one solved teach nothing and are sampled anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.algo.groups import group_mean

if TYPE_CHECKING:
    from torch import Tensor


def keep_groups(scores_B: Tensor, group_B: Tensor, low: float, high: float) -> Tensor:
    """bool [B]: true for every row of a group with `low < mean(score) < high`, both strict.

    DAPO (arXiv:2503.14476), equation 11, the constraint on the number of right answers. Mirrors OpenRLHF
    `SamplesGenerator._generate_vllm` with `dynamic_filtering_range` (default 0, 1): the *mean* decides, so a group
    that scored 0.5 throughout is kept although its advantages are 0. A group with a NaN score is dropped.

    Args:
        scores_B: the score that filtering reads, which need not be the reward.
        group_B: int64, which task each row is a rollout of, in any order.
    """
    mean_B = group_mean(scores_B.double(), group_B)
    return (low < mean_B) & (mean_B < high)
