"""Demonstrations of the boxes: numbers at random, given up early, and no bisection."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from rlf.builtin.bisect.box import FOUND, HIGHER, LOWER, NUM_NUMBERS, NUM_PROBES, SPENT, Box, hidden_number, question
from rlf.builtin.tiny.demonstrations import Demonstration
from rlf.builtin.tiny.layout import call_text, observation_ids, opening_ids, turn_ids

__all__ = ["PHRASES", "POLICY", "Habit", "demonstrate", "drill"]

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


_NEAR = (1, 2, 4, 8, 16)
"""How far from the hidden number a drill's given probes may be."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, box: str, draw_habit: Callable[[], Habit]
) -> Demonstration:
    """Probes of a box by the habits drawn, six unless one finds the number or gives up, and the prize or "nothing"."""
    return _probe(tokenizer, rng, box, [], draw_habit)


def drill(tokenizer: PreTrainedTokenizerFast, rng: random.Random, box: str) -> Demonstration:
    """Probes at random where the number may be, after some that are only read and leave few such numbers."""
    hidden = hidden_number(box)
    given = [hidden + rng.choice((-1, 1)) * rng.randint(1, rng.choice(_NEAR)) for _ in range(rng.randint(1, 5))]
    return _probe(tokenizer, rng, box, [min(max(number, 1), NUM_NUMBERS) for number in given], lambda: Habit.INSIDE)


def _probe(
    tokenizer: PreTrainedTokenizerFast,
    rng: random.Random,
    box: str,
    given: Sequence[int],
    draw_habit: Callable[[], Habit],
) -> Demonstration:
    tool, row = Box(), Demonstration()
    row.read(opening_ids(tokenizer, "Tools: probe", question(box)))
    low, high, answer = 1, NUM_NUMBERS, "nothing"
    for turn in range(NUM_PROBES):
        is_given = turn < len(given)
        habit = None if is_given else draw_habit()
        if habit is Habit.GIVE_UP:
            break
        if is_given:
            number = given[turn]
        else:
            number = rng.randint(low, high) if habit is Habit.INSIDE else rng.randint(1, NUM_NUMBERS)
        write = row.read if is_given else row.act
        write(turn_ids(tokenizer, call_text([("probe", {"box": box, "number": number})])))
        text = tool(box, number).text
        row.read(observation_ids(tokenizer, [text]))
        if text.startswith(FOUND):
            answer = text
            break
        low, high = (max(low, number + 1), high) if text.startswith(HIGHER) else (low, min(high, number - 1))
    row.act(turn_ids(tokenizer, answer))
    return row
