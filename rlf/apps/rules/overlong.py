"""`rule: overlong`: the soft overlong punishment of DAPO."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlf.core.kinds import wrong_value
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Overlong(Rule):
    """0 up to max_tokens - buffer_tokens sampled tokens, from there down in a line to -1 at max_tokens, and -1 beyond.

    Equation 13 of DAPO (Yu et al., 2025). What tools say is not counted: the policy has not chosen it.
    """

    sample: ClassVar[KnownSample] = KnownSample(
        gold={"answer": "Ann"}, best=0.0, malformed=0.0, options={"max_tokens": 512, "buffer_tokens": 128}
    )

    rule: Literal["overlong"] = "overlong"
    max_tokens: int = Field(ge=1)
    """Sampled tokens of all turns from which on it is -1; DAPO's L_max."""
    buffer_tokens: int = Field(ge=1)
    """Tokens before these on which it falls; DAPO's L_cache."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise wrong_value(
                f"got buffer_tokens: {self.buffer_tokens} above max_tokens: {self.max_tokens}. Write at most that."
            )
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """It only takes away."""
        return (-1.0, 0.0)

    def judge(self, trajectory: Trajectory) -> Verdict:
        n = trajectory.num_sampled
        into = n - (self.max_tokens - self.buffer_tokens)
        return Verdict(-min(max(into / self.buffer_tokens, 0.0), 1.0), f"{n} of {self.max_tokens} tokens sampled")
