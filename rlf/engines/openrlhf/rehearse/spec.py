"""Changes of a spec for a rehearsal, as overrides that a person could type, each with its reason.

Everything that is not named here goes to OpenRLHF as it would on the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlf.engines.engine import Change
from rlf.engines.openrlhf.settings import Gpus, OpenRlhfSettings
from rlf.spec.models import RunSpec

_STEPS = 2
_PROMPTS = 4
_GENERATIONS = 4
_NEW_TOKENS = 64
"""Room for a written call."""
_QUESTIONS = 8


def place_changes(engine: OpenRlhfSettings, *, vllm: bool) -> Iterator[Change]:
    """Changes without which a CPU cannot run it.

    Args:
        vllm: whether the job samples with vLLM itself.
    """
    if engine.packing:
        yield Change("engine.packing", False, "packing needs flash attention")
    if engine.ring_attention > 1:
        yield Change("engine.ring_attention", 1, "ring attention needs flash attention")
    if engine.attention.startswith("flash"):
        yield Change("engine.attention", "sdpa", "flash attention needs a GPU")
    one = {"nodes": 1, "per_node": 1}
    for name, gpus in (("actor", engine.actor), ("ref", engine.ref), ("critic", engine.critic)):
        if gpus is not None and gpus != Gpus():
            yield Change(f"engine.{name}", one, "one process for each model")
    if engine.vllm.engines is not None and engine.vllm.engines > 1:
        yield Change("engine.vllm.engines", 1, "one process that samples")
    if engine.vllm.tensor_parallel > 1:
        yield Change("engine.vllm.tensor_parallel", 1, "a model split over GPUs needs NCCL")
    if vllm and not engine.vllm.enforce_eager:
        yield Change("engine.vllm.enforce_eager", True, "CUDA graphs need a GPU")
    if vllm and engine.sleep is not False:
        yield Change("engine.sleep", False, "vLLM for CPUs cannot sleep")
    for key in ("ray_address", "output", "wandb"):
        if getattr(engine, key) is not None:
            yield Change(f"engine.{key}", None, "a rehearsal stays on this machine")


def size_changes(spec: RunSpec) -> Iterator[Change]:
    """Changes that save time."""
    train, rollout = spec.train, spec.rollout
    smaller = "smaller, to save time"
    if train.steps != _STEPS:
        yield Change("train.steps", _STEPS, smaller)
    if train.warmup_steps:
        yield Change("train.warmup_steps", 0, "so that both steps change the weights")
    if train.prompts_per_step != _PROMPTS:
        yield Change("train.prompts_per_step", _PROMPTS, smaller)
    if rollout.num_generations > _GENERATIONS:
        yield Change("rollout.num_generations", _GENERATIONS, smaller)
    if train.mini_batches > _PROMPTS:
        yield Change("train.mini_batches", _PROMPTS, smaller)
    if rollout.max_new_tokens is None or rollout.max_new_tokens > _NEW_TOKENS:
        yield Change("rollout.max_new_tokens", _NEW_TOKENS, "an untrained model seldom ends a turn")
    if train.dynamic_filtering is not None:
        yield Change("train.dynamic_filtering", None, "an untrained model gives no group with mixed rewards")
    if spec.checkpoint.every != _STEPS:
        yield Change("checkpoint.every", _STEPS, "so that one checkpoint is written")
    if spec.data.eval is not None:
        if spec.eval.every != _STEPS:
            yield Change("eval.every", _STEPS, "so that one evaluation runs")
        if spec.eval.limit > _QUESTIONS:
            yield Change("eval.limit", _QUESTIONS, smaller)
