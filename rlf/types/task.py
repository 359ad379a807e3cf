"""A task: one row of a dataset, the thing a trajectory tries to solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt, in the chat sense."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, slots=True)
class Task:
    """What the model is asked, and what the reward terms may know about it."""

    id: str
    """Unique and stable within its dataset: pairs the same question across runs."""
    messages: tuple[Message, ...]
    answer: Any = None
    """The gold answer or answers; None where no term needs one. The policy never sees it."""
    kind: str | None = None
    """Question kind for reports (`two_hop`); None when the data does not say."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every column of the row, for reward terms."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that its trajectories see and may call; None: every declared one."""

    def may_use(self, tool: str) -> bool:
        """Whether its trajectories may call a tool of that name."""
        return self.tools is None or tool in self.tools
