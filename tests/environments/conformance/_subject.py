"""What a kind of world is tried with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rlf.types import Message, Task, ToolCall

Action = ToolCall | str
"""A call, or the words of a turn that calls nothing."""


@dataclass(frozen=True)
class Subject:
    """A kind's world, and what makes it do well, hang and break."""

    env: dict[str, Any]
    solve: Sequence[Action]
    """Earns 1 of the score `score`; doing nothing earns less."""
    score: str
    hang: Sequence[Action]
    """Does not end by itself for long."""
    breaks: Sequence[Action]
    """Breaks the world."""
    says: str
    """Stands in the failure of a broken world."""
    task: Task = field(default_factory=lambda: Task("t", (Message("user", "Go."),), 3, columns={"answer": 3}))
    shares_fate: bool = False
    """Whether worlds wait for one that hangs, until it is given up."""
