"""The limits of one tool: time, concurrency, rate, retries, output."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rlf.core.kinds import StrictModel

MAX_ABANDONED = 64
"""Calls of one tool that may be left behind, still running, before it is quarantined: refused at once."""


class LimitScope(StrEnum):
    """Whose calls count together: for `max_concurrency`, `rate`, the breaker, and a cache of `scope: run`."""

    PROCESS = "process"
    """Those of one process that samples; a job on a cluster has one for each copy of the model."""
    JOB = "job"
    """Those of the whole run: one process of a job on a cluster opens the tool and runs the calls of all others. For a
    tool of an agent, write it in the agent's limits."""


class RateSpec(StrictModel):
    """How often calls may start; each attempt counts. Calls beyond it wait, they are not refused."""

    per_second: int | None = Field(default=None, ge=1)
    """Starts within any second."""
    per_minute: int | None = Field(default=None, ge=1)
    """Starts within any minute."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Tokens that calls report to have used; no call starts while the last minute's have reached it."""


class BreakerSpec(StrictModel):
    """When a tool that does not answer is left alone for a while."""

    failures: int = Field(default=20, ge=1)
    """Calls in a row that did not get through or timed out, after which further ones are refused at once."""
    timeouts: bool = True
    """Whether calls that time out count; false for tools whose arguments decide how long they take."""
    pause_s: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Time until one call is let through to try; its end opens or closes the breaker again."""


class Limits(StrictModel):
    """Limits of one tool, set by its declaration alone: no argument of a call can change them."""

    scope: LimitScope = LimitScope.PROCESS
    timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Time from permit to result, retries and pauses included; waiting for the permit is not counted."""
    max_concurrency: int = Field(default=64, ge=1)
    """Calls of this tool that run at once; the others wait for a permit, in turn by trajectory."""
    rate: RateSpec | None = None
    """None: calls start as soon as they have a permit."""
    retries: int = Field(default=0, ge=0)
    """Further attempts after a failed one. Needs `idempotent: true`."""
    breaker: BreakerSpec | None = BreakerSpec()
    """None lets every call through, however many failed."""
    max_output_chars: int = Field(default=4_000, ge=100)
    """Longest result the model is shown, the marker of a cut included."""
    max_output_tokens: int | None = Field(default=None, ge=50)
    """The same in tokens of the run's model; None: characters alone count."""
    max_images: int = Field(default=8, ge=0)
    """Images of one result; with more it is rejected."""
    max_image_bytes: int = Field(default=5_000_000, ge=1)
    """Size of one image's file; larger ones are rejected."""
    max_image_pixels: int = Field(default=16_000_000, ge=1)
    """Width times height of one image; larger ones are rejected before anything decodes them."""
