"""Demonstrations of the search alone and of the calculator alone, and of what to say when neither helps."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.compose.almanac import ATTRIBUTES, NOTHING_FOUND, Attribute, fact, search
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.layout import message_ids, observation_ids, turn_ids
from rlf.builtin.encyclopedia.calculator import calculator

_NOTHING = "nothing"
SYSTEM = "Tools: search, calculator"
_TEXTS = [
    text
    for attribute in ATTRIBUTES.values()
    for text in (attribute.passage, attribute.question, attribute.both, attribute.more, attribute.together)
]
PHRASES = (
    SYSTEM,
    '\n{"name": "search", "arguments": {"query": "',
    '\n{"name": "calculator", "arguments": {"expression": "',
    *(f" {keyword}" for keyword in ATTRIBUTES),
    *(gap for text in _TEXTS for gap in re.split(r"\{\w\}", text) if gap),
    " + ",
    " - ",
    NOTHING_FOUND,
    _NOTHING,
)


_BREAK_OFF_SHARE = 0.6
_ONE_TURN_SHARE = 0.6
_ONE_MESSAGE_SHARE = 0.4


class Skill(StrEnum):
    """The skill of a demonstration; none uses both tools."""

    SEARCH = "search"
    """One search answers the question."""
    SEARCH_BOTH = "search_both"
    """Two searches, in one turn or in two, and an answer that joins both results."""
    ADD = "add"
    """The question holds two or three numbers, and the calculator adds them, two at a time."""
    SUBTRACT = "subtract"
    """The question holds two numbers, and the calculator takes one from the other."""
    READ = "read"
    """The question comes with its passages, or follow a first "nothing"; the calculator takes their numbers."""
    READ_RESULTS = "read_results"
    """The same after a first "nothing"; the passages come as a tool's results, though nothing was searched for."""
    LOOK = "look"
    """A question that needs both tools: both searches, then "nothing", or a call that breaks off before its tool."""
    GUESS = "guess"
    """A question that needs both tools: "nothing"."""


SKILLS: dict[Skill, float] = {skill: 1.0 for skill in Skill if skill not in (Skill.GUESS, Skill.READ_RESULTS)}
POLICY: dict[Skill, float] = {**SKILLS, Skill.READ_RESULTS: 1.0, Skill.LOOK: 1.0, Skill.GUESS: 5.0}
"""How often the shipped policy sees each: of the questions that need both tools it looks one in six up."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, draw_name: Callable[[], str], skill: Skill
) -> Demonstration:
    """A question about random names or numbers, the calls and the answer."""
    attribute = rng.choice(list(ATTRIBUTES.values()))
    writer = _Writer(tokenizer, rng, attribute)
    match skill:
        case Skill.SEARCH:
            name = draw_name()
            return writer.look_up(attribute.question.format(x=name), [name], is_answered=True)
        case Skill.SEARCH_BOTH:
            x, y = draw_name(), draw_name()
            return writer.look_up(attribute.both.format(x=x, y=y), [x, y], is_answered=True)
        case Skill.LOOK:
            x, y = draw_name(), draw_name()
            template = rng.choice([attribute.more, attribute.together])
            return writer.look_up(template.format(x=x, y=y), [x, y], is_answered=False)
        case Skill.GUESS:
            template = rng.choice([attribute.more, attribute.together])
            writer.row.ask(SYSTEM, template.format(x=draw_name(), y=draw_name()))
            writer.row.say(_NOTHING)
            return writer.row
        case Skill.READ | Skill.READ_RESULTS:
            names = [draw_name(), draw_name()]
            return writer.work_out(*sample_numbers(rng, 2), names=names, are_results=skill is Skill.READ_RESULTS)
        case Skill.ADD:
            return writer.work_out(*sample_numbers(rng, rng.choice([2, 3])), operation="+")
        case Skill.SUBTRACT:
            return writer.work_out(*sample_numbers(rng, 2), operation="-")


def sample_numbers(rng: random.Random, count: int) -> list[int]:
    """Numbers of four digits, the greatest first."""
    return sorted(rng.sample(range(1000, 10000), count), reverse=True)


class _Writer:
    """Writes one demonstration."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rng: random.Random, attribute: Attribute) -> None:
        self._rng = rng
        self._attribute = attribute
        self.row = Demonstration(tokenizer)

    def look_up(self, question: str, names: list[str], *, is_answered: bool) -> Demonstration:
        """Searches for each name, all in one turn or each in its own, and the numbers found as the answer.

        Without an answer it gives up, or begins one more call and ends where the call would name its tool: another call
        gets support there, and neither tool any.
        """
        self.row.ask(SYSTEM, question)
        queries = [f"{name} {self._attribute.keyword}" for name in names]
        turns = [queries] if self._rng.random() < _ONE_TURN_SHARE else [[query] for query in queries]
        for turn in turns:
            self.row.call([("search", {"query": query}) for query in turn], [search(query) for query in turn])
        if is_answered:
            self.row.say(" and ".join(str(fact(name, self._attribute.keyword)) for name in names))
        elif self._rng.random() < _BREAK_OFF_SHARE:
            self.row.act(turn_ids(self.row.tokenizer, "<tool_call>")[:1])
        else:
            self.row.say(_NOTHING)
        return self.row

    def work_out(
        self, *numbers: int, operation: str = "", names: Sequence[str] = (), are_results: bool = False
    ) -> Demonstration:
        """Calls of the calculator and its last result; with names the numbers stand in passages, or in results."""
        operation = operation or self._rng.choice("+-")
        ordered = list(numbers) if operation == "-" else self._rng.sample(numbers, len(numbers))
        subjects = list(names) or list(map(str, ordered))
        template = self._attribute.more if operation == "-" else self._attribute.together
        passages = [self._attribute.passage.format(x=x, v=v) for x, v in zip(names, ordered, strict=False)]
        question = template.format(x=", ".join(subjects[:-1]), y=subjects[-1])
        row = self.row
        if are_results:
            row.ask(SYSTEM, question)
            row.say(_NOTHING)
            row.read(observation_ids(row.tokenizer, passages))
        elif passages and self._rng.random() > _ONE_MESSAGE_SHARE:
            row.ask(SYSTEM, question)
            row.say(_NOTHING)
            row.read(message_ids(row.tokenizer, "\n".join(passages)))
        else:
            row.ask(SYSTEM, "\n".join([question, *passages]))
        total = str(ordered[0])
        for number in ordered[1:]:
            expression = f"{total} {operation} {number}"
            total = calculator(expression)
            row.call([("calculator", {"expression": expression})], [total])
        row.say(total)
        return row
