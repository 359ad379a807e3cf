"""Events of a run: engines emit them; the recorder, the live view and JSON output consume them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rlf.types.score import Scored


class RunStatus(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Stopped by Ctrl-C; can be resumed."""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One iteration: trajectories were collected and the policy was updated."""

    step: int
    """Counts from 1."""
    metrics: Mapping[str, float]
    trajectories: Sequence[Scored]
    advantages: Sequence[float | None]
    """Mean advantage over action tokens, per trajectory; None where it was left out of the loss."""
    encoded: Sequence[object] = ()
    """What the lineage stores of each trajectory, None where that is not made yet; empty: of none."""


SAMPLED, GREEDY = "sampled", "greedy"
"""Modes of an evaluation."""


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The policy after `step` updates was tried on the evaluation set."""

    step: int
    """0 is the policy before any update."""
    mode: str
    """`sampled` or `greedy`."""
    metrics: Mapping[str, float]
    """`success`, `success/low`, `success/high` (95 % interval), `success/<kind>`, `pass@k`, ..."""
    trajectories: Sequence[Scored]
    encoded: Sequence[object] = ()
    """As in `StepFinished`."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A stop or a failure cut a collection off: it makes no step and no evaluation, and a resume repeats it."""

    step: int
    """The step that it was for, from 1; of an evaluation, the updates before it."""
    trajectories: Sequence[Scored]
    """Those with a turn. One that was over keeps its stop reason and its scores, where they were known."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A complete checkpoint is on disk."""

    step: int
    path: str
    sha256: str
    """Hash of the checkpoint's manifest."""
    kept: tuple[int, ...] | None = None
    """Steps whose checkpoints stay, this one among them; None where that is not known."""
    save_s: float = 0.0
    """Seconds that writing it took; 0 where another process wrote it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth knowing that is no metric: a warning, an alarm, a resume."""

    level: str
    """`info`, `warning` or `error`."""
    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a process that ran the run."""

    status: RunStatus
    step: int
    error: str | None = None


RunEvent = StepFinished | EvaluationFinished | Interrupted | CheckpointSaved | Notice | RunFinished


class EventSink(Protocol):
    """A consumer of events, called in order on the thread that runs the run."""

    def __call__(self, event: RunEvent) -> None:
        """Takes one event; an exception ends the run."""


# Names of metrics; `docs/metrics.yaml` lists them all.

INTERVAL_ENDS = ("low", "high")
"""Parts of `success` that are no kinds of question."""


def kind_metric(kind: str) -> str:
    """The name of success on one kind of question; kinds named as an end of the interval are set apart."""
    return f"success/kind {kind}" if kind in INTERVAL_ENDS else f"success/{kind}"


def is_gap(name: str) -> bool:
    """Whether a metric is the gap of a trained term to a hidden one; the ends of its interval have a part more."""
    return name.startswith("gap/") and name.count("/") == 2
