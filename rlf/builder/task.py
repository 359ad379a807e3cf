"""A built task: a graph of calls, each with the value that it finds, and the answer made of the last ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = str | int | float
"""The result of a call: a name or a number."""

REFERENCE = "$step"
"""Key of a placeholder in arguments: `{"$step": 0}` stands for the value that the first call finds."""


class Scenario(StrEnum):
    """FTRL's four shapes of tasks."""

    SINGLE = "single"
    """One call."""
    PARALLEL_SINGLE = "parallel_single"
    """Several calls, none of which needs another."""
    MULTI = "multi"
    """A chain: each call needs what the one before has found."""
    PARALLEL_MULTI = "parallel_multi"
    """Several chains."""

    @property
    def is_chain(self) -> bool:
        """Whether calls need what others have found."""
        return self in (Scenario.MULTI, Scenario.PARALLEL_MULTI)

    @property
    def is_parallel(self) -> bool:
        """Whether calls or chains stand side by side."""
        return self in (Scenario.PARALLEL_SINGLE, Scenario.PARALLEL_MULTI)


class Join(StrEnum):
    """How the answer combines the values at the ends of the graph."""

    VALUE = "value"
    """The value itself."""
    LIST = "list"
    """The values, in the order of the question."""
    SUM = "sum"
    """Their sum."""
    DIFFERENCE = "difference"
    """The distance between two numbers."""
    LARGEST = "largest"
    """The greatest number."""
    SMALLEST = "smallest"
    """The least number."""

    def of(self, values: Sequence[Value]) -> str:
        """The answer as text."""
        if self in (Join.VALUE, Join.LIST):
            return ", ".join(map(str, values))
        numbers = [value for value in values if not isinstance(value, str)]
        assert len(numbers) == len(values), f"{self} of {values}"
        match self:
            case Join.SUM:
                return str(sum(numbers))
            case Join.DIFFERENCE:
                return str(abs(numbers[0] - numbers[1]))
            case Join.LARGEST:
                return str(max(numbers))
        return str(min(numbers))


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the graph, which answers one sub-question."""

    question: str
    tool: str
    arguments: Mapping[str, Any]
    """With placeholders where the values of earlier steps go."""
    gold: Value
    needs: tuple[int, ...] = ()
    """Steps whose values it takes."""

    def filled(self, values: Sequence[Value]) -> Mapping[str, Any]:
        """The arguments with the values of earlier steps."""
        filled: Mapping[str, Any] = _fill_value(self.arguments, values) if self.needs else self.arguments
        return filled


def _fill_value(value: Any, values: Sequence[Value]) -> Any:
    if isinstance(value, dict):
        if REFERENCE in value:
            return values[value[REFERENCE]]
        return {key: _fill_value(child, values) for key, child in value.items()}
    return [_fill_value(child, values) for child in value] if isinstance(value, list) else value


def ends_of(needs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The steps whose values no other step needs, from those that each step needs."""
    needed = {need for each in needs for need in each}
    return tuple(number for number in range(len(needs)) if number not in needed)


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    id: str
    split: str
    world: str
    scenario: Scenario
    question: str
    answer: str
    join: Join
    steps: tuple[Step, ...]
    tools: tuple[str, ...]
    """Those that the model is shown."""
    names: tuple[str, ...]
    """The names in the question, which policies that solve nothing try."""
    guess: float = 0.0
    """Chance that the best constant guess is right."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps whose values make the answer: those that no other needs."""
        return ends_of([step.needs for step in self.steps])

    @property
    def unsolved_set(self) -> dict[str, list[Value]]:
        """The golds of the sub-questions by tool, as FTRL has them."""
        golds: dict[str, list[Value]] = {}
        for step in self.steps:
            golds.setdefault(step.tool, []).append(step.gold)
        return golds

    def row(self) -> dict[str, Any]:
        """The row of a data file."""
        steps = [
            {"question": s.question, "tool": s.tool, "arguments": s.arguments, "gold": s.gold, "needs": list(s.needs)}
            for s in self.steps
        ]
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.answer,
            "scenario": self.scenario.value,
            "tools": list(self.tools),
            "unsolved_set": self.unsolved_set,
            "steps": steps,
            "join": self.join.value,
            "names": list(self.names),
            "guess": self.guess,
            "world": self.world,
            "split": self.split,
        }


def read_task(row: Mapping[str, Any]) -> Task:
    """The task of a row, as `Task.row` writes it."""
    steps = tuple(Step(**{**step, "needs": tuple(step["needs"])}) for step in row["steps"])
    return Task(
        id=row["id"],
        split=row["split"],
        world=row["world"],
        scenario=Scenario(row["scenario"]),
        question=row["question"],
        answer=row["answer"],
        join=Join(row["join"]),
        steps=steps,
        tools=tuple(row["tools"]),
        names=tuple(row["names"]),
        guess=row["guess"],
    )
