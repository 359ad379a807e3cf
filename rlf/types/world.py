"""Worlds as the rollout loop sees them, and what of a world is kept with a trajectory.

A world belongs to one trajectory: its tools share a state that nothing else sees. A world's own failure is
infrastructure, typed by the phase in which it failed; it is never a score.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from rlf.types.task import Task
from rlf.types.tool import ToolDescription


class Phase(StrEnum):
    """A request to a world."""

    RESET = "reset"
    """To be made and brought to its first state."""
    STEP = "step"
    """To run a call."""
    REPLY = "reply"
    """To answer a turn that calls nothing."""
    SCORE = "score"
    """To score its final state."""
    CLOSE = "close"
    """To give back what it holds."""


class WorldFailure(Exception):
    """A world could not do what it was asked: the trajectory is unscorable."""

    def __init__(self, world: str, phase: Phase, reason: str, *, is_gone: bool = False) -> None:
        """Takes what failed, in which request and why. Args: is_gone: whether to wait for it is in vain."""
        super().__init__(f"world {world}: {phase}: {reason}")
        self.world, self.phase, self.reason, self.is_gone = world, phase, reason, is_gone


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a world's state."""

    call: int | None
    """Place of the call that made it among the calls of its turn; None: the reply to the turn did."""
    sha256: str
    """Of the state after it."""
    difference: str = ""
    """What changed, line by line; empty where the world cannot say."""


@dataclass(frozen=True, slots=True)
class WorldStep:
    """Changes that a turn made to the world, and the world's answer."""

    changes: tuple[StateChange, ...] = ()
    reward: float | None = None
    """Sum of the rewards of the turn's steps; None where the world gave none."""
    reply: str | None = None
    """The world's answer to a turn that calls nothing; None: it gave none."""
    is_over: bool = False
    """Whether the episode ended with it."""


@dataclass(frozen=True, slots=True)
class WorldRecord:
    """Record of a trajectory's world."""

    kind: str
    name: str | None = None
    """Its name, where there are several worlds."""
    observation: str | None = None
    """The world's text at its reset, which the prompt holds; None: it gave none."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Its own scores of the final state, by name; empty where there was no scoring."""
    first_state: str = ""
    """sha256 of the state after the reset; empty where the world shows none."""
    final_state: Any = None
    """The state at the end, as JSON values, with `env.keep_state`."""
    failed: Phase | None = None
    """What it failed in; None: in nothing."""
    world_s: float = 0.0
    """Time that reset, steps, replies and scoring took together."""


class Episode(Protocol):
    """The world of one trajectory."""

    @property
    def speaks(self) -> bool:
        """Whether it may answer turns that call nothing."""

    @property
    def record(self) -> WorldRecord:
        """Its record so far."""

    def owns(self, tool: str) -> bool:
        """Whether a tool is the world's: its calls are made one after the other, in the order of the turn."""

    async def reset(self) -> str | None:
        """Makes the world ready for its task, once. What it says first, if anything. Raises WorldFailure."""

    async def reply(self, text: str) -> None:
        """Lets the world answer a turn that calls nothing. Raises WorldFailure."""

    def take_step(self) -> WorldStep:
        """The changes since the last step, by calls and the reply."""

    async def score(self, turns: Sequence[Any] = ()) -> None:
        """Scores the final state, which the record then holds, and the model's `Turn`s. Raises WorldFailure."""

    async def close(self) -> None:
        """Gives back all that the world holds; never raises for what the world does."""


class DescribesTools(Protocol):
    """A kind of world, or worlds of one."""

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription] | None:
        """The tools that trajectories of a row see, where it describes them; None: the declared ones."""

    def foreign_tools(self, columns: Mapping[str, Any]) -> Collection[str]:
        """Names of declared tools that belong to the worlds of other rows."""


class Worlds(DescribesTools, Protocol):
    """Where the rollout loop takes worlds from."""

    def open(self, trajectory_id: str, task: Task) -> Episode:
        """The world of a trajectory, which is not reset yet. Its tools are called under the trajectory's id."""


def shown_tools(
    worlds: DescribesTools | None, declared: Sequence[ToolDescription], task: Task
) -> tuple[ToolDescription, ...]:
    """The tools that a trajectory of a task sees."""
    own = None if worlds is None else worlds.tools_of(task.columns)
    if own is not None:
        return tuple(own)
    foreign = () if worlds is None else worlds.foreign_tools(task.columns)
    return tuple([tool for tool in declared if task.may_use(tool.name) and tool.name not in foreign])
