"""The base of every part of a spec: frozen, and an unknown key is a fault."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping of the YAML whose keys are the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
