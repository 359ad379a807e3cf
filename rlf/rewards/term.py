"""What a reward term is: one number about one trajectory, or a reason why there is none.

`Term.model_validate(mapping, context={"folder": Path})` builds the class of the mapping's `kind`; faults carry the
YAML key path as `loc`. A term knows nothing of other terms: weighting and summing live in `rlf.rewards.function`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)

from rlf.core import Registry
from rlf.core.kinds import chosen_kind
from rlf.types import Trajectory


class Verdict(NamedTuple):
    """What a term says of a trajectory."""

    value: float | None
    """None: the term cannot score this trajectory, which is never the same as 0."""
    reason: str = ""
    """Why, in words for a person who reads the trace."""


class Term(BaseModel, ABC):
    """One term of the reward. Fields are its YAML keys; validating a mapping gives the class of its `kind`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    needs_answer: ClassVar[bool] = False
    """Whether a task without a gold answer is unscorable."""

    kind: str
    """What decides the term's value."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    """What the term is called in scores and metrics; unique within a spec."""
    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Factor of the term's value in the reward. 0 reports the term without training on it."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Term:
        if cls is not Term or isinstance(data, Term):
            return handler(data)
        kind = chosen_kind(TERM_KINDS, data)
        return kind.model_validate(data, context=info.context)

    def prepare(self) -> None:
        """Makes the term ready, once, before the first score. Raises RlfError when it cannot be used."""

    @abstractmethod
    async def score(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a scorable trajectory. What it raises counts as no verdict."""


TERM_KINDS: Registry[Term] = Registry(
    "reward kind",
    "rlf.rewards.kinds",
    Term,  # type: ignore[type-abstract]  # compared with, never instantiated
)
