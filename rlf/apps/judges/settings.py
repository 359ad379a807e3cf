"""Keys of a judge that are sections of their own, and the words that its keys take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from rlf.core.files import is_folder_name
from rlf.core.kinds import StrictModel
from rlf.endpoints.spec import EndpointSpec, SamplingSpec


class Compare(StrEnum):
    """The trajectories that one verdict is about."""

    POINTWISE = "pointwise"
    """One trajectory by itself: a score within `range`, or one for each criterion."""
    PAIRWISE = "pairwise"
    """Two answers, in both orders: 1 for the better one, 0 for the worse one, 1/2 for a tie."""
    GROUP = "group"
    """All rollouts of a task at once, put in order: 1 for the best of n, 0 for the last, (n - place) / (n - 1)."""


class Against(StrEnum):
    """The other side of a comparison."""

    GOLD = "gold"
    """The task's gold answer; of several the first."""
    GROUP = "group"
    """Every other rollout of the task; the value is the mean over them."""


class Read(StrEnum):
    """How the verdict is read from the reply."""

    JSON = "json"
    """The reply is one JSON object, which the server holds to its schema where it can."""
    TAG = "tag"
    """The verdict stands in a tag: `<score>7</score>`, or one named like each criterion."""
    EXPECTED = "expected"
    """The expected value over the probabilities of the tokens that are verdicts."""


class Combine(StrEnum):
    """How votes become one value."""

    MEDIAN = "median"
    """The middle one, which a single odd vote does not move."""
    MEAN = "mean"
    """The sum over their number."""


class OnDrift(StrEnum):
    """The consequence of an alarm of the sentinels."""

    WARN = "warn"
    """The run continues; the alarm is an event in the lineage."""
    FREEZE = "freeze"
    """The same, and the term has no value any more: `unscorable: drop_term` sums the others without it."""
    STOP = "stop"
    """The run ends as failed."""


def _beside_the_file(path: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    return path if folder is None else os.path.normpath(Path(folder) / Path(path).expanduser())


def _folder_beside_the_file(model: str, info: ValidationInfo) -> str:
    return _beside_the_file(model, info) if is_folder_name(model) else model


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_beside_the_file)]
"""A path that is relative to the file that says so."""


class Criterion(StrictModel, allow_inf_nan=False):
    """One thing that a judge looks at, with a score of its own."""

    name: str = Field(pattern=r"^[A-Za-z_]\w*$")
    """Its name in the reply."""
    text: str = Field(min_length=1)
    """What it asks for, in words for the judge."""
    weight: float = Field(default=1.0, gt=0)
    """Its share in the value: sum(weight x score) / sum(weight)."""


class Cache(StrictModel, allow_inf_nan=False):
    """Replies that were given before, by judge, prompt and sampling."""

    file: FilePath | None = None
    """SQLite file that keeps them over runs; null: they are kept while the term is open."""
    max_replies: int = Field(default=50_000, ge=1)
    """Replies in memory; the one not used for longest goes first."""


class Serve(StrictModel, allow_inf_nan=False):
    """A model that rlf serves on this machine, as `rlf serve` does; one that takes GPUs has `endpoints`."""

    model: Annotated[str, Field(min_length=1), AfterValidator(_folder_beside_the_file)]
    """A folder (`./name`), a Hugging Face id or a `builtin:` name."""
    start_s: float = Field(default=900.0, gt=0)
    """Time to load the model."""


class Sentinels(StrictModel, allow_inf_nan=False):
    """Items with known verdicts, slipped in among the others to see whether the judge still judges as it should.

    Each is right or wrong by whether judge and label lie on the same side of `threshold`. The alarm is of CUSUMs (Page
    1954): one of errors, S = max(0, S + log(drifted / tolerated)) for an error and S + log((1 - drifted) / (1 -
    tolerated)) else, and four of the values of right verdicts less the judge's own mean on their side, which find a
    judge that inflates, deflates, compresses or spreads them by 0.2. A chart that gives an alarm starts again from 0.
    """

    file: FilePath
    """JSONL, as `rlf rewards calibrate` takes it: trajectories with a `label`."""
    rate: float = Field(default=0.05, gt=0, le=1)
    """Sentinels for each trajectory; at least one in every step. Their replies are never taken from the cache."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """Value, between 0 and 1, from which a verdict is a good one."""
    tolerated: float = Field(default=0.1, gt=0, lt=1)
    """Share of errors of a judge that is as it should be."""
    drifted: float = Field(default=0.3, gt=0, lt=1)
    """Share of errors that is to be found out."""
    run_length: int = Field(default=5000, ge=100, le=1_000_000)
    """Sentinels between two false alarms, on average at least, of a judge that errs as tolerated."""
    alarm: float | None = Field(default=None, gt=0)
    """Height of the errors' S, in place of the one that keeps `run_length`."""
    window: int = Field(default=50, ge=2)
    """Latest sentinels that `rewards/<term>/kappa` is over."""
    on_drift: OnDrift = OnDrift.WARN


def is_about_groups(compare: Compare, against: Against) -> bool:
    """Whether the rollouts of a task are compared with each other, so that each waits for all."""
    return compare is Compare.GROUP or (compare is Compare.PAIRWISE and against is Against.GROUP)


@dataclass(frozen=True, slots=True)
class Judging:
    """A judge term's keys, by their names, for what asks judges and reads their replies."""

    endpoints: tuple[EndpointSpec, ...]
    template: str
    system: str | None
    compare: Compare
    against: Against
    read: Read
    range: tuple[float, float]
    criteria: tuple[Criterion, ...]
    constrained: bool
    coverage: float
    images: bool
    combine: Combine
    sampling: SamplingSpec
    votes: int
    timeout_s: float
    group_timeout_s: float
    cache: Cache | None
    compares_groups: bool
