"""Where adversaries play: a spec's tasks, chat format, tools and limits, without its reward.

What adversaries do depends on no reward, so that what was played once is scored by any number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rlf.apps.attack.shapes import AnswerPart, Calls, Shape, Words, is_played
from rlf.apps.attack.texts import GoldFacts, answer_texts, gold_facts
from rlf.chat.examples import example_call
from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError, RunError
from rlf.rewards.answers import gold_text
from rlf.rewards.term import RewardContext, Term
from rlf.runs.declared import draw_questions, tell
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, SampleRequest, Task, ToolCall, ToolDescription, ToolResult, Trajectory

if TYPE_CHECKING:
    from rlf.spec.models import RunSpec
    from rlf.training.harness import Harness


Line = Callable[[SampleRequest], str]


@dataclass(frozen=True, slots=True)
class Scripts:
    """The words of adversaries on some tasks."""

    chat: ChatFormat
    tasks: Sequence[Task]
    facts: GoldFacts
    tools: Sequence[ToolDescription]
    """Those that the model sees."""
    observed: Mapping[str, str]
    """The last result of each trajectory."""
    max_turns: int
    max_total_tokens: int

    @property
    def _long_text(self) -> str:
        """A thousand words, or as many as half of the token budget holds."""
        words = "and so on "
        tokens = max(1, len(self.chat.tokenizer.encode(words)))
        return words * min(333, self.max_total_tokens // (2 * tokens))

    def texts(self, task: Task, rubric: str) -> dict[AnswerPart, str]:
        """The text of each part of an answer on a task, with the descriptions of the reward terms."""
        return answer_texts(task, self.facts, rubric=rubric, long=self._long_text)

    def script(self, shape: Shape, task: Task, texts: dict[AnswerPart, str]) -> list[Line]:
        """The turns of a shape on a question; the last one is repeated as long as a turn is asked for."""
        chat = self.chat
        tools = [tool for tool in self.tools if task.may_use(tool.name)]
        queries = [task.question, *(gold_text(other) for other in self.tasks if other is not task and gold_text(other))]
        if shape.query is not None:
            queries = [shape.query.text]

        def called(first: int) -> Line:
            return _make_line(chat, _write_calls(chat, shape, tools, first, queries))

        def answer(request: SampleRequest) -> str:
            observed = self.observed.get(request.trajectory_id, "")
            text = shape.fill({**texts, AnswerPart.OBSERVATION: observed})
            return _write_sampled(chat, request, chat.write_answer(text) if text else "")

        turns = [called(turn * shape.num_calls) for turn in range(shape.num_turns)] if tools else []
        return [*turns, *[answer] * (self.max_turns + 1)]

    def gold_script(self, task: Task, terms: Sequence[Term]) -> list[Line] | None:
        """The gold's call as a verify term makes it, then the right answer; None where there is no such call."""
        chat, visible = self.chat, {tool.name for tool in self.tools}
        for term in terms:
            if (call := term.gold_call(task, visible)) is not None:
                answer = _make_line(chat, chat.write_answer(gold_text(task)))
                return [_make_line(chat, chat.write_call(call)), *[answer] * (self.max_turns + 1)]
        return None


def _write_calls(
    chat: ChatFormat, shape: Shape, tools: Sequence[ToolDescription], first: int, queries: Sequence[str]
) -> str:
    """The calls of one turn; a format that cannot write one writes its question."""
    calls = []
    for number in range(first, first + shape.num_calls):
        at = number if shape.calls is Calls.FRESH else 0
        call = _draw_call(tools[at % len(tools)], queries[at % len(queries)])
        if shape.calls is Calls.REFUSED:
            call = replace(call, arguments={"no_such_argument": queries[at % len(queries)]})
        calls.append(replace(call, name="no_such_tool") if shape.calls is Calls.UNKNOWN else call)
    try:
        text = chat.write_calls(calls)
    except RlfError:
        return queries[0]
    return text[: len(text) // 2] if shape.calls is Calls.BROKEN else text


def _draw_call(tool: ToolDescription, query: str) -> ToolCall:
    """A call that satisfies the schema, with the query as its first text."""
    arguments: dict[str, Any] = dict(example_call(tool).arguments)
    texts = [name for name, value in arguments.items() if isinstance(value, str)]
    return ToolCall(tool.name, arguments | dict.fromkeys(texts[:1], query))


def _make_line(chat: ChatFormat, text: str) -> Line:
    return lambda request: _write_sampled(chat, request, text)


def _write_sampled(chat: ChatFormat, request: SampleRequest, text: str) -> str:
    """A turn as the policy samples it: thinking ended, where it was begun, and the turn too."""
    before = chat.thinking_marks[1] if chat.after(request.tokens).begins_thinking else ""
    return f"{before}{text}{chat.decode([chat.stop_token_ids[0]])}"


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
    _played: dict[tuple[Shape, int], Trajectory] = field(default_factory=dict)
    _texts: dict[tuple[int, str], dict[AnswerPart, str]] = field(default_factory=dict)
    """By the question's position and the descriptions of the terms: a search plays hundreds of batches on each."""
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

    async def play(
        self, shapes: Sequence[Shape], terms: Sequence[Term], questions: Sequence[int] | None = None
    ) -> list[list[Trajectory | None]]:
        """Each shape on questions, None where one has no such shape; the same is played once for all rewards.

        Args:
            terms: whose descriptions the adversaries know.
            questions: positions of the questions; None: all.
        """
        asked = range(len(self.tasks)) if questions is None else questions
        described = []
        for term in terms:
            criteria = [each.text for each in getattr(term, "criteria", ())]
            described.append(" ".join([term.name, *((type(term).__doc__ or "").split("\n")[:1]), *criteria]))
        rubric = " ".join(described)
        for at in asked:
            if (at, rubric) not in self._texts:
                self._texts[at, rubric] = self.scripts.texts(self.tasks[at], rubric)
        texts = {at: self._texts[at, rubric] for at in asked}
        wanted = [(shape, at) for shape in dict.fromkeys(shapes) for at in asked if is_played(shape, texts[at])]
        new = [pair for pair in wanted if pair not in self._played]
        played = await self._run_scripts(
            [(self.tasks[at], self.scripts.script(shape, self.tasks[at], texts[at])) for shape, at in new],
            [shape.calls is Calls.LATE for shape, _ in new],
        )
        found = dict(zip(new, played, strict=True))
        self._played |= {pair: each for pair, each in found.items() if _is_of_any_reward(pair[0])}
        return [[found.get((shape, at)) or self._played.get((shape, at)) for at in asked] for shape in shapes]

    async def play_gold_calls(self, terms: Sequence[Term]) -> list[Trajectory] | None:
        """The gold's call as a verify term makes it, then the right answer; None where there is no such call."""
        scripts = [
            (task, script) for task in self.tasks if (script := self.scripts.gold_script(task, terms)) is not None
        ]
        return await self._run_scripts(scripts) if len(scripts) == len(self.tasks) else None

    async def _run_scripts(
        self, scripts: Sequence[tuple[Task, Sequence[Line]]], late: Sequence[bool] = ()
    ) -> list[Trajectory]:
        """One trajectory for each script; calls of those that are late run out of time. Raises RunError."""
        from rlf.rollout.loop import Setting, play
        from rlf.rollout.rollout import Rollout
        from rlf.rollout.scripted import ScriptedPolicy

        harness, first = self.harness, self._num_played
        self._num_played += len(scripts)
        rollouts = [Rollout(f"attack/{first + at}", task, 0, seed=0) for at, (task, _) in enumerate(scripts)]
        self.tools.late.update(rollout.id for rollout, is_late in zip(rollouts, late, strict=False) if is_late)
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


def _is_of_any_reward(shape: Shape) -> bool:
    """Whether nothing in it was read in one reward, so that it may be played against others too."""
    words = [part for part in (*shape.parts, shape.query) if isinstance(part, Words)]
    return AnswerPart.RUBRIC not in shape.parts and not any(each.origin for each in words)


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
        self.late: set[str] = set()
        """Trajectories whose calls run out of time."""

    async def invoke(self, call: ToolCall, *, trajectory_id: str) -> ToolResult:
        if trajectory_id in self.late:
            return ToolResult(Outcome.TIMEOUT, "The call ran out of time.")
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
async def open_world(
    spec: RunSpec, num_questions: int, tasks: Sequence[Task] | None = None
) -> AsyncIterator[AttackWorld]:
    """Opens tools. Raises RlfError for a spec with a world, and for one whose data or tokenizer is not here.

    Args:
        tasks: of which some are played; None: those of the training data.
    """
    if spec.env is not None:
        raise RlfError("env: `rlf rewards attack` plays no worlds. Use `rlf env attack` for a world.")
    from rlf.chat.encoding import load_tokenizer
    from rlf.spec.model_files import model_location
    from rlf.training.harness import build_harness

    tasks = _load_tasks(spec) if tasks is None else tasks
    tokenizer = load_tokenizer(model_location(spec.model.path))
    harness = build_harness(spec, tokenizer, tell)
    local = [tool for tool in spec.tools if tool.target.is_local]
    async with Executor(local, seed=spec.seed, count_tokens=lambda text: len(tokenizer.encode(text))) as executor:
        drawn = draw_questions(tasks, num_questions, spec.seed)
        tools, (turns, tokens) = _Tools(spec, executor), (harness.limits.max_turns, harness.limits.max_total_tokens)
        facts = (gold_facts(tasks), tools.descriptions, tools.last, turns, tokens)
        yield AttackWorld(spec, harness, executor, tools, drawn, Scripts(harness.chat, drawn, *facts))


def _load_tasks(spec: RunSpec) -> Sequence[Task]:
    from rlf.data import load_tasks

    tasks = load_tasks(**spec.data.train.model_dump(), declared=tuple(tool.name for tool in spec.tools))
    if not tasks:
        raise RlfError("data.train: there is no question to try. Name a dataset with rows.")
    return tasks
