"""What the page shows and does of worlds, each in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlf.apps.worlds import worlds
from rlf.apps.worlds.worlds import WorldKind, WorldScene


def list_worlds() -> list[WorldKind]:
    """`rlf env list`: kinds of worlds, and the specs that have one."""
    return worlds.list_worlds()


def play_world(spec: str, number: int, actions: Sequence[str | dict[str, Any]]) -> WorldScene:
    """`rlf env play`: the world of a spec after some actions."""
    return worlds.play_world(spec, number, actions)


TASKS = (list_worlds, play_world)
