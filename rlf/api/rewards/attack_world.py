"""The world that a reward is attacked in: a spec's tasks, chat format, tools and limits, without its reward.

What adversaries do depends on no reward, so that what was played once is scored by any number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlf.api.rewards.scoring import tell
from rlf.core.errors import RlfError, RunError
from rlf.rewards.answers import golds
from rlf.rewards.attack.questions import draw_questions
from rlf.rewards.attack.shapes import Calls, Part, Shape, is_played
from rlf.rewards.attack.texts import answer_texts, asked, frequent_golds, gold_text, has_negative, may_be_same
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.kinds.verify import VerifyTerm
from rlf.rewards.term import RewardContext, Term
from rlf.rewards.verifying import gold_arguments
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolResult, Trajectory

if TYPE_CHECKING:
    from rlf.chat.format import ChatFormat
    from rlf.rollout.scripted import Line
    from rlf.spec.models import RunSpec
    from rlf.training.harness import Harness
    from rlf.types.policy import SampleRequest


@dataclass(frozen=True, slots=True)
class ToolPlayed:
    """Whether adversaries call a tool."""

    name: str
    kind: str
    played: bool
    reason: str = ""
    """Why not; empty where it is called."""


@dataclass(slots=True)
class World:
    """A spec's parts, open, and its tasks."""

    spec: RunSpec
    harness: Harness
    executor: Executor
    tools: _Tools
    tasks: Sequence[Task]
    frequent: Sequence[str]
    """The most frequent golds of the data."""
    signed: bool
    """Whether the data has negative numbers."""
    _played: dict[Shape, list[Trajectory | None]] = field(default_factory=dict)
    _num_played: int = 0

    @property
    def chat_name(self) -> str:
        """The chat format that is played in."""
        return type(self.harness.chat).__module__.rpartition(".")[2]

    @property
    def _long(self) -> str:
        """A thousand words, or as many as half of the token budget holds."""
        words = "and so on "
        tokens = max(1, len(self.harness.chat.tokenizer.encode(words)))
        return words * min(333, self.harness.limits.max_total_tokens // (2 * tokens))

    @property
    def context(self) -> RewardContext:
        """What reward terms open with."""
        return RewardContext(self.executor.for_rewards, self.spec.seed, tell)

    async def play(self, shapes: Sequence[Shape], terms: Sequence[Term]) -> list[list[Trajectory | None]]:
        """Each shape on every question, None where a question has no such shape; the same shape is played once.

        Args:
            terms: whose descriptions the adversaries know.
        """
        wanted = [shape for shape in dict.fromkeys(shapes) if shape not in self._played]
        texts = [self._texts(task, terms) for task in self.tasks]
        pairs = [(shape, at) for shape in wanted for at in range(len(self.tasks)) if is_played(shape, texts[at])]
        played = await self._run(
            [(self.tasks[at], self._script(shape, self.tasks[at], texts[at])) for shape, at in pairs]
        )
        by_pair = dict(zip(pairs, played, strict=True))
        found = {shape: [by_pair.get((shape, at)) for at in range(len(self.tasks))] for shape in wanted}
        self._played |= {shape: each for shape, each in found.items() if Part.RUBRIC not in shape.parts}
        return [found.get(shape) or self._played[shape] for shape in shapes]

    async def play_gold_calls(self, terms: Sequence[Term]) -> list[Trajectory] | None:
        """The gold's call as a verify term makes it, then the right answer; None where there is no such call."""
        scripts = [(task, script) for task in self.tasks if (script := self._gold_script(task, terms)) is not None]
        return await self._run(scripts) if len(scripts) == len(self.tasks) else None

    async def _run(self, scripts: Sequence[tuple[Task, Sequence[Line]]]) -> list[Trajectory]:
        """One trajectory for each script. Raises RunError."""
        from rlf.rollout.loop import Rollout, Setting, play
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

    def _texts(self, task: Task, terms: Sequence[Term]) -> dict[Part, str]:
        right = golds(task.answer)
        others = [text for other in self.tasks for text in golds(other.answer)]
        others = [text for text in dict.fromkeys(others) if not any(may_be_same(text, gold) for gold in right)]
        return answer_texts(task, others, self.frequent, signed=self.signed, rubric=_rubric(terms), long=self._long)

    def _script(self, shape: Shape, task: Task, texts: dict[Part, str]) -> list[Line]:
        """The turns of a shape on a question; the last one is repeated as long as a turn is asked for."""
        chat = self.harness.chat
        tools = [tool for tool in self.tools.descriptions if task.may_use(tool.name)]
        queries = [asked(task), *(gold_text(other) for other in self.tasks if other is not task and gold_text(other))]

        def called(first: int) -> Line:
            return _line(chat, _calls(chat, shape, tools, first, queries))

        def answer(request: SampleRequest) -> str:
            observed = self.tools.last.get(request.trajectory_id, "")
            text = shape.fill({**texts, Part.OBSERVATION: observed})
            return _sampled(chat, request, chat.write_answer(text) if text else "")

        turns = [called(turn * shape.num_calls) for turn in range(shape.num_turns)] if tools else []
        return [*turns, *[answer] * (self.harness.limits.max_turns + 1)]

    def _gold_script(self, task: Task, terms: Sequence[Term]) -> list[Line] | None:
        chat, visible = self.harness.chat, {tool.name for tool in self.tools.descriptions}
        for term in terms:
            if isinstance(term, VerifyTerm) and term.tool in visible and term.gold_templates is not None:
                call = ToolCall(term.tool, gold_arguments(term.gold_templates, task))
                answer = _line(chat, chat.write_answer(gold_text(task)))
                return [_line(chat, chat.write_call(call)), *[answer] * (self.harness.limits.max_turns + 1)]
        return None


class _Tools:
    """The spec's tools as adversaries meet them: those on this machine run, the others return nothing."""

    def __init__(self, spec: RunSpec, executor: Executor) -> None:
        self._executor = executor
        self.report = tuple(_played(tool) for tool in spec.tools)
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


def _played(tool: ToolDeclaration) -> ToolPlayed:
    name, kind = tool.name, tool.target.kind
    if tool.hidden:
        return ToolPlayed(name, kind, False, "hidden from the model")
    if not tool.target.is_local:
        return ToolPlayed(name, kind, False, f"a tool of kind {kind} reaches beyond this machine's process")
    return ToolPlayed(name, kind, True)


@asynccontextmanager
async def open_world(spec: RunSpec, num_questions: int) -> AsyncIterator[World]:
    """Opens tools. Raises RlfError for a spec whose data or tokenizer is not here."""
    from rlf.chat.tokenizer import load_tokenizer
    from rlf.spec.looking.model_folder import model_location
    from rlf.training.harness import build_harness

    tasks = _tasks(spec)
    tokenizer = load_tokenizer(model_location(spec.model.path))
    harness = build_harness(spec, tokenizer, tell)
    local = [tool for tool in spec.tools if tool.target.is_local]
    async with Executor(local, seed=spec.seed, count_tokens=lambda text: len(tokenizer.encode(text))) as executor:
        drawn = draw_questions(tasks, num_questions, spec.seed)
        yield World(spec, harness, executor, _Tools(spec, executor), drawn, frequent_golds(tasks), has_negative(tasks))


def _tasks(spec: RunSpec) -> Sequence[Task]:
    from rlf.data import load_tasks

    tasks = load_tasks(**spec.data.train.model_dump(), declared=tuple(tool.name for tool in spec.tools))
    if not tasks:
        raise RlfError("data.train: there is no question to try. Name a dataset with rows.")
    return tasks


def _calls(chat: ChatFormat, shape: Shape, tools: Sequence[ToolDescription], first: int, queries: Sequence[str]) -> str:
    """The calls of one turn; a format that cannot write one writes its question."""
    calls = []
    for number in range(first, first + shape.num_calls):
        at = 0 if shape.calls is Calls.SAME else number
        calls.append(_call(tools[at % len(tools)], queries[at % len(queries)]))
    try:
        text = chat.write_calls(calls)
    except RlfError:
        return queries[0]
    return text[: len(text) // 2] if shape.calls is Calls.BROKEN else text


def _call(tool: ToolDescription, query: str) -> ToolCall:
    """A call that satisfies the schema, with the query as its first text."""
    from rlf.chat.examples import example_call

    arguments: dict[str, Any] = dict(example_call(tool).arguments)
    texts = [name for name, value in arguments.items() if isinstance(value, str)]
    return ToolCall(tool.name, arguments | dict.fromkeys(texts[:1], query))


def _line(chat: ChatFormat, text: str) -> Line:
    return lambda request: _sampled(chat, request, text)


def _sampled(chat: ChatFormat, request: SampleRequest, text: str) -> str:
    """A turn as the policy samples it: thinking ended, where it was begun, and the turn too."""
    before = chat.thinking_marks[1] if chat.after(request.tokens).begins_thinking else ""
    return f"{before}{text}{chat.decode([chat.stop_token_ids[0]])}"


def _rubric(terms: Sequence[Term]) -> str:
    described = []
    for term in terms:
        criteria = [each.text for each in term.criteria] if isinstance(term, JudgeTerm) else []
        described.append(" ".join([term.name, *((type(term).__doc__ or "").split("\n")[:1]), *criteria]))
    return " ".join(described)
