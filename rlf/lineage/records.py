"""The values that go into the lineage and come out of it. Times are Unix time in seconds; nothing here knows SQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlf.core.plain_json import Jsonable
from rlf.types import Attempt, FailureClass, Outcome, RunStatus, Scored, StopReason

TRAIN = "train"
"""The phase of a training step's trajectories; an evaluation's phase is its mode."""

INTERRUPTED = "interrupted"
"""The phase of trajectories of a step or an evaluation that was cut off: they are in no step's sums and metrics."""


IMPORTING = "importing"
"""The status of a run whose rows are still being copied into the lineage."""
REMOVING = "removing"
"""The status of a run whose folder and rows are being deleted."""
HIDDEN = (IMPORTING, REMOVING)
"""Statuses of runs that no reader shows."""


SWEEP = "sweep"
"""The engine of a run that is a sweep: it runs its members one after the other and has no steps of its own."""


EVALUATION = "evaluation"
"""The engine of a run that is an evaluation: it tries a model and has no steps of its own."""


CHAT = "chat"
"""The phase of a conversation that was saved."""
BRANCH = "branch"
"""The phase of continuations of a trajectory of the run's parent."""
BRANCH_SECTION = "branch"
"""Of a recorded plan: what it is a branch of."""


class ParentKind(StrEnum):
    """How a run descends from its parent."""

    RESUME = "resume"
    """It continues where the parent stopped."""
    FORK = "fork"
    """It starts from one of the parent's checkpoints with other settings."""
    SWEEP = "sweep"
    """The parent is the sweep that it is a member of."""
    REPRODUCTION = "reproduction"
    """It runs the parent's plan again, to compare."""
    EVALUATION = "evaluation"
    """It tries the parent's model."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file that a run was made from."""

    role: str
    """What the file is to the run: `spec`, `tool`, `reward`, `data`, `model`, ..."""
    path: str
    sha256: str
    text_sha256: str | None = None
    """Of its text as the lineage keeps it, without secrets; None where it keeps none."""


@dataclass(frozen=True, slots=True)
class FilesRead:
    """Files that a run's own code has opened, as they come to be known."""

    new: tuple[FileRecord, ...]
    changed: tuple[FileRecord, ...]
    """Those of before that have changed meanwhile: no record of them is kept."""


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """A file or package of a run that was replaced, and accepted, when the run was resumed."""

    step: int
    """The last step before the change."""
    role: str
    path: str
    old_sha256: str
    """Hash before, a package's version; empty where it was absent."""
    sha256: str
    """The same after it."""
    text_sha256: str | None
    """Of the new text as the lineage keeps it; None where it keeps none."""
    accepted: float


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything that is known of a run when it starts."""

    id: str = field(metadata={"json": "run_id"})
    name: str
    engine: str
    """What ran it: an engine's kind, `sweep` or `evaluation`."""
    seed: int
    plan: Mapping[str, Any]
    plan_hash: str
    code_version: str
    host: Mapping[str, Any]
    """Machine facts: name, cores, memory, GPUs."""
    packages: Mapping[str, str]
    """Version by package name."""
    command: str
    folder: str
    """Where the run keeps its checkpoints."""
    home: str | None = None
    """The lineage's folder when the run started: what moved with it is found again. None where it has none."""
    cwd: str | None = None
    """The folder that relative paths of `files` start at; None where it is not known."""
    files: tuple[FileRecord, ...] = ()
    parent_id: str | None = None
    parent_kind: ParentKind | None = None
    parent_step: int | None = None
    """The step of the parent's checkpoint that a fork starts from."""
    patch_sha256: str | None = None
    """Of what the code differs by from the commit that `code_version` names; None when it does not."""
    started: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the lineage records it now."""

    record: RunRecord
    status: RunStatus
    """INTERRUPTED also when the lineage says running and its process is gone."""
    process_gone: bool
    """Whether the run ended without a word: killed, crashed, or the machine restarted."""
    last_step: int
    finished: float | None
    error: str | None
    """Why it failed or was interrupted."""
    idle_s: float = 0.0
    """Time between the end of one of its processes and the next resume."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as the lineage has it now, without what it was made from."""

    id: str = field(metadata={"json": "run_id"})
    name: str
    engine: str
    seed: int
    plan_hash: str
    started: float
    finished: float | None
    parent_id: str | None
    parent_kind: ParentKind | None
    status: RunStatus
    """INTERRUPTED also when the lineage says running and its process is gone."""
    process_gone: bool
    last_step: int
    error: str | None
    idle_s: float


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One training step."""

    step: int
    metrics: dict[str, float]
    finished: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of the policy after `step` updates."""

    step: int
    mode: str
    metrics: dict[str, float]
    finished: float


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """A trajectory without its tokens, turns and calls."""

    step: int
    phase: str
    """`train`, or the mode of an evaluation (`sampled`, `greedy`)."""
    k: int
    """Position within its step or evaluation."""
    trajectory_id: str
    task_id: str
    sample_index: int
    kind: str | None
    stop: StopReason
    error: str | None
    answer: str | None
    gold: Any
    reward: float | None
    success: float | None
    advantage: float | None
    num_tokens: int
    num_sampled: int
    num_turns: int
    num_calls: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class TrajectoryFilter:
    """Which trajectories of a run are wanted; None takes all."""

    phase: str | None = None
    """`train`, or the mode of an evaluation."""
    step: int | None = None
    task_id: str | None = None
    stop: StopReason | None = None
    succeeded: bool | None = None
    """True: success is 1 or more; false: less, or it could not be scored."""
    failure: FailureClass | None = None
    """A class of parse failure that one of its turns has."""
    after_step: int | None = None
    """Steps above this only."""
    tool: str | None = None
    """A tool that one of its turns called."""
    outcomes: tuple[Outcome, ...] = ()
    """How one of its calls ended, of `tool` where one is named; empty for any."""
    best_first: bool = False
    """By advantage, highest first, in place of phase, step and position; those without one are left out."""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TrajectoryLine:
    """A trajectory with what was asked."""

    summary: TrajectorySummary
    question: str
    """The last message of its task; empty where its content is not kept."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory(Jsonable):
    """A trajectory as it was recorded, with its scores. The task's extra columns are not kept."""

    summary: TrajectorySummary
    scored: Scored


@dataclass(frozen=True, slots=True)
class FoundCall:
    """One call of a tool, with the place where it was made."""

    phase: str
    step: int
    k: int
    """The trajectory's position within its step or evaluation."""
    turn: int
    position: int
    """Of the call within its turn."""
    trajectory_id: str
    name: str
    arguments: Mapping[str, Any]
    outcome: Outcome
    text: str
    """What the model read: the result, or the error."""
    attempts: tuple[Attempt, ...]
    run_s: float
    inside: str = ""
    """Where an agent's model made it, within the agent's call: `turn.position`, once for each agent; else empty."""


@dataclass(frozen=True, slots=True)
class ToolCallSummary:
    """Outcomes of a run's calls of one tool."""

    name: str
    num_calls: int
    num_by_outcome: dict[Outcome, int]
    num_cached: int
    num_truncated: int
    mean_run_s: float
    max_run_s: float
    mean_queue_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """A run's cost of one tool, or of the judges of one term, over all that it did."""

    kind: str
    """`tool`, agents among them with all that is inside of their calls; `judge`; or `other`, of requests that a stop
    cut off before they came to a trajectory, and of tools that reward terms called."""
    name: str
    num_requests: int
    """To models, those that failed or were repeated included; of runs from before they were counted 0."""
    num_without_usage: int
    """Requests of which nobody knows what they cost: they failed, were late or cut off, or the server does not say."""
    num_tokens: int
    """Prompt and completion."""
    num_cached_tokens: int
    """Those of the prompts that servers had in their caches."""
    cost_usd: float
    cost_usd_by_phase: dict[str, float]
    """`train`, `sampled`, `greedy`, `interrupted`."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The rollouts of training without a reward, those that were played again with one not included."""

    num_by_kind: Mapping[str | None, tuple[int, int]]
    """How many of all, by kind of task."""
    causes: Mapping[str, int]
    """How many each tool, world or reward term took the reward of."""


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Totals of the trajectories of one training step."""

    step: int
    num_trajectories: int
    num_tokens: int
    num_sampled: int
    num_calls: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    path: str
    sha256: str
    """Hash of the checkpoint's manifest."""
    saved: float
    dropped: float | None = None
    """When it was deleted, as `checkpoint.keep` says; None: it is kept."""


@dataclass(frozen=True, slots=True)
class Note:
    """A person's remark on a run."""

    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Export:
    """An exported model."""

    path: str
    kind: str
    """The form that it is in: `huggingface`."""
    step: int
    sha256: str
    made: float


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A notice of a run."""

    time: float
    level: str
    text: str
    data: dict[str, Any]
