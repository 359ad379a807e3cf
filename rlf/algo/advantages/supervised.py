"""Supervised steps: what is good enough is imitated, and the rest is left out."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import keep_actions


class Supervised(Estimator):
    """A = N / K on every token of the trajectories with r >= min_reward, 0 on others; K of the batch's N sampled tokens
    are theirs.

    With `train.loss: {kind: gpg}` the loss is their mean cross-entropy per token. On demonstrations
    (`data.demonstrations`), which all are kept, this is supervised fine-tuning; on the policy's own rollouts it is
    expert iteration: sample, keep, imitate (RAFT, arXiv:2304.06767; ReST-EM, arXiv:2312.06585).
    """

    spans_batch: ClassVar[bool] = True
    min_reward: float = 1.0
    """The reward from which a trajectory is imitated. 1 is success by one term of weight 1."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """One weight for all kept tokens; nothing is compared."""
        rewards_B = at_least_float32(batch.rewards_B)
        kept_B = (rewards_B >= self.min_reward).to(rewards_B.dtype)
        actions_BT = batch.action_mask_BT.bool()
        kept_BT = keep_actions(kept_B.unsqueeze(1).expand(actions_BT.shape), actions_BT)
        weights_BT = kept_BT * (actions_BT.sum() / kept_BT.sum().clamp(min=1))
        return AdvantageOutput(
            weights_BT, keep_actions(rewards_B.unsqueeze(1).expand_as(kept_BT), actions_BT), rewards_B
        )
