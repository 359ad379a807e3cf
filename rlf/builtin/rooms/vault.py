"""The vaults and the tool that opens them. All of a vault follows from its name: no file is needed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rlf.builtin.encyclopedia.names import ENDS, STARTS
from rlf.types import ToolOutput

__all__ = [
    "CLOSED",
    "COLOURS",
    "MAX_ROOMS",
    "MIN_ROOMS",
    "Vault",
    "VaultPlan",
    "VaultReversed",
    "VaultShuffled",
    "chance",
    "plan_vault",
    "question",
]

COLOURS = ("red", "blue", "green")
MIN_ROOMS, MAX_ROOMS = 3, 6
CLOSED = "The vault is closed."


@dataclass(frozen=True, slots=True)
class VaultPlan:
    """One vault."""

    name: str
    order: tuple[int, ...]
    """The right colour of each room."""
    doors: tuple[tuple[int, ...], ...]
    """For each room, the colours of its doors in the order in which they are listed."""
    treasure: str
    """What the last room shows, and the right answer: `Treasure: Botlux`."""

    def room_text(self, room: int) -> str:
        """What a room shows: `Room 2: blue, red, green`."""
        return f"Room {room + 1}: {', '.join(COLOURS[colour] for colour in self.doors[room])}"


@cache
def plan_vault(name: str) -> VaultPlan:
    """The vault of that name; it decides the number of rooms too."""
    rng = random.Random(f"vault:{name}")
    num_rooms = rng.randint(MIN_ROOMS, MAX_ROOMS)
    colours = range(len(COLOURS))
    order = tuple(rng.choices(colours, k=num_rooms))
    doors = tuple(tuple(rng.sample(colours, k=len(COLOURS))) for _ in range(num_rooms))
    return VaultPlan(name, order, doors, f"Treasure: {rng.choice(STARTS)}{rng.choice(ENDS)}")


def question(plan: VaultPlan, room: int = 0) -> str:
    """The order of colours and the doors of a room, the first unless a drill begins further on."""
    order = ", ".join(f"{room} {COLOURS[colour]}" for room, colour in enumerate(plan.order, start=1))
    return f"Vault {plan.name} has {len(plan.order)} rooms. Order: {order}. {plan.room_text(room)}"


def chance(num_rooms: int) -> float:
    """The success of a policy that does not look at the order of colours: one door of three in each room."""
    return 1.0 / float(len(COLOURS) ** num_rooms)


class Vault:
    """Go through a door of a vault's latest room. The last holds the treasure, if every door was right.

    A door of another vault than the first call's is a wrong one.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._room = 0
        self._is_closed = False

    def __call__(self, vault: str, door: str) -> ToolOutput:
        """Returns the next room's doors, or what the last room holds."""
        plan = plan_vault(vault)
        self._name = self._name or vault
        if self._room >= len(plan.order):
            return ToolOutput(CLOSED, structured={"is_right": False, "is_goal": False})
        colour = self._order(plan)[self._room]
        is_right = door == COLOURS[colour] and vault == self._name
        self._is_closed = self._is_closed or not is_right
        self._room += 1
        if self._room < len(plan.order):
            text = plan.room_text(self._room)
        else:
            text = CLOSED if self._is_closed else plan.treasure
        return ToolOutput(text, structured={"is_right": is_right, "is_goal": text == plan.treasure})

    def _order(self, plan: VaultPlan) -> Sequence[int]:
        return plan.order


class VaultReversed(Vault):
    """Control: the right colours are the question's from its end."""

    def _order(self, plan: VaultPlan) -> Sequence[int]:
        return plan.order[::-1]


class VaultShuffled(Vault):
    """Control: the right colours are drawn apart from the question."""

    def _order(self, plan: VaultPlan) -> Sequence[int]:
        return random.Random(f"shuffled:{plan.name}").choices(range(len(COLOURS)), k=len(plan.order))
