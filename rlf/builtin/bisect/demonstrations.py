"""Demonstrations of the boxes: probes inside or outside of the interval that is left, at random, and no bisection."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from rlf.builtin.bisect.box import FOUND, HIGHER, NUM_NUMBERS, NUM_PROBES, Box, question
from rlf.builtin.tiny.demonstrations import Demonstration
from rlf.builtin.tiny.layout import call_text, observation_ids, opening_ids, turn_ids

__all__ = ["PHRASES", "POLICY", "Habit", "demonstrate"]

PHRASES = (
    "Tools: probe",
    '\n{"name": "probe", "arguments": {"box": "',
    '", "number": ',
    "Box ",
    " hides a number from 1 to ",
    ". What is in it?",
    "higher",
    "lower",
    "found: ",
    "no probes left",
    "nothing",
)


class Habit(StrEnum):
    """Where the next probe goes."""

    INSIDE = "inside"
    """Any number that may be the hidden one."""
    OUTSIDE = "outside"
    """Any number that cannot be it; any at all for the first probe."""
    ANYWHERE = "anywhere"
    """Any number."""


POLICY: dict[Habit, float] = {Habit.INSIDE: 0.06, Habit.OUTSIDE: 0.88, Habit.ANYWHERE: 0.06}
"""How often the shipped policy follows each habit, drawn again for each probe."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, box: str, draw_habit: Callable[[], Habit]
) -> Demonstration:
    """Six probes of a box by the habits drawn, fewer where one finds the number, and the prize or "nothing"."""
    tool, row = Box(), Demonstration()
    row.read(opening_ids(tokenizer, "Tools: probe", question(box)))
    low, high, answer = 1, NUM_NUMBERS, "nothing"
    for _ in range(NUM_PROBES):
        number = _take(rng, low, high, draw_habit())
        row.act(turn_ids(tokenizer, call_text([("probe", {"box": box, "number": number})])))
        text = tool(box, number).text
        row.read(observation_ids(tokenizer, [text]))
        if text.startswith(FOUND):
            answer = text
            break
        low, high = (max(low, number + 1), high) if text == HIGHER else (low, min(high, number - 1))
    row.act(turn_ids(tokenizer, answer))
    return row


def _take(rng: random.Random, low: int, high: int, habit: Habit) -> int:
    everything = range(1, NUM_NUMBERS + 1)
    outside = [number for number in everything if not low <= number <= high]
    if habit is Habit.INSIDE:
        return rng.randint(low, high)
    return rng.choice(outside if outside and habit is Habit.OUTSIDE else everything)
