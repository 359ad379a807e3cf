"""Where adversaries play: a spec's tasks, chat format, tools and limits, without its reward.

What adversaries do depends on no reward, so that what was played once is scored by any number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlf.apps.attack.search import Line, Scripts
from rlf.apps.attack.shapes import AnswerPart, Shape, frequent_golds, has_negative, is_played
from rlf.core.errors import RlfError, RunError
from rlf.rewards.answers import draw_questions
from rlf.rewards.term import RewardContext, Term
from rlf.runs.rewards import tell
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolResult, Trajectory

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec
    from rlf.training.harness import Harness


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Whether adversaries call a tool."""

    name: str
    kind: str
    played: bool
    reason: str = ""
    """Why not; empty where it is called."""


@dataclass(slots=True)
class AttackWorld:
    """A spec's parts, open, and its tasks."""

    spec: RunSpec
    harness: Harness
    executor: Executor
    tools: _Tools
    tasks: Sequence[Task]
    scripts: Scripts
    _played: dict[Shape, list[Trajectory | None]] = field(default_factory=dict)
    _num_played: int = 0

    @property
    def chat_name(self) -> str:
        """The chat format of the episodes."""
        return type(self.harness.chat).__module__.rpartition(".")[2]

    @property
    def seed(self) -> int:
        """The spec's."""
        return self.spec.seed

    @property
    def tools_played(self) -> Sequence[ToolUse]:
        """Which of the spec's tools are called."""
        return self.tools.report

    @property
    def context(self) -> RewardContext:
        """The context that reward terms are opened with."""
        return RewardContext(self.executor.for_rewards, self.spec.seed, tell)

    async def play(self, shapes: Sequence[Shape], terms: Sequence[Term]) -> list[list[Trajectory | None]]:
        """Each shape on every question, None where a question has no such shape; the same shape is played once.

        Args:
            terms: whose descriptions the adversaries know.
        """
        wanted = [shape for shape in dict.fromkeys(shapes) if shape not in self._played]
        texts = [self.scripts.texts(task, terms) for task in self.tasks]
        pairs = [(shape, at) for shape in wanted for at in range(len(self.tasks)) if is_played(shape, texts[at])]
        played = await self._run_scripts(
            [(self.tasks[at], self.scripts.script(shape, self.tasks[at], texts[at])) for shape, at in pairs]
        )
        by_pair = dict(zip(pairs, played, strict=True))
        found = {shape: [by_pair.get((shape, at)) for at in range(len(self.tasks))] for shape in wanted}
        self._played |= {shape: each for shape, each in found.items() if AnswerPart.RUBRIC not in shape.parts}
        return [found.get(shape) or self._played[shape] for shape in shapes]

    async def play_gold_calls(self, terms: Sequence[Term]) -> list[Trajectory] | None:
        """The gold's call as a verify term makes it, then the right answer; None where there is no such call."""
        scripts = [
            (task, script) for task in self.tasks if (script := self.scripts.gold_script(task, terms)) is not None
        ]
        return await self._run_scripts(scripts) if len(scripts) == len(self.tasks) else None

    async def _run_scripts(self, scripts: Sequence[tuple[Task, Sequence[Line]]]) -> list[Trajectory]:
        """One trajectory for each script. Raises RunError."""
        from rlf.rollout.loop import Setting, play
        from rlf.rollout.rollout import Rollout
        from rlf.rollout.scripted import ScriptedPolicy

        harness, first = self.harness, self._num_played
        self._num_played += len(scripts)
        rollouts = [Rollout(f"attack/{first + at}", task, 0, seed=0) for at, (task, _) in enumerate(scripts)]
        policy = ScriptedPolicy(
            harness.chat.tokenizer, {each.id: script for each, (_, script) in zip(rollouts, scripts, strict=True)}
        )
        setting = Setting(policy, harness.chat, self.tools, harness.limits, harness.training, harness.handling)
        policy.open([rollout.id for rollout in rollouts])
        try:
            async with asyncio.TaskGroup() as group:
                playing = [group.create_task(play(rollout, setting)) for rollout in rollouts]
        except ExceptionGroup as failures:
            known = failures.subgroup((RunError, RlfError))
            raise (known or failures).exceptions[0] from failures
        return [task.result() for task in playing]


class _Tools:
    """The spec's tools as adversaries meet them: those on this machine run, the others return nothing."""

    def __init__(self, spec: RunSpec, executor: Executor) -> None:
        self._executor = executor
        self.report = tuple(_tool_played(tool) for tool in spec.tools)
        self._local = {tool.name for tool in spec.tools if tool.target.is_local}
        self.descriptions: tuple[ToolDescription, ...] = tuple(
            tool.description_for_model for tool in spec.tools if not tool.hidden
        )
        self.last: dict[str, str] = {}
        """The last result of each trajectory."""

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        known = any(tool.name == call.name for tool in self.descriptions)
        if known and call.name not in self._local:
            return ToolResult(Outcome.OK, "")
        result = await self._executor.invoke(call, trajectory_id=trajectory_id)
        self.last[trajectory_id] = result.text
        return result

    async def end_trajectory(self, trajectory_id: str) -> None:
        self.last.pop(trajectory_id, None)
        await self._executor.end_trajectory(trajectory_id)


def _tool_played(tool: ToolDeclaration) -> ToolUse:
    name, kind = tool.name, tool.target.kind
    if tool.hidden:
        return ToolUse(name, kind, False, "hidden from the model")
    if not tool.target.is_local:
        return ToolUse(name, kind, False, f"a tool of kind {kind} calls another process or service")
    return ToolUse(name, kind, True)


@asynccontextmanager
async def open_world(spec: RunSpec, num_questions: int) -> AsyncIterator[AttackWorld]:
    """Opens tools. Raises RlfError for a spec with a world, and for one whose data or tokenizer is not here."""
    if spec.env is not None:
        raise RlfError("env: `rlf rewards attack` plays no worlds. Use `rlf env attack` for a world.")
    from rlf.chat.encoding import load_tokenizer
    from rlf.spec.model_files import model_location
    from rlf.training.harness import build_harness

    tasks = _load_tasks(spec)
    tokenizer = load_tokenizer(model_location(spec.model.path))
    harness = build_harness(spec, tokenizer, tell)
    local = [tool for tool in spec.tools if tool.target.is_local]
    async with Executor(local, seed=spec.seed, count_tokens=lambda text: len(tokenizer.encode(text))) as executor:
        drawn = draw_questions(tasks, num_questions, spec.seed)
        tools, (turns, tokens) = _Tools(spec, executor), (harness.limits.max_turns, harness.limits.max_total_tokens)
        facts = (frequent_golds(tasks), has_negative(tasks), tools.descriptions, tools.last, turns, tokens)
        yield AttackWorld(spec, harness, executor, tools, drawn, Scripts(harness.chat, drawn, *facts))


def _load_tasks(spec: RunSpec) -> Sequence[Task]:
    from rlf.data import load_tasks

    tasks = load_tasks(**spec.data.train.model_dump(), declared=tuple(tool.name for tool in spec.tools))
    if not tasks:
        raise RlfError("data.train: there is no question to try. Name a dataset with rows.")
    return tasks
