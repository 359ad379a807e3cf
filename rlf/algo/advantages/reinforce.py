"""REINFORCE++: discounted returns, whitened over the batch; needs neither group nor critic."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, whiten


class Reinforce(Estimator):
    """A_t = whiten(sum_{k >= t} gamma^(k-t) r_k) over all sampled tokens of the batch.

    Hu 2025, REINFORCE++ (arXiv:2501.03262), section 3. Mirrors OpenRLHF's `reinforce`.
    """

    spans_batch: ClassVar[bool] = True

    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token; observation tokens count as steps."""
    std_norm: bool = True
    """False: subtract the batch mean but do not divide by the deviation (OpenRLHF's `no_std_norm`)."""

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Whitened discounted returns."""
        output = from_returns(at_least_float32(batch.rewards_B), batch, gamma=self.gamma)
        whitened_BT = whiten(output.advantages_BT, batch.action_mask_BT, std_norm=self.std_norm)
        return replace(output, advantages_BT=whitened_BT)
