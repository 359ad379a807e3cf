"""The base of every model that reads or writes what lies outside of Python."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class StrictModel(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def wrong_value(reason: str) -> PydanticCustomError:
    """The error of a validator whose whole text is the reason: what was there, what is allowed, what to write."""
    return PydanticCustomError("wrong_value", "{reason}", {"reason": reason})
