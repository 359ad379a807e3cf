"""Tool calls and what comes back: the nouns that chat, tools, rollout, rewards and lineage share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from rlf.core.plain_json import Jsonable, frozen
from rlf.types.task import Image


class Outcome(StrEnum):
    """How a call ended. Exactly one per call, never an exception."""

    OK = "ok"
    """The tool answered."""
    TOOL_ERROR = "tool_error"
    """The tool refused the arguments or raised: the model reads why."""
    TIMEOUT = "timeout"
    """The deadline passed."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments do not satisfy inputSchema; nothing was invoked."""
    UNKNOWN_TOOL = "unknown_tool"
    """No declared tool has that name; nothing was invoked."""
    LIMIT_REACHED = "limit_reached"
    """The trajectory had no tool calls left; nothing was invoked."""
    UNREACHABLE = "unreachable"
    """The tool's process or host could not be reached; nothing was delivered."""
    RATE_LIMITED = "rate_limited"
    """The tool's host refused for load, beyond the retry budget."""
    CIRCUIT_OPEN = "circuit_open"
    """The tool failed too often lately; the call was refused at once."""
    SERVICE_ERROR = "service_error"
    """The service behind the tool failed (HTTP 5xx), refused its caller's key, or sent what is no answer."""
    GONE = "gone"
    """What answers at the service's address has refused every request for a while, or is none: waiting is in vain."""
    CANCELLED = "cancelled"
    """The trajectory was cancelled while the call ran, or waited to."""
    UNKNOWN = "unknown"
    """The call may or may not have been delivered; it is tried again only where the tool is declared idempotent."""
    OUTPUT_REJECTED = "output_rejected"
    """The result breaks outputSchema or cannot be shown to a model."""
    INFRA = "infra"
    """rlf's own machinery failed."""

    __hash__ = str.__hash__  # every call is counted by its outcome; Enum's own is a function in Python

    @property
    def is_invalid_call(self) -> bool:
        """Whether the call, as the model wrote it, reaches no tool."""
        return self in (Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN_TOOL)

    @property
    def is_infrastructure(self) -> bool:
        """Whether the outcome says nothing about the policy, so that the trajectory is unscorable."""
        return self in _INFRASTRUCTURE


_INFRASTRUCTURE = frozenset(
    {
        Outcome.UNREACHABLE,
        Outcome.RATE_LIMITED,
        Outcome.CIRCUIT_OPEN,
        Outcome.SERVICE_ERROR,
        Outcome.GONE,
        Outcome.CANCELLED,
        Outcome.UNKNOWN,
        Outcome.INFRA,
    }
)


@frozen
class ToolCall:
    """One call as the model wrote it."""

    name: str
    arguments: Mapping[str, Any]


@frozen
class Attempt:
    """One try at running a call; a call has several only when its tool is declared idempotent."""

    outcome: Outcome
    run_s: float
    error: str | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    """What this try used up, by unit, however it ended."""


@frozen
class ToolOutput:
    """A tool's output, in MCP's terms, before any budget."""

    text: str
    images: tuple[Image, ...] = ()
    structured: Any = None
    """MCP's structuredContent, as JSON values; None when there is none."""
    is_error: bool = False
    """The tool itself says that the call failed; `text` says why."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """What the call used up, by unit: `prompt_tokens`, `completion_tokens`, `cost_usd`, `cpu_s` ..."""
    isolation: str = ""
    """Where this call ran, when that differs from the runtime's own word."""


@frozen
class ToolResult(Jsonable):
    """The result of a call."""

    outcome: Outcome
    text: str
    """What the model reads: the result, or the error in words it can act on."""
    attempts: tuple[Attempt, ...] = ()
    queue_s: float = 0.0
    """Time spent waiting for a permit."""
    run_s: float = 0.0
    """Time spent in attempts and pauses between them."""
    cached: bool = False
    truncated: bool = False
    """Whether `text` was cut to the output budget."""
    size_bytes: int = 0
    """Size of the whole result before any cut, in UTF-8."""
    sha256: str = ""
    """Of the whole result in UTF-8, where it was cut; else empty."""
    original: str | None = None
    """The whole result, where it was cut and is small enough to keep."""
    coerced: bool = False
    """Whether arguments were made to fit inputSchema, as the tool's `coerce` allows."""
    isolation: str = ""
    """Where the call ran: `inline`, `thread`, `process`, ...; empty when nothing ran."""
    images: tuple[Image, ...] = ()
    structured: Any = None
    """MCP's structuredContent, as JSON values; None when there is none."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """What the call used up, by unit: all of its attempts; nothing where `cached`."""
    inner: tuple[InnerTurn, ...] = ()
    """The turns of an agent, also where it then failed or was cut off; empty for every other tool."""

    def as_cancellation(self) -> asyncio.CancelledError:
        """The cancellation of a call that reached its tool, with what it came to so far: see `carried_by`.

        What a call has spent, and what an agent did in it, is real also where its trajectory is given up. It travels as
        the argument: of a class of its own the cancellation would not be one for `asyncio.timeout` of Python 3.11,
        which compares the class itself, and the deadline around it would never become a TimeoutError.
        """
        return asyncio.CancelledError(self)

    @staticmethod
    def carried_by(cancelled: asyncio.CancelledError) -> ToolResult | None:
        """The result so far of a call that was cancelled; None where its tool was never reached."""
        return next((found for found in cancelled.args if isinstance(found, ToolResult)), None)


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A call that an agent's model made, and its result."""

    id: str
    """Unique among all calls of a run."""
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class InnerTurn:
    """One turn of an agent's model."""

    text: str
    """Its answer, without its thinking."""
    reasoning: str = ""
    finish_reason: str = ""
    """In the server's words."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """What asking the model used up; its calls have their own."""
    calls: tuple[InnerCall, ...] = ()
    failures: tuple[str, ...] = ()
    """Calls written as text that could not be read: the class of each failure."""


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as the model sees it, in MCP's own words."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    images: str | None = None
    """The argument that the trajectory's images go to; in the schema it is not."""
    takes_all: bool = False
    """Whether it takes all images, in their order; else the last one."""

    def as_openai(self) -> dict[str, Any]:
        """The OpenAI function form that chat templates take as `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.input_schema)}
        return {"type": "function", "function": function}


class ToolInvoker(Protocol):
    """The executor as the rollout loop needs it."""

    @property
    def descriptions(self) -> tuple[ToolDescription, ...]:
        """Every declared tool, in the order of the spec."""

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        """Runs one call to its end or its deadline; never raises for what a tool does.

        Raises:
            CancelledError: it was cancelled. Where the tool was reached, it carries the result so far, which
                `ToolResult.carried_by` reads.
        """

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Gives back what tools hold for a trajectory that is over: sessions, files, state."""
