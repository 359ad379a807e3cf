"""`rule: efficiency`: calls, turns and tokens against a budget."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlf.core.kinds import wrong_value
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Efficiency(Rule):
    """min(1, budget / used), the least over the budgets that are named; 0 if nothing was called or answered.

    Within its budgets a trajectory has 1; twice over 0.5. It says nothing of being right: put `when:` before it.
    """

    sample: ClassVar[KnownSample] = KnownSample(
        gold={"answer": "Ann", "turns": [{"calls": [{"name": "search"}]}, {"text": "Ann"}]}, options={"calls": 2}
    )

    rule: Literal["efficiency"] = "efficiency"
    calls: int | None = Field(default=None, ge=1)
    """Tool calls; None: not counted."""
    turns: int | None = Field(default=None, ge=1)
    """Turns; None: not counted."""
    tokens: int | None = Field(default=None, ge=1)
    """Sampled tokens of all turns; None: not counted."""

    @model_validator(mode="after")
    def _has_a_budget(self) -> Self:
        if self.calls is self.turns is self.tokens is None:
            raise wrong_value("no budget is named; expected calls, turns or tokens. Write e.g. `calls: 4`.")
        return self

    def judge(self, trajectory: Trajectory) -> Verdict:
        if not (trajectory.calls or (trajectory.answer or "").strip()):
            return Verdict(0.0, "nothing was called or answered")
        used = {"calls": len(trajectory.calls), "turns": len(trajectory.turns), "tokens": trajectory.num_sampled}
        budgets = {name: budget for name in used if (budget := getattr(self, name)) is not None}
        value = min(min(1.0, budget / max(1, used[name])) for name, budget in budgets.items())
        return Verdict(value, ", ".join(f"{used[name]} of {budget} {name}" for name, budget in budgets.items()))
