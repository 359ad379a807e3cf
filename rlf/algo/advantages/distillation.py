"""Distillation: a teacher says of each token that the policy sampled whether it would have, rewards apart."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.algo.loss_config import at_least_float32
from rlf.algo.returns import keep_actions


class Distillation(Estimator):
    """A_t = min(max(log q_t - log p_t, -clip), clip);  q is the teacher, p the policy before the update.

    The gradient of the reverse KL of each token, estimated at the tokens that were sampled (Agarwal et al. 2024,
    arXiv:2306.13649, with samples of the policy alone). The teacher reads the trajectory's own tokens: another model
    (`teacher`), or the policy itself, shown what it does not see when it plays: a solution (arXiv:2601.19897) or what
    went wrong (arXiv:2601.20802). So it teaches also where all rollouts of a group fail. Rewards are not read.
    """

    needs_teacher: ClassVar[bool] = True

    teacher: str | None = None
    """A folder or Hugging Face id of a model with the policy's tokens; null: the policy as it was before it sampled,
    or as `train.kl.sync_every` moves it."""
    demonstrations: str | None = None
    """A file as `rlf demos` writes it: the teacher sees the solution of its question, by id or by words."""
    failures: bool | None = None
    """Whether the teacher of a trajectory sees what its tools, its parser and its reward terms say against it. null:
    where it is the policy and sees no demonstrations."""
    clip: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Bound of the log-ratio of a token, in nats."""

    @model_validator(mode="after")
    def _has_a_teacher(self) -> Self:
        if self.teacher is None and self.demonstrations is None and not self.shows_failures:
            raise ValueError(
                "the policy would be its own teacher and see nothing new. Write `teacher: MODEL`, "
                "`demonstrations: FILE`, or remove `failures: false`."
            )
        return self

    @property
    def shows_failures(self) -> bool:
        """Whether the teacher sees them."""
        return self.teacher is None and self.demonstrations is None if self.failures is None else self.failures

    def advantages(self, batch: AdvantageInput) -> AdvantageOutput:
        """Log-ratios, neither scaled nor whitened; 0 where the teacher says nothing."""
        assert batch.teacher_logprobs_BT is not None and batch.old_logprobs_BT is not None, "distillation of no teacher"
        actions_BT = batch.action_mask_BT.bool()
        ratio_BT = at_least_float32(batch.teacher_logprobs_BT) - at_least_float32(batch.old_logprobs_BT)
        advantages_BT = keep_actions(ratio_BT.nan_to_num(), actions_BT).clamp(-self.clip, self.clip)
        return AdvantageOutput(advantages_BT, advantages_BT, at_least_float32(batch.rewards_B))
