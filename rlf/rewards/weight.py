"""How much a term counts: a number, or a number that moves over the steps of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from rlf.core.kinds import StrictModel


class WeightCurve(StrEnum):
    """How a weight goes from one number to the other."""

    LINEAR = "linear"
    """In equal parts."""
    COSINE = "cosine"
    """Slowly at both ends: half a turn of a cosine."""


class WeightSchedule(StrictModel, populate_by_name=True):
    """A weight that starts at `from` in step 1 and is `to` after `steps` more, and from then on."""

    schedule: WeightCurve
    start: float = Field(alias="from", allow_inf_nan=False)
    """Weight in step 1, and in evaluations before it."""
    end: float = Field(alias="to", allow_inf_nan=False)
    """Weight from step `steps` + 1 on."""
    steps: int = Field(ge=1)
    """Steps that the change takes."""

    def at(self, step: int) -> float:
        """The weight in a step, which counts from 1.

        With x = (step - 1) / steps within 0 and 1: linear from + (to - from) x, cosine
        from + (to - from) (1 - cos(pi x)) / 2.
        """
        share = min(1.0, max(0, step - 1) / self.steps)
        if self.schedule is WeightCurve.COSINE:
            share = (1 - math.cos(math.pi * share)) / 2
        return self.start + (self.end - self.start) * share


_NUMBER = TypeAdapter(Annotated[float, Field(allow_inf_nan=False)])


def _of_its_form(value: Any, handler: ValidatorFunctionWrapHandler) -> float | WeightSchedule:
    """A mapping is read as a schedule and all else as a number, so that a fault is about one of them."""
    if isinstance(value, Mapping | WeightSchedule):
        return WeightSchedule.model_validate(value)
    return _NUMBER.validate_python(value)


Weight = Annotated[float | WeightSchedule, WrapValidator(_of_its_form)]
