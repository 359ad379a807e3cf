"""What one tool may cost: time, concurrency, retries, output."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MAX_ABANDONED = 64
"""Calls of one tool that may be left behind, still running, before it is quarantined: refused at once."""


class Limits(BaseModel):
    """Limits of one tool, set by its declaration alone: no argument of a call can change them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Time from permit to result, retries and pauses included; waiting for the permit is not counted."""
    max_concurrency: int = Field(default=64, ge=1)
    """Calls of this tool that run at once; the others wait for a permit."""
    retries: int = Field(default=0, ge=0)
    """Further attempts after a failed one. Needs `idempotent: true`."""
    max_output_chars: int = Field(default=4_000, ge=100)
    """Longest result the model is shown, the marker of a cut included."""
