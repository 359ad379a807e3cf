"""Kinds of tools: the keys of `target:`, and a runtime that answers calls.

A kind is one file of `rlf.tools.kinds`. It knows how to reach its tool and nothing of limits, caches or models:
those are the executor's, the same for every kind.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Field

from rlf.core import Registry
from rlf.core.clocks import Deadline
from rlf.core.kinds import Kind, StrictModel
from rlf.core.meter import Meter
from rlf.types import InnerTurn, ToolDescription, ToolOutput

# The limits of one tool: time, concurrency, rate, retries, output.

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


NO_METER: Final = Meter()
NO_DEADLINE: Final = Deadline(inf)


class CallOrigin(NamedTuple):
    """Who makes a call: the policy in a trajectory, or an agent's model within a call of it."""

    trajectory_id: str
    depth: int = 0
    """Number of agent tools that the call is made inside of."""
    call_id: str = ""
    """Of the agent's call that it is made inside of; empty at depth 0."""
    meter: Meter | None = None
    """Counts what the call spends, beside the run's own."""


class CallContext(NamedTuple):
    """The circumstances of a call: all that a runtime knows beside its arguments."""

    trajectory_id: str
    """Names the state of tools that keep some from call to call."""
    deadline_s: float
    """Time left; the caller cancels the call after it, whether or not the runtime heeds it itself."""
    depth: int = 0
    """Number of agent tools that this call is made inside of."""
    idempotent: bool = False
    """Whether the declaration says that calling twice does no more than calling once."""
    wants_json: bool = False
    """Whether the declaration has an outputSchema, which takes JSON alone."""
    call_id: str = ""
    """Names the call among all of its run, those inside of agents' calls included."""
    meter: Meter = NO_METER
    """Takes what the call spends, as it does: counted also where the call fails or is cut off."""
    deadline: Deadline = NO_DEADLINE
    """Stands still, `with deadline.waiting()`, while the call waits its turn in a queue of the runtime's own."""
    inner: list[InnerTurn] | None = None
    """Takes the turns of an agent as they end: recorded also where the call fails or is cut off."""


class ToolRuntime(ABC):
    """An open tool. One runtime serves every call of a run, many at once."""

    isolation: str
    """Where calls run: `inline`, `thread`, `process`, `remote`, or the level of a sandbox."""
    ends_when_cancelled: bool = False
    """Whether calls run none of the tool's code on the loop, so that none can swallow its cancellation."""
    ends_in_time: bool = False
    """Whether calls also end by themselves within the time that they are given."""
    answers_once: bool = False
    """Whether a call that was carried out may be refused when it is made again, as a second deletion is."""
    names_calls: bool = False
    """Whether calls make others, whose names begin with theirs."""

    @property
    def num_abandoned(self) -> int:
        """Calls that were given up while their work could not be stopped and still runs."""
        return 0

    async def make_ready(self, trajectory_id: str) -> None:  # noqa: B027 - most tools need nothing
        """Starts what the next call needs, within a time of its own: awaited right before, and not the call's time.

        Raises:
            ToolFailure: it cannot be started.
        """

    @abstractmethod
    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call.

        Raises:
            ToolFailure: the call failed in a way that the kind can name.
            BaseException: anything else that the tool raises; the model reads its type and text. From a runtime whose
                isolation is `remote` it is a failure of the infrastructure.
        """

    async def end_trajectory(self, trajectory_id: str) -> None:  # noqa: B027 - most tools hold nothing
        """Gives back what is held for one trajectory; called once for each, also for those that made no call."""

    @cached_property
    def held(self) -> AsyncExitStack:
        """All that the tool holds while it is open, for `close` to give back."""
        return AsyncExitStack()

    async def close(self) -> None:
        """Gives back what the tool holds. Does not wait for abandoned calls."""
        await self.held.aclose()


class ToolKind(Kind, ABC):
    """The `target:` of a declaration. Fields are its YAML keys; validating a mapping gives the class of its `kind`."""

    chosen_by: ClassVar[str] = "kind"
    kind: str
    """How the tool is reached."""
    shares_permits: ClassVar[bool] = False
    """Whether all tools of this kind together run no more calls at once than one of them may."""
    is_played_back: ClassVar[bool] = True
    """Whether a replay answers its calls from the recording."""
    is_local: ClassVar[bool] = False
    """Whether calls stay on this machine, so that `rlf rewards attack` makes them; it reports tools that it leaves."""

    @property
    def code_files(self) -> Sequence[str]:
        """Files of code that it runs, beside callables."""
        return ()

    @property
    def data_files(self) -> Sequence[str]:
        """Files that it reads."""
        return ()

    @abstractmethod
    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Reasons why calls that satisfy `input_schema` do not reach the tool; empty when all is well.

        Raises:
            RlfError: the tool cannot even be looked at, for instance because its import fails.
        """

    def static_complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Those of `complaints` that are known without running code of others: all of it, for a kind that runs none."""
        return self.complaints(input_schema)

    async def prepare(self) -> None:
        """Waits for what `complaints` needs of elsewhere, so that it holds up no loop. Raises RlfError."""
        return

    @abstractmethod
    def source_hash(self) -> str:
        """sha256 of what decides the tool's answers, as far as it can be known: part of cache keys and lineage."""

    def described(self) -> ToolDescription | None:
        """What the target says of itself, for a declaration that does not; None where only a declaration can.

        Raises RlfError.
        """
        return None

    def contained(self) -> ToolKind:
        """The same target where no call can end this process, unless the declaration asks for another place."""
        return self

    def concurrency(self, limits: Limits) -> int:
        """Calls that can run at once, within `limits`: the others wait for a permit before their time counts."""
        return limits.max_concurrency

    async def unreachable(self) -> str | None:
        """Why the tool cannot answer; None where it can, and where only a call can show it."""
        return None

    @abstractmethod
    async def open(self, limits: Limits) -> ToolRuntime:
        """Makes the tool ready for calls. Raises RlfError when it cannot be."""


TOOL_KINDS: Registry[ToolKind] = Registry(
    "tool kind",
    "rlf.tools.kinds",
    ToolKind,  # type: ignore[type-abstract]  # compared with, never instantiated
)

# Things that all tools of an event loop share, such as a server's sessions: opened by the first, ended by the last.

T = TypeVar("T")


class SharedThings(Generic[T]):
    """`async with shared.use(key, open_) as thing`: one thing for each loop and key."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Kept[T]]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self, key: Hashable, open_: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """The thing, opened where nobody else has it open. Raises what opening raises."""
        of_loop = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        kept = of_loop.setdefault(key, _Kept())
        kept.num_users += 1
        try:
            async with kept.opening:
                if kept.thing is None:
                    kept.thing = await kept.stack.enter_async_context(open_())
                thing = kept.thing
            yield thing
        finally:
            kept.num_users -= 1
            if not kept.num_users:
                del of_loop[key]
                await kept.stack.aclose()


class _Kept(Generic[T]):
    """A thing and the number of those who use it."""

    def __init__(self) -> None:
        self.num_users = 0
        self.opening = asyncio.Lock()
        """One of the users opens it, the others wait for that."""
        self.thing: T | None = None
        self.stack = AsyncExitStack()


# What a spec says of disturbances: slow, failing, cut or noisy tools, other names, other schemas, on purpose.


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
