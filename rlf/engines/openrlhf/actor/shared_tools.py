"""Tools with `limits.scope: job`: one process of the job, a Ray actor, opens them and runs the calls of all agents.

So their permits, rates, breakers and caches are those of the whole job. Results come back whole, as if the tool had
been called here; a call whose process ends is of unknown outcome, and is not sent again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.redact import Redactor
from rlf.plan import plan_from_json
from rlf.spec.model_files import model_location
from rlf.spec.models import RunSpec
from rlf.tools.execution.executor import Executor
from rlf.tools.execution.open_tool import refusal
from rlf.tools.kind import LimitScope
from rlf.types import Outcome, ToolCall, ToolDescription, ToolInvoker, ToolResult
from rlf.types.score import Scored

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
            return refusal(Outcome.UNKNOWN, f"the process that runs {call.name} for the whole job fails")
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


# An evaluation of OpenRLHF, of which all rows start when the first one is requested.
#
# OpenRLHF hands evaluation rows over in batches of `prompts_per_step` with one sample each, and waits for the slowest
# of a batch before it hands the next one over: 1,024 rows are 64 waits in which vLLM runs nearly empty. No weight
# changes before an evaluation is over, and each row has a seed of its own, so that rows played before they are asked
# for are the same as rows played then.


class Ahead:
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
