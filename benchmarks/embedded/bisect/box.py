"""The boxes and the tool that probes them. What a box hides follows from its name: no file is needed."""

from __future__ import annotations

import random
from typing import ClassVar

from rlf.builtin.encyclopedia.names import ENDS, STARTS
from rlf.types import ToolOutput

__all__ = ["Box", "BoxFour", "BoxLying", "BoxWide", "ceiling", "hidden_number", "prize", "question"]

FOUND, HIGHER, LOWER, SPENT = "found: ", "higher than ", "lower than ", "no probes left"
NUM_NUMBERS, NUM_PROBES = 63, 6


def hidden_number(box: str, num_numbers: int = NUM_NUMBERS) -> int:
    """The number from 1 to `num_numbers` that a box hides."""
    return random.Random(f"box:{box}").randint(1, num_numbers)


def prize(box: str) -> str:
    """What a box shows when it is found, and the right answer: `found: Botlux`."""
    rng = random.Random(f"prize:{box}")
    return FOUND + rng.choice(STARTS) + rng.choice(ENDS)


def question(box: str, num_numbers: int = NUM_NUMBERS) -> str:
    """What is asked of the model."""
    return f"Box {box} hides a number from 1 to {num_numbers}. What is in it?"


def ceiling(num_numbers: int, num_probes: int) -> float:
    """The share of boxes that the best policy finds: k probes distinguish 2^k - 1 numbers, each equally likely."""
    return min(1.0, (2.0**num_probes - 1) / num_numbers)


class Box:
    """Probe a box for its hidden number; the right one opens it."""

    num_numbers: ClassVar[int] = NUM_NUMBERS
    num_probes: ClassVar[int] = NUM_PROBES

    def __init__(self) -> None:
        self._num_done = 0
        self._bounds_by_box: dict[str, tuple[int, int]] = {}

    def __call__(self, box: str, number: int) -> ToolOutput:
        """Says where the hidden number is (`higher than 20`), what the box holds, or that no probe is left.

        The structured result has how well the probe halves the numbers that were possible: 1 in their middle, less
        towards their ends, 0 outside of them.
        """
        if self._num_done == self.num_probes:
            return ToolOutput(SPENT, structured={"is_goal": False})
        self._num_done += 1
        hidden = hidden_number(box, self.num_numbers)
        halving = self._narrow(box, number, hidden)
        if number == hidden:
            return ToolOutput(prize(box), structured={"is_goal": True, "halving": halving})
        text = f"{self._direction(is_higher=hidden > number)}{number}"
        return ToolOutput(text, structured={"is_goal": False, "halving": halving})

    def _narrow(self, box: str, number: int, hidden: int) -> float:
        """Keeps the numbers that are still possible, none once it is found; returns how well the probe halves them."""
        low, high = self._bounds_by_box.get(box, (1, self.num_numbers))
        num_less, num_more = number - low, high - number
        halving = max(0.0, (min(num_less, num_more) + 1) / max(1, (high - low + 2) // 2))
        if number <= hidden:
            low = max(low, number + 1)
        if number >= hidden:
            high = min(high, max(number - 1, hidden))
        self._bounds_by_box[box] = low, high
        return halving

    def _direction(self, *, is_higher: bool) -> str:
        return HIGHER if is_higher else LOWER


class BoxFour(Box):
    """Control: four probes, with which no policy finds more than 15 of 63 numbers."""

    num_probes = 4


class BoxLying(Box):
    """Control: every second probe points the wrong way."""

    def _direction(self, *, is_higher: bool) -> str:
        return super()._direction(is_higher=is_higher == (self._num_done % 2 == 1))


class BoxWide(Box):
    """Held out: numbers from 1 to 127 and seven probes."""

    num_numbers = 127
    num_probes = 7
