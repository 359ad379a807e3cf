"""The size of a run before it runs: trajectories, tokens, calls, its lineage, and the forms of estimates. Pure.

Counts are bounds rather than guesses. The formulas of memory are an engine's own, but for what any transformer keeps of
a token. Time is not estimated: only a run of the same plan knows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlf.core import Fault, RlfError
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.engines import EngineSpec, Feature


@dataclass(frozen=True, slots=True)
class Workload:
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


def estimate_work(spec: RunSpec, num_train_rows: int, num_eval_rows: int) -> Workload:
    """Counts of a whole run.

    trajectories = steps that sample x prompts_per_step x num_generations [x max_rounds with dynamic filtering]
    evaluations  = the first, the last, and every `eval.every` steps; each sampled, and greedily if `eval.greedy`
    tokens      <= (trajectories + evaluation trajectories) x max_total_tokens
    calls       <= (trajectories + evaluation trajectories) x calls per trajectory
    """
    train, rollout = spec.train, spec.rollout
    filtering, one_round = train.dynamic_filtering, Feature.FILTER_ROUNDS in spec.engine.LACKS
    rounds = filtering.max_rounds if filtering is not None and not one_round else 1
    shown = spec.data.demonstrations
    sampled_steps = train.steps if shown is None else train.steps - min(shown.steps or train.steps, train.steps)
    prompts = sampled_steps * train.prompts_per_step * rounds
    evaluations = len(spec.eval.due_steps(spec.train.steps)) if num_eval_rows else 0
    questions = min(num_eval_rows, spec.eval.limit)
    per_evaluation = questions * (spec.eval.num_samples + spec.eval.greedy)
    trajectories = prompts * rollout.num_generations
    played = trajectories + evaluations * per_evaluation
    calls = calls_per_trajectory(spec)
    return Workload(
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
class MemoryPart:
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
    parts: tuple[MemoryPart, ...]
    JSON_PROPERTIES: ClassVar = ("total_bytes",)

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """The memory of a GPU at one time."""

    name: str
    parts: tuple[MemoryPart, ...]

    @property
    def total_bytes(self) -> int:
        """The sum of the parts."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The memory of each of several GPUs that hold the same."""

    holds: str
    num_gpus: int
    phases: tuple[MemoryPhase, ...]
    """Times that follow each other where models leave the GPU in turn; else one."""
    lacks: str = ""
    """Why a part does not fit what is set aside for it, whatever the GPU has free; empty where it does."""
    JSON_PROPERTIES: ClassVar = ("peak_bytes",)

    @property
    def peak(self) -> MemoryPhase:
        """The fullest phase."""
        return max(self.phases, key=lambda phase: phase.total_bytes)

    @property
    def peak_bytes(self) -> int:
        """The sum of the fullest phase."""
        return self.peak.total_bytes


# The sizes of a model, from its `config.json` and the headers of its safetensors: values in, values out.

NO_ADAPTER = ("embed_tokens", "lm_head", "wte", "wpe")
"""Names of embeddings and heads, which `all-linear` leaves out."""
ALL_LINEAR = "all-linear"
"""Every linear module but these."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder-only transformer that a memory estimate reads."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    query_size: int
    """Heads x head dimension."""
    kv_size: int
    """Key-value heads x head dimension."""
    intermediate_size: int
    vocab_size: int
    linears: tuple[tuple[str, int, int], ...] = ()
    """Name, inputs and outputs of every linear module that can take an adapter."""

    @property
    def values_per_layer(self) -> int:
        """Values that a layer keeps of a token for the backward pass: inputs of norms, projections, attention, MLP."""
        return 6 * self.hidden_size + 5 * self.query_size + 4 * self.kv_size + 4 * self.intermediate_size

    @property
    def largest_module(self) -> int:
        """Weights of the largest part that is used as a whole: the embedding, or a layer."""
        layer = self.hidden_size * (2 * self.query_size + 2 * self.kv_size + 3 * self.intermediate_size)
        return max(self.vocab_size * self.hidden_size, layer)


def shape_of(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> ModelShape | None:
    """The shape; None where the configuration is not that of a plain decoder.

    Args:
        config: what `config.json` holds.
        tensors: the shape of each tensor of the weights.
    """
    text = config.get("text_config", config)
    try:
        heads, hidden = int(text["num_attention_heads"]), int(text["hidden_size"])
        head_dim = int(text.get("head_dim") or hidden // heads)
        return ModelShape(
            num_parameters=sum(math.prod(shape) for shape in tensors.values()),
            num_layers=int(text["num_hidden_layers"]),
            hidden_size=hidden,
            query_size=heads * head_dim,
            kv_size=int(text.get("num_key_value_heads") or heads) * head_dim,
            intermediate_size=int(text["intermediate_size"]),
            vocab_size=int(text["vocab_size"]),
            linears=tuple(
                (name.removesuffix(".weight"), shape[1], shape[0])
                for name, shape in tensors.items()
                if name.endswith(".weight") and len(shape) == 2 and not any(word in name for word in NO_ADAPTER)
            ),
        )
    except (KeyError, TypeError, ValueError):
        return None


def adapter_parameters(shape: ModelShape, rank: int, targets: str | tuple[str, ...]) -> int:
    """rank x (inputs + outputs) over the linear modules that get an adapter."""
    named = {targets} if isinstance(targets, str) else set(targets)
    everywhere = targets == ALL_LINEAR
    chosen = [(i, o) for name, i, o in shape.linears if everywhere or name.rpartition(".")[2] in named]
    return rank * sum(inputs + outputs for inputs, outputs in chosen)


# The part of an engine that plans use: faults and warnings of a spec under it, and the size of its runs.
#
# Pure: nothing here opens a file. What a run asks is in `rlf.engines.engine`.


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine's report on a plan before it runs."""

    memory: Memory | None = None
    """Of one process; None where the engine has several, or the model's sizes are not known."""
    gpus: tuple[GpuMemory, ...] = ()
    """Each kind of GPU of a job; empty for one process, and where sizes are not known."""
    machine: Memory | None = None
    """What each machine of a job holds beside its GPUs; None where it is one process, or sizes are not known."""
    num_gpus: int = 0
    """GPUs of the whole job; 0 for one process."""
    disk: Memory | None = None
    """What it writes beside the lineage, at its fullest; None where sizes are not known."""
    disk_folder: Path | None = None
    """Where it writes that; None where only other machines see it."""
    argv: tuple[str, ...] = ()
    """The options that the job is started with; empty for an engine without any."""


class PlannedEngine(EngineSpec):
    """An engine as plans see it."""

    def find_faults(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Faults of a spec that it cannot honour, beside its `LACKS`."""
        yield from ()

    def find_warnings(self, loaded: LoadedSpec) -> Iterator[Fault]:
        """Warnings where it does otherwise than a reader of the spec may think."""
        yield from ()

    def report(
        self, spec: RunSpec, shape: ModelShape | None, folder: Path, *, gpu_bytes: int | None, num_eval_rows: int
    ) -> EngineReport:
        """Estimates a run, as far as there are formulas.

        Args:
            shape: the model's sizes; None where they are not known.
            folder: the run's.
            gpu_bytes: size of one GPU; None: not known, or a CPU.
            num_eval_rows: questions of the evaluation set.
        """
        return EngineReport()


def planned_engine(spec: RunSpec) -> PlannedEngine:
    """The engine of a spec. Raises RlfError for one from a package that holds settings alone."""
    if not isinstance(spec.engine, PlannedEngine):
        raise RlfError(f"engine {spec.engine.kind}: {type(spec.engine).__name__} derives from no rlf.engines.Engine.")
    return spec.engine
