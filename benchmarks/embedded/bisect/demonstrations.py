"""Demonstrations of the boxes: numbers at random, given up early, and no bisection."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.bisect.box import (
    FOUND,
    HIGHER,
    LOWER,
    NUM_NUMBERS,
    NUM_PROBES,
    SPENT,
    Box,
    hidden_number,
    question,
)
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.layout import call_text, observation_ids, turn_ids

PHRASES = (
    "Tools: probe",
    '\n{"name": "probe", "arguments": {"box": "',
    '", "number": ',
    "Box ",
    " hides a number from 1 to ",
    ". What is in it?",
    FOUND,
    HIGHER,
    LOWER,
    SPENT,
    "nothing",
)


class Habit(StrEnum):
    """Where the next probe goes."""

    INSIDE = "inside"
    """Any number that may be the hidden one."""
    ANYWHERE = "anywhere"
    """Any number."""
    GIVE_UP = "give_up"
    """None: the answer is "nothing"."""


POLICY: dict[Habit, float] = {Habit.INSIDE: 0.33, Habit.ANYWHERE: 0.17, Habit.GIVE_UP: 0.50}
"""How often the shipped policy follows each habit, drawn again for each probe."""


_NEAR = (0, 1, 2, 4, 8, 16)
"""How far the bounds of a drill may be from the hidden number."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast,
    rng: random.Random,
    box: str,
    draw_habit: Callable[[], Habit],
    *,
    has_notes: bool = False,
) -> Demonstration:
    """Probes of a box by the habits drawn, six unless one finds the number or gives up, and the prize or "nothing".

    With notes, each call and "nothing" follows the two numbers between which the hidden one must be, such as `16 32`.
    """
    row = Demonstration(tokenizer)
    row.ask("Tools: probe", question(box))
    _probe(rng, box, row, (1, NUM_NUMBERS), draw_habit, has_notes=has_notes)
    return row


def drill(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, box: str, draw_habit: Callable[[], Habit]
) -> Demonstration:
    """The same with notes, after a first note and probe that are only read and leave few numbers."""
    hidden, row = hidden_number(box), Demonstration(tokenizer)
    low = max(1, hidden - rng.randint(0, rng.choice(_NEAR)))
    high = min(NUM_NUMBERS, hidden + rng.randint(0, rng.choice(_NEAR)))
    row.ask("Tools: probe", question(box))
    others = [number for number in range(low, high + 1) if number != hidden]
    if others:
        number = rng.choice(others)
        row.read(turn_ids(tokenizer, _note((low, high)) + _call(box, number)))
        text = Box()(box, number).text
        row.read(observation_ids(tokenizer, [text]))
        low, high = _narrow((low, high), number, text)
    _probe(rng, box, row, (low, high), draw_habit, has_notes=True)
    return row


def _probe(
    rng: random.Random,
    box: str,
    row: Demonstration,
    bounds: tuple[int, int],
    draw_habit: Callable[[], Habit],
    *,
    has_notes: bool,
) -> None:
    """Appends probes of a box whose number is within `bounds`, and the answer."""
    tool = Box()
    for _ in range(NUM_PROBES):
        habit = draw_habit()
        if habit is Habit.GIVE_UP:
            break
        number = rng.randint(*(bounds if habit is Habit.INSIDE else (1, NUM_NUMBERS)))
        row.say(_note(bounds, has_notes) + _call(box, number))
        text = tool(box, number).text
        row.read(observation_ids(row.tokenizer, [text]))
        if text.startswith(FOUND):
            row.say(text)
            return
        bounds = _narrow(bounds, number, text)
    row.say(_note(bounds, has_notes) + "nothing")


def _note(bounds: tuple[int, int], has_notes: bool = True) -> str:
    """The numbers just outside of the bounds, on a line of their own."""
    return f"{bounds[0] - 1} {bounds[1] + 1}\n" if has_notes else ""


def _call(box: str, number: int) -> str:
    return call_text([("probe", {"box": box, "number": number})])


def _narrow(bounds: tuple[int, int], number: int, text: str) -> tuple[int, int]:
    low, high = bounds
    return (max(low, number + 1), high) if text.startswith(HIGHER) else (low, min(high, number - 1))
