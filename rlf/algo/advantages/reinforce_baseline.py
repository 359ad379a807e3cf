"""REINFORCE++-baseline: the group's mean as the baseline, the batch's deviation as the scale."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation, whiten


class ReinforceBaseline(Estimator):
    """A_i = whiten(r_i - mean(r)): centred by the group, whitened over all sampled tokens of the batch.

    Hu 2025, REINFORCE++ (arXiv:2501.03262), the variant with a group baseline. Mirrors OpenRLHF's
    `reinforce_baseline`.
    """

    spans_batch: ClassVar[bool] = True
    needs_group: ClassVar[bool] = True

    std_norm: bool = True
    """False: subtract the batch mean but do not divide by the deviation (OpenRLHF's `no_std_norm`)."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Group-centred, batch-whitened advantages."""
        centred_B = group_deviation(at_least_float32(batch.rewards_B), batch.group_B)
        output = from_returns(centred_B, batch)
        whitened_BT = whiten(output.advantages_BT, batch.action_mask_BT, std_norm=self.std_norm)
        return replace(output, advantages_BT=whitened_BT)
