"""`kind: rule`: a formula over the trajectory alone, named by `rule:`. Options of the rule are keys beside it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rlf.core import Registry, UnknownKind
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
        rule = RULES.get(_Head.model_validate(data).rule)
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


class _Head(BaseModel):
    """The one key that decides which class reads the others."""

    rule: str

    @field_validator("rule")
    @classmethod
    def _is_known(cls, rule: str) -> str:
        try:
            RULES.get(rule)
        except UnknownKind as fault:
            raise PydanticCustomError("unknown_kind", "{reason}", {"reason": str(fault)}) from fault
        return rule
