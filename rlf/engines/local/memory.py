"""The peak memory of the local engine's process: its own allocations with the largest batch that budgets allow; and
what it writes.

Pure: values in, formulas and sums out, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rlf.plan.estimate import Memory, MemoryPart, ModelShape, adapter_parameters
from rlf.spec import RunSpec

PROCESS_BYTES = 400_000_000
"""Resident size of Python with torch, transformers and peft loaded: measured with the pinned versions on Linux."""
_CHUNK_NUMEL = 1 << 24
"""Elements of the logits that are turned to float32 at once (`rlf.algo.logprobs`)."""


def estimate_memory(
    spec: RunSpec,
    shape: ModelShape,
    *,
    on_gpu: bool,
    num_eval_rows: int,
    threads: int,
    gradient_checkpointing: bool = False,
) -> Memory:
    """The parts of the local engine's memory.

    Args:
        on_gpu: whether model and batches are on a GPU; else the process itself counts too.
        num_eval_rows: questions of the evaluation set.
        threads: cores that share the update on a CPU.
        gradient_checkpointing: whether of all layers but one only the inputs are held.
    """
    size = _Sizes.of(spec, shape, on_gpu=on_gpu, threads=1 if on_gpu else threads)
    parts = [] if on_gpu else [MemoryPart("process", "Python, torch, transformers, measured", "", PROCESS_BYTES)]
    parts += _weight_parts(spec, shape, size)
    parts += _training(shape, size)
    parts += [
        _activations(spec, shape, size, whole_layers=1 if gradient_checkpointing else shape.num_layers),
        _logits(spec, shape, size),
        _cache(spec, shape, size, num_eval_rows),
    ]
    return Memory("gpu" if on_gpu else "cpu", tuple(parts))


def estimate_disk(spec: RunSpec, shape: ModelShape, *, on_gpu: bool) -> Memory:
    """Checkpoints and the final model. The newest ones stay, that of the best evaluation, and one is being written."""
    size, lora = _Sizes.of(spec, shape, on_gpu=on_gpu, threads=1), spec.model.lora
    p, t = shape.num_parameters, size.num_trainable
    steps, every = spec.train.steps, spec.checkpoint.every
    saved = -(-steps // every)
    number = min(saved, spec.checkpoint.keep + 1 + (spec.data.eval is not None))
    parts = [("12 T (weights and AdamW's two means)", f"12 x {t:,}", 12 * t)]
    if size.num_models > 1:
        adapters = 0 if lora is None else 4 * t
        parts.append(("critic", f"{p * size.held_bytes + adapters + 8 * t:,}", p * size.held_bytes + adapters + 8 * t))
    if spec.train.staleness:
        parts.append(("4 T (copy that samples)", f"4 x {t:,}", 4 * t))
    if spec.train.kl.sync_every is not None:
        parts.append(("reference", f"{p:,} x {size.compute_bytes}", p * size.compute_bytes))
    formulas, numbers, sizes = zip(*parts, strict=True)
    model = 4 * t if lora is not None else p * size.held_bytes
    return Memory(
        "disk",
        (
            MemoryPart(
                "checkpoints",
                f"number x ({' + '.join(formulas)})",
                f"{number} x ({' + '.join(numbers)})",
                number * sum(sizes),
            ),
            MemoryPart("final model", "4 T", f"4 x {t:,}", model)
            if lora is not None
            else MemoryPart("final model", "P x bytes", f"{p:,} x {size.held_bytes}", model),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The numbers that several parts read."""

    compute_bytes: int
    """Of one value that is computed with."""
    held_bytes: int
    """Of one weight as it is held: 4 when it is trained itself."""
    num_trainable: int
    """Trained parameters of the policy."""
    num_models: int
    """Trained models: the policy, and the critic of `gae`."""
    threads: int
    """Micro-batches under way at once."""
    copies: int
    """Gradients held at once: one per core and their sum, or the sum alone."""

    @classmethod
    def of(cls, spec: RunSpec, shape: ModelShape, *, on_gpu: bool, threads: int) -> _Sizes:
        lora = spec.model.lora
        half = spec.model.dtype == "bfloat16" or (spec.model.dtype == "auto" and on_gpu)
        compute = 2 if half else 4
        return cls(
            compute_bytes=compute,
            held_bytes=4 if lora is None else compute,
            num_trainable=shape.num_parameters
            if lora is None
            else adapter_parameters(shape, lora.rank, lora.target_modules),
            num_models=2 if spec.train.algorithm.needs_critic else 1,
            threads=threads,
            copies=1 if on_gpu else threads + 1,
        )


def _weight_parts(spec: RunSpec, shape: ModelShape, size: _Sizes) -> Iterator[MemoryPart]:
    p, c, held = shape.num_parameters, size.compute_bytes, size.held_bytes
    models = f"{size.num_models} x " if size.num_models > 1 else ""
    critic = ", policy and critic" if size.num_models > 1 else ""
    yield MemoryPart(f"weights{critic}", "models x P x bytes", f"{models}{p:,} x {held}", size.num_models * p * held)
    if spec.model.lora is not None:
        adapters = size.num_models * size.num_trainable * 4
        yield MemoryPart("adapters", "models x A x 4", f"{models}{size.num_trainable:,} x 4", adapters)
    if spec.train.has_reference:
        yield MemoryPart("reference", "P x bytes", f"{p:,} x {c}", p * c)
    if getattr(spec.train.algorithm, "teacher", None) is not None:
        yield MemoryPart("teacher, as large as the policy", "P x bytes", f"{p:,} x {c}", p * c)
    if c != held:
        yield MemoryPart("weights in the computing type", "P x bytes", f"{p:,} x {c}", p * c)
    if spec.train.staleness:  # weights that are not trained are shared
        trained, each = size.num_trainable, 4 + (c if c != held else 0)
        yield MemoryPart("copy that samples", "T x bytes", f"{trained:,} x {each}", trained * each)


def _training(shape: ModelShape, size: _Sizes) -> Iterator[MemoryPart]:
    models = f"{size.num_models} x " if size.num_models > 1 else ""
    trainable = size.num_models * size.num_trainable
    yield MemoryPart(
        "gradients",
        "models x T x 4 x copies",
        f"{models}{size.num_trainable:,} x 4 x {size.copies}",
        trainable * 4 * size.copies,
    )
    yield MemoryPart(
        "optimiser", "models x T x 8 (AdamW's two means)", f"{models}{size.num_trainable:,} x 8", trainable * 8
    )


def micro_batch_tokens(spec: RunSpec) -> int:
    """Tokens of the largest micro-batch: the budget, one whole trajectory, or all that a mini-batch can hold."""
    train, longest = spec.train, spec.rollout.max_total_tokens
    mini_batch = train.prompts_per_step * spec.rollout.num_generations // train.mini_batches * longest
    return min(max(train.micro_batch_tokens, longest), mini_batch)


def _activations(spec: RunSpec, shape: ModelShape, size: _Sizes, whole_layers: int) -> MemoryPart:
    """Values that one layer keeps of a token for the backward pass: inputs of norms, projections, attention and MLP."""
    tokens = micro_batch_tokens(spec)
    inputs = 5 + shape.num_layers - whole_layers
    values = whole_layers * shape.values_per_layer + inputs * shape.hidden_size
    models = f"{size.num_models} x " if size.num_models > 1 else ""
    layer = (
        f"6 x {shape.hidden_size:,} + 5 x {shape.query_size:,} + 4 x {shape.kv_size:,} + "
        f"4 x {shape.intermediate_size:,}"
    )
    each = f"({whole_layers} x ({layer}) + {inputs} x {shape.hidden_size:,})"
    numbers = f"{models}{size.threads} x {tokens:,} x {each} x {size.compute_bytes}"
    return MemoryPart(
        "activations",
        "models x threads x N x (L x (6 H + 5 Q + 4 K + 4 F) + 5 H) x bytes",
        numbers,
        size.num_models * size.threads * tokens * values * size.compute_bytes,
    )


def _logits(spec: RunSpec, shape: ModelShape, size: _Sizes) -> MemoryPart:
    """Logits and their gradient of every token of a micro-batch, as if all were sampled, and one chunk in float32."""
    tokens = micro_batch_tokens(spec)
    chunk = min(tokens * shape.vocab_size, _CHUNK_NUMEL)
    return MemoryPart(
        "logits",
        "threads x (2 x N x V x bytes + 2 x chunk x 4)",
        f"{size.threads} x (2 x {tokens:,} x {shape.vocab_size:,} x {size.compute_bytes} + 2 x {chunk:,} x 4)",
        size.threads * (2 * tokens * shape.vocab_size * size.compute_bytes + 2 * chunk * 4),
    )


def _cache(spec: RunSpec, shape: ModelShape, size: _Sizes, num_eval_rows: int) -> MemoryPart:
    """Keys and values of every open trajectory at full length; the policy and a copy that samples hold their own."""
    rollout = spec.rollout
    per_evaluation = min(num_eval_rows, spec.eval.limit) * spec.eval.num_samples
    per_step = math.ceil(spec.train.prompts_per_step * rollout.oversample) * rollout.num_generations
    held = (per_step, per_evaluation) if spec.train.staleness else (max(per_step, per_evaluation),)
    slots = sum(min(spec.most_at_once, most) for most in held)
    return MemoryPart(
        "keys and values",
        "2 x L x slots x K x max_total_tokens x bytes",
        f"2 x {shape.num_layers} x {slots} x {shape.kv_size:,} x {rollout.max_total_tokens:,} x {size.compute_bytes}",
        2 * shape.num_layers * slots * shape.kv_size * rollout.max_total_tokens * size.compute_bytes,
    )
