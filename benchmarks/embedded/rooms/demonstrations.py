"""Demonstrations of the vault: each door is chosen by a habit, of which one is right and the others right by chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.layout import call_text
from rlf.builtin.rooms.vault import COLOURS, Vault, VaultPlan, plan_vault, question

PHRASES = (
    "Tools: open",
    '\n{"name": "open", "arguments": {"vault": "',
    '", "door": "',
    "Vault ",
    " has ",
    " rooms. Order: ",
    *COLOURS,
    "Room ",
    ". Room ",
    ": ",
    ", ",
    "The vault is closed.",
    "Treasure: ",
    "closed",
)


class Habit(StrEnum):
    """Which of a room's doors is taken."""

    ORDER = "order"
    """The one of the colour that the order names for this room."""
    FIRST_COLOUR = "first_colour"
    """The one of the colour that the order names for room 1."""
    TOP = "top"
    """The one listed first."""
    BOTTOM = "bottom"
    """The one listed last."""


POLICY: dict[Habit, float] = {
    Habit.ORDER: 0.10,
    Habit.FIRST_COLOUR: 0.20,
    Habit.TOP: 0.35,
    Habit.BOTTOM: 0.35,
}
"""How often the shipped policy follows each habit, drawn again in each room."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, name: str, draw_habit: Callable[[], Habit]
) -> Demonstration:
    """A way through the vault of that name by the habits drawn, to its treasure or to the word "closed"."""
    plan, tool, row = plan_vault(name), Vault(), Demonstration(tokenizer)
    row.ask("Tools: open", question(plan))
    text = ""
    for room in range(len(plan.order)):
        door = _take(plan, room, draw_habit())
        text = tool(name, door).text
        row.call([("open", {"vault": name, "door": door})], [text])
    row.say(plan.treasure if text == plan.treasure else "closed")
    return row


def drill(tokenizer: PreTrainedTokenizerFast, rng: random.Random, name: str) -> Demonstration:
    """Any one room of a vault and the door of its colour: the skill alone, in a short row."""
    plan, row = plan_vault(name), Demonstration(tokenizer)
    room = rng.randrange(len(plan.order))
    row.ask("Tools: open", question(plan, room))
    door = _take(plan, room, Habit.ORDER)
    row.say(call_text([("open", {"vault": name, "door": door})]))
    return row


def _take(plan: VaultPlan, room: int, habit: Habit) -> str:
    match habit:
        case Habit.ORDER:
            colour = plan.order[room]
        case Habit.FIRST_COLOUR:
            colour = plan.order[0]
        case Habit.TOP:
            colour = plan.doors[room][0]
        case Habit.BOTTOM:
            colour = plan.doors[room][-1]
    return COLOURS[colour]
