"""Samples of rules: options and trajectories with known values, for conformance and `rlf rewards test`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """Trajectories whose values are known; `gold` is what `TrajectoryFacts` takes."""

    gold: Mapping[str, Any]
    """A trajectory that could not be better."""
    best: float = 1.0
    """Its value."""
    malformed: float = 0.0
    """Value for the same task of a trajectory whose only turn could not be parsed."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that the rule must have for it."""
