"""FlashREINFORCE: the batch's mean as the baseline, without groups and without whitening."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns


class FlashReinforce(Estimator):
    """A_i = r_i - mean of all rewards of the batch, meant for one rollout of each task.

    Mirrors OpenRLHF's `flash_reinforce`, which goes with `loss.correction: {level: seq, gating: binary_kl}`.
    """

    spans_batch: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Rewards less their mean."""
        rewards_B = at_least_float32(batch.rewards_B)
        return from_returns(rewards_B - rewards_B.mean(), batch)
