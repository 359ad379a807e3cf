"""Tree-GRPO: rollouts that share turns, compared within their tree and with the whole group."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_mean
from rlf.apps.estimators.turns import normalize_over_group, spread_turns


class TreeGrpo(Estimator):
    """A_v = mean over the rollouts i through turn v of tree_coef N_tree(R_i) + N(R_i), on each token of v.

    N is (x - mean(x)) / (std(x) + 1e-9) over the group, N_tree the same over the rollouts that share their first turn.
    So the turns that a whole tree shares have the group's advantage alone, and a turn that one rollout sampled for
    itself has that rollout's. Without `rollout.tree` it is `grpo`.

    Ji et al. 2025 (arXiv:2509.21240) give a rollout the sum of both advantages. Departure: they train on whole
    rollouts, so a turn that n of them share is n times in the loss. It was sampled once; here it is there once, with
    the mean of the n advantages.
    """

    needs_group: ClassVar[bool] = True
    reads_turns: ClassVar[bool] = True

    tree_coef: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    """Weight of the advantage within the tree relative to the one within the group."""
    std_norm: bool = True
    """False: subtract means but divide by no deviation."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """The advantages of rollouts, then their means turn by turn, clipped by `reward_clip`."""
        rewards_B, turns = at_least_float32(batch.rewards_B), batch.turns
        leaf_B = normalize_over_group(rewards_B, batch.group_B, std_norm=self.std_norm)
        if turns is None or turns.node_BK is None:
            return from_returns(leaf_B, batch)
        node_BK = turns.node_BK
        within_B = normalize_over_group(rewards_B, node_BK[:, 0], std_norm=self.std_norm)
        leaf_B = leaf_B + self.tree_coef * within_B
        is_there_BK = leaf_B.new_ones(node_BK.shape).cumsum(1) <= turns.num_turns_B.unsqueeze(1)
        by_turn_BK = leaf_B.unsqueeze(1).expand(node_BK.shape).clone()
        by_turn_BK[is_there_BK] = group_mean(by_turn_BK[is_there_BK], node_BK[is_there_BK])
        penalties_BT = from_returns(leaf_B.new_zeros(leaf_B.shape), batch).advantages_BT
        advantages_BT = penalties_BT + spread_turns(by_turn_BK, batch)
        return AdvantageOutput(advantages_BT, advantages_BT, from_returns(leaf_B, batch).rewards_B)
