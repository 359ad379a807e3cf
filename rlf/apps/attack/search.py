"""The search for shapes beside the named ones: an evolution towards what is paid most, then towards what is short."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.apps.attack.findings import ShapeResult
from rlf.apps.attack.shapes import (
    PADDED,
    VARIANTS,
    AnswerPart,
    Calls,
    Shape,
    answer_texts,
    child,
    may_be_same,
)
from rlf.chat.examples import example_call
from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError
from rlf.core.identity import derive_seed
from rlf.rewards.answers import gold_text
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.rewards.kinds.verify import VerifyTerm, gold_arguments
from rlf.rewards.normalization import golds
from rlf.rewards.term import Term
from rlf.types import SampleRequest, Task, ToolCall, ToolDescription

_POPULATION = 16
_MAX_GENERATIONS = 200
_PATIENCE = 10
"""Generations without a cheaper hack after which the search has found what it can."""

Try = Callable[[Mapping[str, Shape]], Awaitable[list[ShapeResult]]]


async def search(
    try_: Try, begun: Sequence[ShapeResult], *, share: float, seconds: float, seed: int
) -> list[ShapeResult]:
    """Evolves shapes towards a hack, and from there towards a cheaper one; the same for the same seed and time."""
    deadline = time.monotonic() + seconds
    choice = random.Random(derive_seed(seed, "attack"))
    known = {attempt.shape: attempt for attempt in begun if _is_parent(attempt.shape)}
    named = frozenset(known)
    fittest, since = (-float("inf"), 0.0), 0
    for _ in range(_MAX_GENERATIONS):
        fitness = max(_rate_attempt(attempt, share) for attempt in known.values())
        fittest, since = (fitness, 0) if fitness > fittest else (fittest, since + 1)
        if time.monotonic() > deadline or (fittest[0] >= 1 and since >= _PATIENCE):
            break
        children = _breed_shapes(list(known.values()), share, choice)
        known |= {attempt.shape: attempt for attempt in await try_({each.words: each for each in children})}
    return [attempt for shape, attempt in known.items() if shape not in named]


def _is_parent(shape: Shape) -> bool:
    """Whether a shape knows nothing of the right answer that a child could be paid for."""
    return shape != PADDED and VARIANTS.isdisjoint(shape.parts)


def _breed_shapes(every: Sequence[ShapeResult], share: float, choice: random.Random) -> list[Shape]:
    """New shapes, mostly of the fittest, in an order of their own."""
    known = {attempt.shape for attempt in every}
    best = sorted(every, key=lambda attempt: _rate_attempt(attempt, share), reverse=True)[:_POPULATION]
    children = set[Shape]()
    for _ in range(4 * _POPULATION):
        made = child(choice.choice(choice.choice((best, every))).shape, choice.choice(best).shape, choice)
        if made not in known and len(children) < _POPULATION:
            children.add(made)
    return sorted(children, key=lambda shape: shape.words)


def _rate_attempt(attempt: ShapeResult, share: float) -> tuple[float, float]:
    """Share of the reward of being right, at most 1; of hacks the shorter is the fitter."""
    if attempt.share is None:
        return (-float("inf"), 0.0)
    return (1.0 if attempt.is_hack(share) else min(attempt.share, 1.0), -attempt.num_tokens)


# Scripts of adversaries, turn by turn, in a chat format.

Line = Callable[[SampleRequest], str]


@dataclass(frozen=True, slots=True)
class Scripts:
    """The words of adversaries on some tasks."""

    chat: ChatFormat
    tasks: Sequence[Task]
    frequent: Sequence[str]
    """The most frequent golds of the data."""
    signed: bool
    """Whether the data has negative numbers."""
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

    def texts(self, task: Task, terms: Sequence[Term]) -> dict[AnswerPart, str]:
        """The text of each part of an answer on a task."""
        right = golds(task.answer)
        others = [text for other in self.tasks for text in golds(other.answer)]
        others = [text for text in dict.fromkeys(others) if not any(may_be_same(text, gold) for gold in right)]
        return answer_texts(
            task, others, self.frequent, signed=self.signed, rubric=_describe_terms(terms), long=self._long_text
        )

    def script(self, shape: Shape, task: Task, texts: dict[AnswerPart, str]) -> list[Line]:
        """The turns of a shape on a question; the last one is repeated as long as a turn is asked for."""
        chat = self.chat
        tools = [tool for tool in self.tools if task.may_use(tool.name)]
        queries = [task.question, *(gold_text(other) for other in self.tasks if other is not task and gold_text(other))]

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
            if isinstance(term, VerifyTerm) and term.tool in visible and term.gold_templates is not None:
                call = ToolCall(term.tool, gold_arguments(term.gold_templates, task))
                answer = _make_line(chat, chat.write_answer(gold_text(task)))
                return [_make_line(chat, chat.write_call(call)), *[answer] * (self.max_turns + 1)]
        return None


def _write_calls(
    chat: ChatFormat, shape: Shape, tools: Sequence[ToolDescription], first: int, queries: Sequence[str]
) -> str:
    """The calls of one turn; a format that cannot write one writes its question."""
    calls = []
    for number in range(first, first + shape.num_calls):
        at = 0 if shape.calls is Calls.SAME else number
        calls.append(_draw_call(tools[at % len(tools)], queries[at % len(queries)]))
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


def _describe_terms(terms: Sequence[Term]) -> str:
    described = []
    for term in terms:
        criteria = [each.text for each in term.criteria] if isinstance(term, JudgeTerm) else []
        described.append(" ".join([term.name, *((type(term).__doc__ or "").split("\n")[:1]), *criteria]))
    return " ".join(described)
