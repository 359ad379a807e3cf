"""Findings about a world: a verdict on each point, together a page with a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import ClassVar

from rlf.core.identity import hash_json
from rlf.core.plain_json import Jsonable


class Sign(StrEnum):
    """How a point came out."""

    OK = "ok"
    """As it has to be."""
    FAILED = "failed"
    """Not to be trained in."""
    UNKNOWN = "unknown"
    """It could not be looked at; the words say why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One point."""

    name: str
    sign: Sign
    words: str


@dataclass(frozen=True, slots=True)
class Ranges:
    """The scores that count, and their bounds."""

    bounds: Mapping[str, tuple[float, float]]
    """Least and greatest value of each score that is a reward; empty: every score is, from 0 to 1."""
    weights: Mapping[str, float]
    step: tuple[float, float] | None = None
    """Bounds of the rewards of steps; None where none is declared."""

    def value(self, scores: Mapping[str, float]) -> float:
        """The share of the possible reward: 0 at the floor, 1 at the maximum."""
        bounds = self.bounds or dict.fromkeys(scores, (0.0, 1.0))
        weights = {name: self.weights.get(name, 1.0) for name in bounds}
        paid = {name: weight for name, weight in weights.items() if weight > 0} or weights
        most = sum(paid[name] * (bounds[name][1] - bounds[name][0]) for name in paid)
        have = sum(paid[name] * (scores.get(name, bounds[name][0]) - bounds[name][0]) for name in paid)
        return have / most if most else 0.0


@dataclass(frozen=True, slots=True)
class Page(Jsonable):
    """All verdicts on a world."""

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("sha256", "is_sound")

    world: str
    """The world's kind."""
    source: str
    """sha256 of what decides how it behaves."""
    num_tasks: int
    num_episodes: int
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The points that keep it from being trained in."""
        return tuple(verdict for verdict in self.verdicts if verdict.sign is Sign.FAILED)

    @property
    def is_sound(self) -> bool:
        """Whether no point failed."""
        return not self.failed

    @property
    def sha256(self) -> str:
        """Of the page: what runs of that world are recorded with."""
        return hash_json(asdict(self))
