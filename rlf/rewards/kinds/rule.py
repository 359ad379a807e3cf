"""`kind: rule`: a formula over the trajectory alone, named by `rule:`. Options of the rule are keys beside it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, Self

from pydantic import ModelWrapValidatorHandler, ValidationInfo, model_validator

from rlf.core import Registry
from rlf.core.kinds import chosen_kind
from rlf.rewards.term import Term, Verdict
from rlf.types import Trajectory


class Rule(Term):
    """A term that needs nothing but the record: pure, quick, the same every time."""

    kind: Literal["rule"] = "rule"
    rule: str
    """The formula's name."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_rule(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Rule:
        if cls is not Rule or isinstance(data, Rule):
            return handler(data)
        rule = chosen_kind(RULES, data, "rule")
        return rule.model_validate(data, context=info.context)

    @abstractmethod
    def judge(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a scorable trajectory."""

    async def score(self, trajectory: Trajectory) -> Verdict:
        """The rule's verdict; never waits."""
        return self.judge(trajectory)


RULES: Registry[Rule] = Registry(
    "rule",
    "rlf.rewards.rules",
    Rule,  # type: ignore[type-abstract]  # compared with, never instantiated
)
