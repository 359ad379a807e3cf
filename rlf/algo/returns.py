"""From one scalar per trajectory to a return and an advantage per token; what all estimators share.

Tensor methods only, so that estimators import without torch. Invariant: results are finite, carry no gradient and
are 0 wherever `action_mask_BT` is false.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlf.algo.estimator import AdvantageOutput
from rlf.algo.loss_config import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

    from rlf.algo.estimator import AdvantageInput


def keep_actions(values_BT: Tensor, action_mask_BT: Tensor) -> Tensor:
    """`values_BT` where the policy sampled, 0 elsewhere, even where the value is not a number."""
    return values_BT.detach().masked_fill(~action_mask_BT.bool(), 0.0)


def token_rewards(shaped_B: Tensor, batch: AdvantageInput) -> Tensor:
    """Per-token reward: the clipped scalar on the last sampled token, minus the KL penalty on every one.

        r_t = clip(R) [t = last action] - kl_coef * kl_t

    Mirrors OpenRLHF `compute_reward` (openrlhf/models/utils.py). A row without a sampled token gets none.

    Args:
        shaped_B: float, the scalar after the estimator's baseline and scaling.
    """
    if batch.reward_clip is not None:
        shaped_B = shaped_B.clamp(*batch.reward_clip)
    actions_BT = batch.action_mask_BT.bool()
    # `argmax` of a row without an action is 0, its last place: the product with `any` below leaves 0 there. `byte`,
    # since torch has no argmax of booleans.
    last_B = actions_BT.shape[1] - 1 - actions_BT.flip(1).byte().argmax(1)
    rewards_BT = shaped_B.new_zeros(actions_BT.shape)
    rewards_BT.scatter_(1, last_B.unsqueeze(1), (shaped_B * actions_BT.any(1)).unsqueeze(1))
    if batch.kl_BT is None or batch.kl_coef <= 0:
        return rewards_BT
    return rewards_BT - batch.kl_coef * keep_actions(at_least_float32(batch.kl_BT), actions_BT)


def discounted_sum(values_BT: Tensor, factor: float) -> Tensor:
    """`y_t = x_t + factor * y_{t+1}`, counted over all T positions, observations included, as OpenRLHF does."""
    # One pass of the device in place of T small ones; the usual factor.
    if factor == 1.0:
        return values_BT.flip(1).cumsum(1).flip(1)
    sums_BT = values_BT.new_zeros(values_BT.shape)
    running_B = values_BT.new_zeros(len(values_BT))
    for t in reversed(range(values_BT.shape[1])):
        running_B = values_BT[:, t] + factor * running_B
        sums_BT[:, t] = running_B
    return sums_BT


def whiten(advantages_BT: Tensor, action_mask_BT: Tensor, *, std_norm: bool) -> Tensor:
    """Shift by the mean over all sampled tokens of the batch and, if `std_norm`, divide by their deviation.

        A'_t = (A_t - mean) / sqrt(max(var, 1e-8)),  var = mean((A - mean)^2)

    Mirrors the end of OpenRLHF `compute_advantages_and_returns`; long trajectories weigh more, as there.
    """
    num_actions = action_mask_BT.sum().clamp(min=1)
    mean = keep_actions(advantages_BT, action_mask_BT).sum() / num_actions
    centred_BT = keep_actions(advantages_BT - mean, action_mask_BT)
    if not std_norm:
        return centred_BT
    variance = centred_BT.square().sum() / num_actions
    # Without the floor a batch of equal rewards, whose deviation is rounding alone, would become advantages of size 1.
    return centred_BT * variance.clamp(min=1e-8).rsqrt()


def from_returns(shaped_B: Tensor, batch: AdvantageInput, *, gamma: float = 1.0) -> AdvantageOutput:
    """Advantage = discounted return of the shaped reward: the REINFORCE family before whitening.

    A_t = G_t = sum_{k >= t} gamma^(k-t) r_k, with r of `token_rewards`.
    """
    rewards_BT = token_rewards(shaped_B, batch)
    returns_BT = keep_actions(discounted_sum(rewards_BT, gamma), batch.action_mask_BT)
    return AdvantageOutput(advantages_BT=returns_BT, returns_BT=returns_BT, rewards_B=rewards_BT.sum(1))


# Statistics over the rollouts of one task, given as a group number per row.
#
# Tensor methods only, so that estimators import without torch. Invariant: a group whose values are all equal, and a
# group of one, deviate from their mean by exactly 0.


def group_sum(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Sum over each row's group, repeated at each of its rows."""
    index_B, num_groups = _index_groups(group_B)
    return values_B.new_zeros(num_groups).index_add(0, index_B, values_B)[index_B]


def group_size(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Number of rows in each row's group, in the dtype of `values_B`."""
    return group_sum(values_B.new_ones(values_B.shape), group_B)


def group_mean(values_B: Tensor, group_B: Tensor) -> Tensor:
    """Mean over each row's group, repeated at each of its rows."""
    return group_sum(values_B, group_B) / group_size(values_B, group_B)


def group_deviation(values_B: Tensor, group_B: Tensor) -> Tensor:
    """`r_i - mean(r)` over each row's group.

    Departure from OpenRLHF, which subtracts the rounded mean: there eight equal float32 rewards of 0.1 leave a
    residue of 7e-9 that its division by a standard deviation of the same size turns into an advantage of -0.83.
    Here the group's least value goes first, which leaves equal values exactly 0.
    """
    above_B = values_B - group_least(values_B, group_B)
    return above_B - group_mean(above_B, group_B)


def group_least(values_B: Tensor, group_B: Tensor) -> Tensor:
    """The least value of each row's group, repeated at each of its rows."""
    index_B, num_groups = _index_groups(group_B)
    least_P = values_B.new_zeros(num_groups).scatter_reduce(0, index_B, values_B, "amin", include_self=False)
    return least_P[index_B]


def ranks_in_groups(values_B: Tensor, group_B: Tensor) -> Iterator[Tensor]:
    """The rows of each group, int64, by ascending value."""
    index_B, num_groups = _index_groups(group_B)
    order_B = values_B.argsort(stable=True)
    for group in range(num_groups):
        yield order_B[index_B[order_B] == group]


def group_std(values_B: Tensor, group_B: Tensor) -> Tensor:
    """`sqrt(sum((r_i - mean(r))^2) / (n - 1))` over each row's group of n; 0 for a group of one."""
    squares_B = group_sum(group_deviation(values_B, group_B).square(), group_B)
    return (squares_B / (group_size(values_B, group_B) - 1).clamp(min=1)).sqrt()


def _index_groups(group_B: Tensor) -> tuple[Tensor, int]:
    """Any group numbers as 0 .. P-1 per row, and P."""
    keys_P, index_B = group_B.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return index_B, len(keys_P)


# Reductions under a mask that hold where the mask is empty and where what it hides is no number.


def zero_outside(values_BT: Tensor, loss_mask_BT: Tensor) -> Tensor:
    """`values_BT` where the mask is true; 0, without gradient, elsewhere. Filled, not multiplied: NaN * 0 is NaN."""
    return values_BT.masked_fill(~loss_mask_BT.bool(), 0.0)


def masked_mean(values_BT: Tensor, loss_mask_BT: Tensor, dim: int | None = None) -> Tensor:
    """Mean over the true positions, of everything or along `dim`; 0 where there is none."""
    inside_BT = zero_outside(values_BT, loss_mask_BT)
    if dim is None:
        return inside_BT.sum() / loss_mask_BT.sum().clamp(min=1)
    return inside_BT.sum(dim=dim) / loss_mask_BT.sum(dim=dim).clamp(min=1)
