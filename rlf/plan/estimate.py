"""The size of a run before it runs: trajectories, tokens, calls, its lineage, and the forms of estimates. Pure.

Counts are bounds rather than guesses. The formulas of memory are an engine's own, but for what any transformer keeps of
a token. Time is not estimated: only a run of the same plan knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlf.spec import RunSpec
from rlf.spec.engine import Feature


@dataclass(frozen=True, slots=True)
class Work:
    """How much a run does. Bounds hold whatever the policy writes."""

    num_steps: int
    num_updates: int
    """Optimiser updates."""
    num_trajectories: int
    """Collected for training: a bound with dynamic filtering, exact without."""
    num_trajectories_is_bound: bool
    num_updates_is_bound: bool
    """Whether fewer may be made: an engine without further rounds takes the questions of later steps."""
    num_evaluations: int
    num_questions: int
    """Of each evaluation; 0 without any."""
    num_evaluation_trajectories: int
    max_tokens: int
    """Bound on the tokens of all trajectories, evaluations included, from max_total_tokens."""
    max_tool_calls: int | None
    """Bound on the calls of all trajectories; None: a turn may hold any number of calls."""
    num_passes: float
    """Passes over the training set."""


def estimate_work(spec: RunSpec, num_train_rows: int, num_eval_rows: int) -> Work:
    """Counts of a whole run.

    trajectories = steps x prompts_per_step x num_generations [x max_rounds with dynamic filtering, where there are any]
    evaluations  = the first, the last, and every `eval.every` steps; each sampled, and greedily if `eval.greedy`
    tokens      <= (trajectories + evaluation trajectories) x max_total_tokens
    calls       <= (trajectories + evaluation trajectories) x calls per trajectory
    """
    train, rollout = spec.train, spec.rollout
    filtering, one_round = train.dynamic_filtering, Feature.FILTER_ROUNDS in spec.engine.LACKS
    rounds = filtering.max_rounds if filtering is not None and not one_round else 1
    prompts = train.steps * train.prompts_per_step * rounds
    evaluations = len(spec.eval.due_steps(spec.train.steps)) if num_eval_rows else 0
    questions = min(num_eval_rows, spec.eval.limit)
    per_evaluation = questions * (spec.eval.num_samples + spec.eval.greedy)
    trajectories = prompts * rollout.num_generations
    played = trajectories + evaluations * per_evaluation
    calls = calls_per_trajectory(spec)
    return Work(
        num_steps=train.steps,
        num_updates=train.steps * train.epochs * train.mini_batches,
        num_trajectories=trajectories,
        num_trajectories_is_bound=rounds > 1,
        num_updates_is_bound=one_round and filtering is not None,
        num_evaluations=evaluations,
        num_questions=questions,
        num_evaluation_trajectories=evaluations * per_evaluation,
        max_tokens=played * rollout.max_total_tokens,
        max_tool_calls=None if calls is None else played * calls,
        num_passes=prompts / num_train_rows,
    )


_TRAJECTORY, _TOKEN = 2_000, 16
"""Bytes in the lineage of a trajectory and of its tokens, with indices: 1,300 were measured for one of 75 tokens."""


def lineage_part(spec: RunSpec, work: Work) -> Part:
    """What the lineage grows by, without images: a bound, as that on tokens."""
    longest, each = spec.rollout.max_total_tokens, work.num_trajectories // work.num_steps
    size_bytes = _TRAJECTORY + _TOKEN * longest
    return Part(
        "lineage, at most",
        "(steps x trajectories + evaluations) x (2000 + 16 max_total_tokens)",
        f"({work.num_steps:,} x {each:,} + {work.num_evaluation_trajectories:,}) x {size_bytes:,}",
        (work.num_trajectories + work.num_evaluation_trajectories) * size_bytes,
    )


def calls_per_trajectory(spec: RunSpec) -> int | None:
    """Bound on the calls that one trajectory has run; None when nothing bounds them.

    The last turn's calls are not run; a turn holds one call with `chat.stop_after_call` and any number without.
    """
    turns = spec.rollout.max_turns - 1
    if not spec.tools or turns == 0:
        return 0
    by_turns = turns if spec.chat.stop_after_call else None
    bounds = [bound for bound in (by_turns, spec.rollout.max_tool_calls) if bound is not None]
    return min(bounds) if bounds else None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the memory, or of a disk."""

    name: str
    formula: str
    numbers: str
    """The formula with the numbers filled in."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one process, or a run's part of a disk, at its fullest."""

    device: str
    """`cpu`, `gpu`, `disk`, or `machine` for what each machine of a job holds beside its GPUs."""
    parts: tuple[Part, ...]
    JSON_PROPERTIES: ClassVar = ("total_bytes",)

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class Phase:
    """The memory of a GPU at one time."""

    name: str
    parts: tuple[Part, ...]

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of each of several GPUs that hold the same."""

    holds: str
    num_gpus: int
    phases: tuple[Phase, ...]
    """Times that follow each other where models leave the GPU in turn; else one."""
    lacks: str = ""
    """Why a part does not fit what is set aside for it, whatever the GPU has free; empty where it does."""
    JSON_PROPERTIES: ClassVar = ("peak_bytes",)

    @property
    def peak(self) -> Phase:
        """The fullest phase."""
        return max(self.phases, key=lambda phase: phase.total_bytes)

    @property
    def peak_bytes(self) -> int:
        """The sum of the fullest phase."""
        return self.peak.total_bytes
