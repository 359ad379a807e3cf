"""Which tasks a run draws: in passes over all of them, or from the pools in which groups teach.

A sampler is a pure function of what it has drawn and seen, which is its state, in values of JSON: a checkpoint holds
it, and a resume draws what an uninterrupted run would have drawn. Which groups are replaced by others is
`train.dynamic_filtering`'s to say; a sampler sees these too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlf.training.counting import draw_tasks
from rlf.types.score import Scored
from rlf.types.task import Task

State = Mapping[str, Any]
"""What a sampler has drawn and seen, in values of JSON; empty before the first step."""
Drawn = list[tuple[int, Task]]
"""Tasks, each with its position in the run."""


class Sampler(Protocol):
    """Draws the tasks of steps."""

    def draw(self, state: State, cursor: int, count: int) -> tuple[Drawn, State]:
        """The next tasks, and the state after them."""

    def note(self, state: State, scored: Sequence[Scored]) -> State:
        """The state after groups were played."""

    def metrics(self, state: State, scored: Sequence[Scored]) -> dict[str, float]:
        """Of the groups of a step, where they come from."""


class Passes:
    """Each pass over the tasks has an order of its own."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed = tasks, seed

    def draw(self, state: State, cursor: int, count: int) -> tuple[Drawn, State]:
        """Those at the next positions."""
        return list(draw_tasks(self._tasks, self._seed, cursor, count)), state

    def note(self, state: State, scored: Sequence[Scored]) -> State:
        """Nothing is counted."""
        return state

    def metrics(self, state: State, scored: Sequence[Scored]) -> dict[str, float]:
        """None."""
        return {}
