"""What the agents of a job share: groups and steps, tools with `limits.scope: job`, and evaluations that play ahead.

OpenRLHF reports neither groups nor steps to its agents. The samples of a row are started together on one actor, so that
their order gives each its position. Which step a row is for follows from how many groups are complete: OpenRLHF draws
`prompts_per_step` rows, waits for all of them, and draws the next. The actors of a job count their complete groups
together, in a Ray actor of their own, and with them the trajectories that are left out.

Another Ray actor opens the shared tools and runs the calls of all agents, so that their permits, rates, breakers and
caches are those of the whole job. Results come back whole, as if the tool had been called here; a call whose process
ends is of unknown outcome, and is not sent again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from statistics import fmean
from typing import Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.redact import Redactor
from rlf.plan import plan_from_json
from rlf.rewards.function import RewardFunction
from rlf.spec.model_files import model_location
from rlf.spec.models import FilterSpec, RunSpec
from rlf.tools.execution.executor import Executor
from rlf.tools.execution.open_tool import refused_call
from rlf.tools.kind import LimitScope
from rlf.training.counting import counts, is_kept
from rlf.training.outages import Broken, find_excess
from rlf.types import Outcome, ToolCall, ToolDescription, ToolInvoker, ToolResult
from rlf.types.score import Scored

_GRID = 2**14


def round_reward(reward: float) -> float:
    """A reward as OpenRLHF gets it: rounded to the nearest multiple of 2^-14.

    Its group mean of equal float32 rewards such as 0.1 is off by a rounding, which `group_norm` divides by a standard
    deviation of the same size: advantages near 1 for a group in which all did equally well. Multiples of 2^-14 below
    16 add up exactly over groups of 64, so that such a group's advantages are 0.
    """
    return round(reward * _GRID) / _GRID


def filler(rewards: Sequence[float]) -> float:
    """OpenRLHF's reward of a trajectory that does not count: the mean of its group's others; 0 without others."""
    return round_reward(fmean(rewards)) if rewards else 0.0


class Group:
    """The samples of one row."""

    def __init__(self, size: int, reward: RewardFunction | None = None) -> None:
        """Nobody has joined.

        Args:
            reward: settles the whole group; None where what it gets is settled.
        """
        self._size = size
        self._reward = reward
        self._num_joined = 0
        self._num_left = 0
        self._scored: list[Scored] = []
        self._over = asyncio.Event()
        self._step: int | None = None
        self._asking = asyncio.Lock()

    def join(self) -> int:
        """The position of the next sample."""
        self._num_joined += 1
        return self._num_joined - 1

    def leave(self, scored: Scored | None) -> bool:
        """Records the outcome of one sample, None for one that broke; returns whether it was the last."""
        self._num_left += 1
        if scored is not None:
            self._scored.append(scored)
        if self._num_left == self._size:
            if self._reward is not None and self._scored and self._step is not None:
                self._scored = self._reward.settle(self._scored, step=self._step)
            self._over.set()
        return self._num_left == self._size

    async def step(self, steps: StepCount) -> int:
        """The step that the row is for, asked once: no later one is drawn while its group is incomplete."""
        if self._step is None:
            async with self._asking:
                if self._step is None:
                    self._step = await steps.step()
        return self._step

    async def settled(self, trajectory_id: str) -> Scored:
        """A sample that has left, as it counts in the whole group; returns when every sample has left."""
        await self._over.wait()
        return next(item for item in self._scored if item.trajectory.id == trajectory_id)

    @property
    def rewards(self) -> list[float]:
        """As OpenRLHF gets them, of the samples that count: what dynamic filtering decides by."""
        rewards = [item.reward for item in self._scored if counts(item)]
        return [round_reward(reward) for reward in rewards if reward is not None]

    @property
    def filler(self) -> float:
        """The reward that OpenRLHF gets for samples that do not count, once the group is complete."""
        return filler(self.rewards)


class Tally:
    """The shared counter of a job's agents."""

    def __init__(self) -> None:
        self._num_complete = 0
        self._claimed = False
        self._left_out: defaultdict[str, list[Broken]] = defaultdict(list)

    def add(self) -> None:
        """Counts a complete group."""
        self._num_complete += 1

    def count(self) -> int:
        """Complete groups so far."""
        return self._num_complete

    def claim(self) -> bool:
        """True for the first caller."""
        first, self._claimed = not self._claimed, True
        return first

    def leave_out(self, collection: str, num_all: int, broken: Broken, down: Collection[str]) -> bool:
        """Whether a step or an evaluation of so many trajectories can be made without one more; counts it then."""
        left = self._left_out[collection]
        if find_excess([*left, broken], num_all, down) is not None:
            return False
        left.append(broken)
        return True


class StepCount:
    """The steps of an attempt, over all its actors."""

    def __init__(
        self, *, first_step: int, groups_per_step: int, filtering: FilterSpec | None, tally: Tally | None = None
    ) -> None:
        """Joins a tally; None: the one of this Ray job, or one of its own in a process that is no part of any."""
        self._first_step = first_step
        self._groups_per_step = groups_per_step
        self._filtering = filtering
        self._tally: Any = tally or Tally()
        ray = sys.modules.get("ray")
        self._elsewhere = tally is None and ray is not None and ray.is_initialized()
        if self._elsewhere:
            assert ray is not None, "a Ray job without Ray"
            options = {"name": "rlf-tally", "get_if_exists": True, "num_cpus": 0}  # the name is of this job alone
            self._tally = ray.remote(Tally).options(**options).remote()

    async def step(self) -> int:
        """The step that rows are drawn for now."""
        num_complete: int = await self._ask("count")
        return self._first_step + num_complete // self._groups_per_step

    async def add(self, group: Group) -> None:
        """Counts a complete group, unless dynamic filtering drops it: then OpenRLHF draws another in its place."""
        if is_kept(group.rewards, self._filtering):
            await self._ask("add")

    async def claim(self) -> bool:
        """True for the first actor that asks."""
        return bool(await self._ask("claim"))

    async def leave_out(self, collection: str, num_all: int, broken: Broken, down: Collection[str]) -> bool:
        """Whether a step or an evaluation can be made without one more trajectory, over all actors."""
        return bool(await self._ask("leave_out", collection, num_all, broken, tuple(down)))

    async def _ask(self, what: str, *about: Any) -> Any:
        method = getattr(self._tally, what)
        return await method.remote(*about) if self._elsewhere else method(*about)


logger = logging.getLogger(__name__)

_NAME = "rlf-tools"
_MAX_CALLS = 100_000
"""At once: more than any job's; the tools' own limits count."""


class SharedTools:
    """Runs calls for every agent of a job."""

    def __init__(self, plan_text: str, secrets: Collection[str]) -> None:
        """Opens nothing yet.

        Args:
            secrets: names of variables whose values are struck out, beside those whose names say so.
        """
        spec = plan_from_json(plan_text).spec
        tools = [tool for tool in spec.tools if tool.limits.scope is LimitScope.JOB]
        tools = [tool.model_copy(update={"target": tool.target.contained()}) for tool in tools]
        counts = any(tool.limits.max_output_tokens is not None for tool in tools)
        tokenizer = load_tokenizer(model_location(spec.model.path)) if counts else None
        self._executor = Executor(
            tools,
            seed=spec.seed,
            redact=Redactor(os.environ, secrets).text,
            count_tokens=None if tokenizer is None else lambda text: len(tokenizer.encode(text)),
            notify=lambda level, text: logger.log(logging.getLevelNamesMapping()[level.upper()], "%s", text),
        )
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._tools: ToolInvoker | None = None

    async def invoke(self, call: ToolCall, trajectory_id: str) -> ToolResult:
        """Runs one call to its end or its deadline."""
        return await (await self._open()).invoke(call, trajectory_id=trajectory_id)

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Releases what tools hold for a finished trajectory."""
        await (await self._open()).end_trajectory(trajectory_id)

    async def close(self) -> None:
        """Closes the tools. Ray kills the actor instead, at the end of the job."""
        await self._stack.aclose()

    async def _open(self) -> ToolInvoker:
        async with self._opening:
            if self._tools is None:
                await self._stack.enter_async_context(self._executor)
                self._tools = self._executor.for_rewards
            return self._tools


class RemoteTools:
    """The agents' side. A `ToolInvoker`."""

    descriptions: tuple[ToolDescription, ...] = ()

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        """Runs one call in the shared process. If it is cancelled here, it is cancelled there too."""
        reference = self._actor.invoke.remote(call, trajectory_id)
        try:
            result: ToolResult = await reference
        except asyncio.CancelledError:
            sys.modules["ray"].cancel(reference)
            raise
        except Exception as fault:  # noqa: BLE001 - Ray's own errors, and what opening the tools raised
            logger.warning("tool %s: the process that runs it for the whole job fails: %r", call.name, fault)
            return refused_call(Outcome.UNKNOWN, f"the process that runs {call.name} for the whole job fails")
        return result

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Ends a trajectory there, without waiting."""
        self._actor.end_trajectory.remote(trajectory_id)


def find_shared_tools(spec: RunSpec, plan_text: str, secrets: Collection[str]) -> RemoteTools | None:
    """The runner of the job's shared tools; None where there are none, or no Ray job but one process."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or all(tool.limits.scope is not LimitScope.JOB for tool in spec.tools):
        return None
    options = {
        "name": _NAME,  # of this job alone
        "get_if_exists": True,
        "num_cpus": 0,
        "max_concurrency": _MAX_CALLS,
        "max_restarts": -1,
    }
    return RemoteTools(ray.remote(SharedTools).options(**options).remote(plan_text, sorted(secrets)))


class EvaluationAhead:
    """Plays all rows of an evaluation at once and returns each on request."""

    def __init__(self, labels: Sequence[str], play: Callable[[str], Awaitable[Scored]]) -> None:
        """Takes the labels of all rows, and what plays one."""
        self._labels = labels
        self._play = play
        self._under_way: dict[str, asyncio.Future[Scored]] = {}

    async def take(self, label: str) -> Scored:
        """A row's trajectory. A row that has been taken before begins the next evaluation."""
        if label not in self._under_way:
            labels = dict.fromkeys([*self._labels, label])
            self._under_way = {each: asyncio.ensure_future(self._play(each)) for each in labels}
        return await self._under_way.pop(label)
