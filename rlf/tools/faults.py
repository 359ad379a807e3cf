"""What a spec says of disturbances: slow, failing, cut or noisy tools, other names, other schemas, on purpose."""

from __future__ import annotations

from pydantic import Field

from rlf.core.kinds import StrictModel


class Faults(StrictModel, allow_inf_nan=False):
    """Disturbances of tools and worlds, on purpose. Each share is drawn for every task or call by itself."""

    latency_s: float = Field(0.0, ge=0, le=60)
    """Seconds that each call takes longer."""
    timeouts: float = Field(0.0, ge=0, le=1)
    """Share of calls that are not carried out and answered by a time-out."""
    errors: float = Field(0.0, ge=0, le=1)
    """Share of calls that fail as those of an overloaded service; the same call may succeed when it is made again."""
    truncated: float = Field(0.0, ge=0, le=1)
    """Share of results of which the first half is left."""
    noisy: float = Field(0.0, ge=0, le=1)
    """Share of results that stand between lines of a log."""
    renamed: float = Field(0.0, ge=0, le=1)
    """Share of tasks whose tools and parameters have names without meaning; their descriptions stay."""
    nested: float = Field(0.0, ge=0, le=1)
    """Share of tasks in which a tool's parameters stand within one object, `request`, beside a required `version`."""
