"""Advantages of turns: returns to go that are normalised among turns alike, and spread over their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import discounted_sum, group_deviation, group_std, keep_actions

if TYPE_CHECKING:
    from torch import Tensor

    from rlf.algo.estimator import AdvantageInput, TurnRewards


def normalize_over_group(values_B: Tensor, group_B: Tensor, *, std_norm: bool = True) -> Tensor:
    """`(x - mean(x)) / (std(x) + 1e-9)` over each row's group; without `std_norm` not divided."""
    deviation_B = group_deviation(values_B, group_B)
    return deviation_B / (group_std(values_B, group_B) + 1e-9) if std_norm else deviation_B


def normal_returns(
    turns: TurnRewards, key_BK: Tensor, gamma: float, *, with_outcome: bool, std_norm: bool = True
) -> Tensor:
    """Returns to go of turns, normalized over all turns of equal keys, as [B, K]; 0 where there is no turn.

    G_ik = sum_{l >= k} gamma^(l-k) r_il, with the outcome, if `with_outcome`, in the reward of the last turn.
    """
    rewards_BK, last_B1 = at_least_float32(turns.rewards_BK), (turns.num_turns_B - 1).clamp(min=0).unsqueeze(1)
    is_there_BK = rewards_BK.new_ones(rewards_BK.shape).cumsum(1) <= turns.num_turns_B.unsqueeze(1)
    rewards_BK = rewards_BK.masked_fill(~is_there_BK, 0.0)
    if with_outcome:
        rewards_BK = rewards_BK.scatter_add(1, last_B1, turns.outcome_B.to(rewards_BK.dtype).unsqueeze(1))
    to_go_BK = discounted_sum(rewards_BK, gamma)
    normal_BK = rewards_BK.new_zeros(rewards_BK.shape)
    normal_BK[is_there_BK] = normalize_over_group(to_go_BK[is_there_BK], key_BK[is_there_BK], std_norm=std_norm)
    return normal_BK


def keys_by_turn(turns: TurnRewards, group_B: Tensor) -> Tensor:
    """One key for each turn, by its number, of each group: [B, K]."""
    _, index_B = group_B.unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    num_turns = turns.rewards_BK.shape[1]
    key_BK: Tensor = index_B.unsqueeze(1) * num_turns + index_B.new_ones(num_turns).cumsum(0) - 1
    return key_BK


def spread_turns(by_turn_BK: Tensor, batch: AdvantageInput) -> Tensor:
    """Advantages of turns, clipped, on each token that was sampled in them: [B, T]."""
    assert batch.turns is not None, "advantages of turns need turns"
    if batch.reward_clip is not None:
        by_turn_BK = by_turn_BK.clamp(*batch.reward_clip)
    return keep_actions(by_turn_BK.gather(1, batch.turns.turn_BT), batch.action_mask_BT)
