"""The certificate of a world: the checks of its tasks and their results, beside the data, in `certificate.json`.

It holds no time and no path, so that the same build gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlf.builder.kind import Part
from rlf.builder.proof import POLICIES
from rlf.builder.settings import BuildSettings
from rlf.core.plain_json import Jsonable

ALL = "all"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Gate(Jsonable):
    """One bound on a policy's score over all tasks."""

    name: str
    measured: float
    bound: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Certificate(Jsonable):
    """Results of a build."""

    build_sha256: str
    """Of the settings, without the folder."""
    tasks: Mapping[str, Mapping[str, int]]
    """Tasks by part of the split and scenario."""
    figures: Mapping[str, Mapping[str, float]]
    """By scenario, and for all: tasks, mean gold calls, the chance of a guess, and P, R, F1 of each policy."""
    gates: tuple[Gate, ...]
    dropped: Mapping[str, int]
    """Tasks that were made and not kept, by stage and reason."""
    spent: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file of the world."""

    @property
    def holds(self) -> bool:
        """Whether every gate holds."""
        return all(gate.holds for gate in self.gates)


class Tally:
    """Sums over parts."""

    def __init__(self) -> None:
        self._figures: dict[str, Counter[str]] = {}
        self._tasks: dict[str, Counter[str]] = {}
        self._dropped: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()

    def add(self, part: Part) -> None:
        """Counts a part."""
        for scenario, sums in part.figures.items():
            for name in (scenario, ALL):
                self._figures.setdefault(name, Counter()).update(sums)
        for task in part.tasks:
            self._tasks.setdefault(task.split, Counter())[task.scenario.value] += 1
        self._dropped.update(part.dropped)
        self._spent.update(part.spent)

    @property
    def num_tasks(self) -> int:
        """Tasks counted."""
        return sum(counter.total() for counter in self._tasks.values())

    @property
    def dropped(self) -> Mapping[str, int]:
        """Tasks that were not kept, by reason, most first."""
        return dict(sorted(self._dropped.items(), key=lambda item: (-item[1], item[0])))

    def certificate(self, settings: BuildSettings, files: Mapping[str, str]) -> Certificate:
        """The certificate of all parts."""
        figures = {name: _mean_scores(self._figures[name]) for name in sorted(self._figures)}
        return Certificate(
            build_sha256=settings.sha256,
            tasks={split: dict(sorted(counts.items())) for split, counts in self._tasks.items()},
            figures=figures,
            gates=tuple(_check_gates(settings, figures[ALL])) if figures else (),
            dropped=self.dropped,
            spent={name: round(value, _DIGITS) for name, value in sorted(self._spent.items())},
            files=files,
        )


def _mean_scores(sums: Mapping[str, float]) -> dict[str, float]:
    """The means over the tasks, and their number."""
    num_tasks = sums["tasks"]
    means = {name: round(value / num_tasks, _DIGITS) for name, value in sums.items() if name != "tasks"}
    return {"tasks": num_tasks, **means}


def _check_gates(settings: BuildSettings, means: Mapping[str, float]) -> Iterable[Gate]:
    bounds = settings.gates
    yield Gate("gold", means["gold/f1"], bounds.gold, means["gold/f1"] >= bounds.gold)
    for name in ("null", "random", "spam"):
        assert name in POLICIES
        bound: float = getattr(bounds, name)
        yield Gate(name, means[f"{name}/f1"], bound, means[f"{name}/f1"] <= bound)
    yield Gate("no_tool", means["no_tool"], bounds.no_tool, means["no_tool"] <= bounds.no_tool)


def read_certificate(value: Mapping[str, Any]) -> Certificate:
    """The certificate of a JSON value that `Certificate.to_json` made."""
    return Certificate(**{**value, "gates": tuple(Gate(**gate) for gate in value["gates"])})
