"""The world of one trajectory, as a kind implements it.

A kind knows its world and nothing of deadlines, permits, records or models: the pool has these, the same for every
kind. All methods but `close` may raise: a `ToolFailure` out of `call` is a refusal that the model reads, anything else
is the world's own failure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlf.types import Task, ToolCall


class Step(NamedTuple):
    """Result of a call, or of a turn without calls."""

    said: Any
    """Of a call: text, a `ToolOutput`, or any value that JSON can write. Of a reply: text; None: nothing."""
    reward: float | None = None
    """For this step alone; None: the world gives none."""
    done: bool = False
    """Whether the episode is over."""


class World(ABC):
    """One world. Its methods are awaited one after the other, never side by side."""

    ends_when_cancelled: bool = False
    """Whether no code of others runs on the event loop, so that a cancelled call ends at once."""
    shows_state: bool = False
    """Whether `state` gives something: it is asked after the reset and after every step."""

    @abstractmethod
    async def reset(self, task: Task, seed: int) -> str | None:
        """Brings the world to the first state of a task, once. Returns its first text, or None.

        Args:
            seed: the same for all trajectories of a task, so that their worlds begin equal.
        """

    async def call(self, call: ToolCall) -> Step:
        """Runs one call of a tool of the world, whose arguments satisfy its schema.

        Raises:
            ToolFailure: the call is refused; the model reads why, and the world goes on.
        """
        raise NotImplementedError(f"{type(self).__name__} has no tools")

    async def reply(self, text: str) -> Step:
        """Answers a turn that calls nothing; of worlds that speak."""
        return Step(None)

    @abstractmethod
    async def score(self) -> Mapping[str, float]:
        """Scores of the state as it is, by name. The world is asked once, at the end."""

    async def gold(self) -> Sequence[ToolCall | str] | None:
        """Calls and answers that solve the task from its first state; None where they are not known.

        For tests of worlds alone: asked after `reset`, and never shown to a policy.
        """
        return None

    async def state(self) -> Any:
        """The state as JSON values: equal where the worlds are equal. A large one by hashes of its parts."""
        return None

    async def snapshot(self) -> Any:
        """The world as a value that pickle takes; None if only repeating its calls restores it."""
        return None

    async def restore(self, snapshot: Any) -> None:
        """Brings a new world to a `snapshot`, instead of `reset`."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    async def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Releases what the world holds, in any state; called once, also without a reset."""
