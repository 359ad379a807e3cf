"""The options of an evaluation, and which of them decide its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.api.targets import Target
from rlf.core.errors import RlfError
from rlf.lineage.records import RunRecord
from rlf.spec.models import Schedule
from rlf.training.evaluation import GREEDY, SAMPLED

SECTION = "evaluation"
"""Of a recorded plan: what makes it an evaluation."""
BATCH = 128
"""Trajectories that are played together under `schedule: logical`: what a killed evaluation plays again, at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of one evaluation; None leaves a value to the spec."""

    files: Sequence[Path] = ()
    overrides: Sequence[str] = ()
    data: str | None = None
    num_samples: int | None = None
    temperature: float | None = None
    greedy: bool = False
    """Whether every question is answered greedily, once, and not sampled."""
    limit: int | None = None
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        if self.temperature == 0.0:
            raise RlfError("--temperature: got 0, at which every sample is the same. Write --greedy instead.")
        if self.greedy and (self.num_samples is not None or self.temperature is not None):
            option = "-k" if self.num_samples is not None else "--temperature"
            raise RlfError(
                f"--greedy and {option}: greedy decoding gives one answer and has no temperature. Remove one of the "
                "two."
            )

    @property
    def changes(self) -> list[str]:
        """The options as overrides of a spec."""
        values = {
            "eval.num_samples": self.num_samples,
            "eval.temperature": self.temperature,
            "eval.limit": self.limit,
            "rollout.max_concurrency": self.max_concurrency,
        }
        return [*self.overrides, *(f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None)]

    @property
    def is_plain(self) -> bool:
        """Whether only the target is given, so that a recorded evaluation is repeated."""
        return self == Asked()


@dataclass(frozen=True, slots=True)
class Trial:
    """The settings that decide an evaluation's numbers beside spec and data; the lineage keeps them."""

    target: str
    """As `Target.name`."""
    modes: tuple[str, ...]
    """`sampled`, `greedy`."""
    step: int
    """Updates that the model has seen; 0 where that is not known."""
    batch: int | None
    """Trajectories that are played together; None: all of a mode."""
    endpoint: Mapping[str, Any] | None = None
    """Address and name of the model of a server."""
    model: str | None = None
    """The model that was named where it is no run's: a folder or an id."""

    @classmethod
    def of(cls, target: Target, asked: Asked) -> Trial:
        """The trial of a target."""
        modes = (GREEDY,) if asked.greedy else (SAMPLED, GREEDY) if target.spec.eval.greedy else (SAMPLED,)
        logical = target.spec.rollout.schedule is Schedule.LOGICAL and target.endpoint is None
        batch = BATCH if logical and not asked.is_plain else None
        endpoint = None if target.endpoint is None else target.endpoint.model_dump(mode="json", exclude_defaults=True)
        model = target.name if target.record is None and target.endpoint is None else None
        return cls(target.name, modes, target.step or 0, batch, endpoint, model)

    @classmethod
    def recorded(cls, record: RunRecord) -> Trial:
        """The trial of a recorded evaluation."""
        values = dict(record.plan[SECTION])
        return cls(**(values | {"modes": tuple(values["modes"])}))

    @property
    def key(self) -> tuple[object, ...]:
        """The part that decides the results, beside spec and model."""
        return (self.modes, self.step, self.batch, self.endpoint)
