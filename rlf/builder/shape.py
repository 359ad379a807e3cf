"""The settings of every kind of builder: shapes, lengths, dials, noise, bounds and the split."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.builder.task import Scenario
from rlf.spec.models import Section

Dial = Annotated[int, Field(ge=0, le=3)]
Share = Annotated[float, Field(ge=0, le=1)]
Range = tuple[Annotated[int, Field(ge=1, le=8)], Annotated[int, Field(ge=1, le=8)]]


class Complexity(Section):
    """How far tools are scaled, from 0 to 3 each."""

    function: Dial = 0
    """What a tool returns: 0 the value; 1 a record; 2 a record with other fields; 3 records, with former values of
    relations that are mutable."""
    parameters: Dial = 0
    """Parameters beside what is asked for: 0 none; 1 one with a default; 2 three; 3 a required one too."""
    types: Dial = 0
    """Types of parameters: 0 text; 1 enums and dates; 2 an object for the subject; 3 lists within it, and of keys."""
    toolset: Dial = 0
    """Tools beside those that a task may need: 0, 2, 4 or 8, near-synonyms of the needed ones first."""

    @property
    def num_distractors(self) -> int:
        """The number of those tools."""
        return (0, 2, 4, 8)[self.toolset]


class Noise(StrEnum):
    """Noise in the names of tools and parameters, by RoTBench's levels (arXiv:2401.08326)."""

    CLEAN = "clean"
    """Names that say what they stand for."""
    SLIGHT = "slight"
    """Characters are added, left out or replaced."""
    MEDIUM = "medium"
    """Names are reversed, or letters without sense."""
    HEAVY = "heavy"
    """Tools have each other's names, and need a parameter more."""
    UNION = "union"
    """All of these."""


class Gates(Section):
    """Bounds on policies' mean scores over all tasks."""

    gold: Share = 1.0
    """Least Solve-F1 of the gold calls; a task whose gold calls fail is dropped before."""
    null: Share = 0.0
    """Greatest Solve-F1 of a policy that does nothing."""
    no_tool: Share = 0.02
    """Greatest share of answers that the best constant guess gets right."""
    random: Share = 0.3
    """Greatest Solve-F1 of as many random calls as the task needs."""
    spam: Share = 0.4
    """Greatest Solve-F1 of calling every tool with every name of the question."""


class Split(Section):
    """How tasks are divided."""

    train: Share = 0.8
    validation: Share = 0.1
    heldout: Share = 0.1
    by: tuple[Literal["world", "tools"], ...] = ("world", "tools")
    """What no two parts share: the world's things and values, the tools' names and documents."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if abs(sum(self.shares.values()) - 1) > 1e-9:
            total = f"{sum(self.shares.values()):g}"
            raise PydanticCustomError("split", "the shares add up to {total}; expected 1", {"total": total})
        return self

    @property
    def shares(self) -> dict[str, float]:
        """The shares by the name of the part."""
        return {"train": self.train, "validation": self.validation, "heldout": self.heldout}


class Shape(Section):
    """Settings of what is built, for each kind of builder."""

    scenarios: Mapping[Scenario, Share] = dict.fromkeys(Scenario, 0.25)
    """Share of each shape of task."""
    hops: Range = (2, 4)
    """Calls of a chain, at least and at most."""
    parallel: Range = (2, 3)
    """Chains side by side, at least and at most."""
    complexity: Complexity = Complexity()
    noise: Noise = Noise.CLEAN
    gates: Gates = Gates()
    split: Split = Split()

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name, (low, high) in {"hops": self.hops, "parallel": self.parallel}.items():
            if not 2 <= low <= high:
                words = {"name": name, "low": low, "high": high}
                raise PydanticCustomError("range", "{name}: got [{low}, {high}]; expected [LOW, HIGH] from 2 on", words)
        if abs(sum(self.scenarios.values()) - 1) > 1e-9:
            total = f"{sum(self.scenarios.values()):g}"
            raise PydanticCustomError("scenarios", "the scenarios add up to {total}; expected 1", {"total": total})
        return self


def shares_of(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that add up to a total, as near to the weights as can be; ties go to the first.

    >>> shares_of(10, {"a": 0.5, "b": 0.25, "c": 0.25})
    {'a': 5, 'b': 3, 'c': 2}
    """
    exact = {name: total * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(value + 1e-9) for name, value in exact.items()}
    behind = sorted(weights, key=lambda name: counts[name] - exact[name])
    for name in behind[: total - sum(counts.values())]:
        counts[name] += 1
    return counts
