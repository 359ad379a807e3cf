"""The peak memory of each GPU and machine of an OpenRLHF job, and what it writes: formulas and sums. Pure.

Counted is what DeepSpeed and vLLM allocate by the layout, with the longest batch the budgets allow; the states of
trained models are those of DeepSpeed's own estimator, or more. Not counted are CUDA contexts and graphs, NCCL's
buffers, vLLM's activations, fragmentation; in the machine's memory Ray's object store, what loading takes for a moment,
page-locked copies, tools and reward models: leave a tenth of the GPU free, and half of the machine. No figure here was
compared with a GPU. Of the disk, records on their way to the lineage, logs, and the reports of TensorBoard are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlf.apps.openrlhf.settings import Colocate, Gpus, Layout, OpenRlhfSettings, openrlhf_settings
from rlf.plan.estimate import GpuMemory, Memory, MemoryPart, MemoryPhase, ModelShape, adapter_parameters
from rlf.spec.models import RunSpec

_WEIGHT = 2
"""Bytes of a weight in bfloat16."""
_OPTIMISER = 12
"""Bytes of a trained weight in the optimiser: a float32 copy and AdamW's two means."""
_STEP = 4
"""Bytes of a trained weight for the step: its gradient in float32."""
_BUCKET = 500_000_000
"""Gradients that DeepSpeed reduces at once, its default `reduce_bucket_size`."""
_LOGIT = 10
"""Bytes of a logit in training: float32, its gradient, and the gradient in bfloat16."""


def estimate_gpus(spec: RunSpec, shape: ModelShape, gpu_bytes: int | None) -> list[GpuMemory]:
    """The memory of each kind of GPU of the job.

    Args:
        gpu_bytes: size of one GPU; None counts of vLLM only what it needs at the least.
    """
    engine, layout = openrlhf_settings(spec), Layout.of(spec)
    model = _Models(spec, engine, layout, shape)
    sampling = model.vllm(gpu_bytes)
    lacks = model.complain_of_share(gpu_bytes)
    if layout.all_share:
        return [GpuMemory("every model and vLLM", layout.actor.total, model.shared_phases(sampling), lacks)]
    policy = [*model.trained("policy", layout.actor)]
    groups = []
    if layout.ref is not None and engine.colocate in (Colocate.ACTOR_REF, Colocate.TRAINED):
        policy += model.reference(layout.ref)
    if layout.critic is not None and engine.colocate is Colocate.TRAINED:
        policy += model.trained("critic", layout.critic)
    groups.append(GpuMemory("policy", layout.actor.total, (MemoryPhase("training", tuple(policy)),)))
    if layout.ref is not None and engine.colocate is Colocate.NONE:
        groups.append(
            GpuMemory("reference", layout.ref.total, (MemoryPhase("reading", tuple(model.reference(layout.ref))),))
        )
    if layout.critic is not None and engine.colocate is not Colocate.TRAINED:
        critic = tuple(model.trained("critic", layout.critic))
        groups.append(GpuMemory("critic", layout.critic.total, (MemoryPhase("training", critic),)))
    if layout.vllm_gpus:
        groups.append(GpuMemory("vLLM", layout.vllm_gpus, (MemoryPhase("sampling", (sampling,)),), lacks))
    return groups


def estimate_machine(spec: RunSpec, shape: ModelShape) -> Memory | None:
    """The memory of each machine that trains, beside its GPUs; None where nothing is kept there."""
    engine, layout = openrlhf_settings(spec), Layout.of(spec)
    parts = tuple(_Models(spec, engine, layout, shape).beside_gpus())
    return Memory("machine", parts) if parts else None


@dataclass(frozen=True, slots=True)
class _Models:
    """The parts of the models of one job."""

    spec: RunSpec
    engine: OpenRlhfSettings
    layout: Layout
    shape: ModelShape

    @property
    def _all(self) -> tuple[str, int]:
        return "P", self.shape.num_parameters

    @property
    def _learnt(self) -> tuple[str, int]:
        lora = self.spec.model.lora
        return self._all if lora is None else ("A", adapter_parameters(self.shape, lora.rank, lora.target_modules))

    @property
    def tokens(self) -> int:
        """Tokens of one pass on one GPU."""
        if self.engine.packing:
            return self.layout.micro_batch_tokens
        return self.layout.micro_batch * self.spec.rollout.max_total_tokens

    def shared_phases(self, sampling: MemoryPart) -> tuple[MemoryPhase, ...]:
        """Parts of the memory while vLLM samples and while each model trains; at once without sleep."""
        layout = self.layout
        policy = list(self.trained("policy", layout.actor))
        critic = [] if layout.critic is None else list(self.trained("critic", layout.critic))
        reference = [] if layout.ref is None else list(self.reference(layout.ref))
        if not layout.sleep:
            return (MemoryPhase("all at once", (sampling, *policy, *reference, *critic)),)
        resting = [*reference, *critic[:1]]
        kept = (policy[0], *self.mean())
        phases = [MemoryPhase("sampling", (sampling, *kept, *resting)), MemoryPhase("training", (*policy, *resting))]
        if critic:
            phases.append(MemoryPhase("training the critic", (*critic, *kept, *reference)))
        return tuple(phases)

    def trained(self, name: str, gpus: Gpus) -> Iterator[MemoryPart]:
        """Weights first: they stay where the rest leaves the GPU."""
        stage, count, learnt = self.engine.zero_stage, gpus.total, self._learnt
        held = learnt if self.spec.model.lora is None else ("(P + A)", self.shape.num_parameters + learnt[1])
        yield _cut(f"{name}: weights", _WEIGHT, held, count if stage >= 3 else 1)
        if stage >= 3:
            yield _cut(f"{name}: a whole module and its gradient", 2 * _WEIGHT, ("M", self.shape.largest_module), 1)
        if stage < 2 or not self.engine.offload_optimizer:
            yield _cut(f"{name}: gradients", _WEIGHT, learnt, count if stage >= 2 else 1)
        if not self.engine.offload_optimizer:
            yield _cut(f"{name}: optimiser", _OPTIMISER, learnt, count)
            yield _cut(f"{name}: float32 gradients of the step", _STEP, learnt, count)
        if count > 1:
            yield _cut(f"{name}: bucket of gradients", _WEIGHT, ("B", min(_BUCKET, learnt[1])), 1)
        yield self._activations(name)
        if name == "policy":
            n, v = self.tokens, self.shape.vocab_size
            yield MemoryPart("policy: logits", f"{_LOGIT} N V", f"{_LOGIT} x {n:,} x {v:,}", _LOGIT * n * v)
            yield from self.mean()

    def mean(self) -> Iterator[MemoryPart]:
        """The mean of weights, which DeepSpeed moves off the GPU at stage 3 alone and which never sleeps."""
        if self.engine.ema is not None and self.engine.zero_stage < 3:
            yield _cut("policy: mean of weights", _WEIGHT, self._all, 1)

    def reference(self, gpus: Gpus) -> Iterator[MemoryPart]:
        """The frozen weights; its passes are shorter than those of training."""
        if not self.engine.offload_ref:
            yield _cut("reference: weights", _WEIGHT, self._all, gpus.total if self.engine.zero_stage >= 3 else 1)

    def vllm(self, gpu_bytes: int | None) -> MemoryPart:
        """vLLM's share of the GPU; without the GPU's size its weights and one trajectory."""
        if gpu_bytes is None:
            return self._least_of_vllm()
        share = self.layout.gpu_memory
        return MemoryPart("vLLM", "gpu_memory x GPU", f"{share:g} x {gpu_bytes:,}", int(share * gpu_bytes))

    def complain_of_share(self, gpu_bytes: int | None) -> str:
        """Why vLLM's share does not hold its weights and one trajectory; empty where it does or is not known."""
        least = self._least_of_vllm()
        if gpu_bytes is None or least.size_bytes <= self.layout.gpu_memory * gpu_bytes:
            return ""
        taken, share = least.size_bytes / 1e9, self.layout.gpu_memory * gpu_bytes / 1e9
        return (
            f"vLLM's weights and one trajectory take {taken:.1f} GB of its share of {share:.1f} GB. "
            "Raise engine.vllm.tensor_parallel, or engine.vllm.gpu_memory."
        )

    def _least_of_vllm(self) -> MemoryPart:
        """Its weights, and keys and values of one trajectory."""
        shape, parts = self.shape, self.layout.tensor_parallel
        longest, layers = self.spec.rollout.max_total_tokens, shape.num_layers
        return MemoryPart(
            "vLLM, at least",
            "(2 P + 4 L K max_total_tokens) / tensor_parallel",
            f"(2 x {shape.num_parameters:,} + 4 x {layers} x {shape.kv_size:,} x {longest:,}) / {parts}",
            (2 * shape.num_parameters + 4 * layers * shape.kv_size * longest) // parts,
        )

    def beside_gpus(self) -> Iterator[MemoryPart]:
        """Parts in the machine's memory: of optimisers and references that are offloaded, and of what is asleep."""
        nodes, gpus = self.layout.actor.nodes, self.layout.actor
        trained = ["policy"] if self.layout.critic is None else ["policy", "critic"]
        for name in trained:
            if self.engine.offload_optimizer:
                yield _cut(f"{name}: optimiser and gradients", _OPTIMISER + _STEP, self._learnt, nodes, "machines")
            elif self.layout.sleep:
                size = _OPTIMISER + _WEIGHT
                yield _cut(f"{name}: optimiser and gradients while others work", size, self._learnt, nodes, "machines")
        if self.layout.ref is not None and self.engine.offload_ref:
            yield _cut("reference: weights", _WEIGHT, self._all, self.layout.ref.nodes, "machines")
        if self.engine.ema is not None and self.engine.zero_stage == 3:
            yield _cut("policy: mean of weights", _WEIGHT, self._all, nodes, "machines")
        if self.layout.sleep:
            copies = gpus.per_node // self.layout.tensor_parallel or 1
            number = self.shape.num_parameters * copies
            yield _cut("vLLM: weights while others work", _WEIGHT, ("P x engines of the machine", number), 1)

    def _activations(self, name: str) -> MemoryPart:
        """Of every layer; with checkpointing each layer's input, and one layer whole."""
        shape, n, layer = self.shape, self.tokens, self.shape.values_per_layer
        if self.engine.gradient_checkpointing:
            values, formula = shape.num_layers * shape.hidden_size + layer, "2 N (L H + layer)"
            numbers = f"2 x {n:,} x ({shape.num_layers} x {shape.hidden_size:,} + {layer:,})"
        else:
            values, formula = shape.num_layers * layer, "2 N L layer"
            numbers = f"2 x {n:,} x {shape.num_layers} x {layer:,}"
        return MemoryPart(f"{name}: activations", f"{formula}, layer = 6 H + 5 Q + 4 K + 4 F", numbers, 2 * n * values)


def _cut(name: str, size_bytes: int, weights: tuple[str, int], count: int, over: str = "GPUs") -> MemoryPart:
    """So many bytes of each of some weights, whose sign and number are given, over so many GPUs or machines."""
    sign, number = weights
    if count == 1:
        return MemoryPart(name, f"{size_bytes} {sign}", f"{size_bytes} x {number:,}", size_bytes * number)
    return MemoryPart(
        name, f"{size_bytes} {sign} / {over}", f"{size_bytes} x {number:,} / {count}", size_bytes * number // count
    )


def estimate_job_disk(spec: RunSpec, shape: ModelShape) -> Memory:
    """Checkpoints, the Hugging Face folders that none of them replaces, and the final model."""
    return Memory("disk", tuple(_list_parts(spec, shape)))


def _list_parts(spec: RunSpec, shape: ModelShape) -> Iterator[MemoryPart]:
    engine, lora, p = openrlhf_settings(spec), spec.model.lora, shape.num_parameters
    saved = spec.train.steps // spec.checkpoint.every
    # One more than is kept while the newest is being written, and the one of the best evaluation.
    number = min(saved, spec.checkpoint.keep + (1 if spec.data.eval is None else 2))
    learnt = p if lora is None else adapter_parameters(shape, lora.rank, lora.target_modules)
    held = p if lora is None else p + learnt
    signs, sizes = ("2 P + 12 P", "(P + V H)") if lora is None else ("2 (P + A) + 12 A", "A")
    each = _WEIGHT * held + _OPTIMISER * learnt
    for name in ("policy", "critic") if spec.train.algorithm.needs_critic else ("policy",):
        yield MemoryPart(
            f"checkpoints: {name}", f"number x ({signs})", f"{number} x (2 x {held:,} + 12 x {learnt:,})", number * each
        )
    # OpenRLHF writes a head that is tied to the embedding as one more tensor.
    head = 0 if lora is not None else shape.vocab_size * shape.hidden_size
    formula, numbers = f"2 {sizes}", f"2 x {learnt:,}" if lora is not None else f"2 x ({learnt:,} + {head:,})"
    model = _WEIGHT * (learnt + head)
    if engine.hf_checkpoints:
        yield MemoryPart(
            "Hugging Face folders", f"steps / checkpoint.every x {formula}", f"{saved} x {numbers}", saved * model
        )
    yield MemoryPart("final model", formula, numbers, model)
