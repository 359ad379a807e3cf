"""Dr. GRPO: GRPO without the division by the group's deviation, which favours questions of little spread."""

from __future__ import annotations

from typing import ClassVar

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import from_returns, group_deviation


class DrGrpo(Estimator):
    """A_i = r_i - mean(r) over the group, the same on each token of trajectory i.

    Liu et al. 2025 (arXiv:2503.20783), section 3.2. Mirrors OpenRLHF's `dr_grpo`. The paper's other half, a loss
    divided by a constant instead of the number of tokens, belongs to the aggregation and is not OpenRLHF's.
    """

    needs_group: ClassVar[bool] = True

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Mean-centred advantages, neither scaled nor whitened."""
        return from_returns(group_deviation(at_least_float32(batch.rewards_B), batch.group_B), batch)
