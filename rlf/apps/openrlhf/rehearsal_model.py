"""A tiny model of a given architecture: random weights, the given model's own tokenizer, template and processor.

A model that sees keeps what decides how many tokens an image becomes: the sizes of images and patches, and how
patches are merged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rlf.apps.openrlhf.settings import Gpus, OpenRlhfSettings
from rlf.chat.encoding import encode_template
from rlf.chat.examples import example_call
from rlf.chat.format import ChatFormat
from rlf.core.errors import RlfError, first_line
from rlf.engines.engine import SpecChange
from rlf.engines.saved_model import auto_model
from rlf.spec.model_files import folder_on_disk
from rlf.spec.models import RunSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.types.policy import Finish, Policy, Sample, SampleRequest
from rlf.types.tool import ToolCall

_SMALL: Mapping[str, int] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "depth": 2,
    "embed_dim": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
}
"""Upper bounds of the sizes that a configuration may have; the last ones are those of Qwen's eyes."""
_BLOCKS = ("deepstack_visual_indexes", "fullatt_block_indexes")
"""Lists of numbers of blocks, of which there are `depth`."""
_BESIDE = (".json", ".jinja", ".model", ".txt")
"""Endings of a tokenizer's and a processor's files."""
_SMALL_ENOUGH_BYTES = 64 * 2**20


def rehearsal_model(path: str, folder: Path, *, seed: int) -> tuple[str, str]:
    """A model for a rehearsal, and what it is in words.

    Args:
        path: the spec's own model: a folder, or a Hugging Face id whose small files are in the cache.
        folder: where a new model is written.

    Raises:
        RlfError: the configuration or the tokenizer is not on this machine.
    """
    weights = [file for ending in ("*.safetensors", "*.bin") for file in Path(path).glob(ending)]
    if 0 < sum(file.stat().st_size for file in weights) < _SMALL_ENOUGH_BYTES:
        return path, "the spec's own model, which is small"
    import torch
    from transformers import AutoConfig, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise RlfError(
            f"model.path: the configuration or tokenizer of {path!r} is not on this machine: {first_line(error)}. A "
            f"rehearsal needs no weights; get the rest with `hf download {path} --include '*.json' '*.jinja' '*.txt'`."
        ) from error
    _shrink(config)
    torch.manual_seed(seed)
    try:
        model = auto_model(config).from_config(config, dtype=torch.bfloat16)
    except (ValueError, RuntimeError, TypeError) as error:
        raise RlfError(
            f"model.path: no small model can be made from the configuration of {path!r}: {first_line(error)}. Put a "
            "small model of the same architecture into a folder and rehearse with model.path=FOLDER."
        ) from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _copy_beside(folder_on_disk(path), folder)
    size = sum(parameter.numel() for parameter in model.parameters())
    return str(folder), f"{type(model).__name__} with {size / 1e6:.1f} M random parameters"


def _shrink(config: Any) -> None:
    """Cuts a configuration and those inside it down to `_SMALL`; the vocabulary keeps its size."""
    inside = [getattr(config, name, None) for name in config.sub_configs]
    for part in {id(part): part for part in (config, *inside) if part is not None}.values():
        old_head = _head_size(part)
        for name, most in _SMALL.items():
            size = getattr(part, name, None)
            if isinstance(size, int) and size > most:
                setattr(part, name, most)
        kinds = getattr(part, "layer_types", None)
        if kinds:
            # As many kinds of layers as there is room for, in the order of their first appearance.
            part.layer_types = [*dict.fromkeys(kinds), *kinds][: part.num_hidden_layers]
        for name in _BLOCKS:
            if blocks := getattr(part, name, None):
                setattr(part, name, list(range(part.depth))[-len(blocks) :])
        rope = getattr(part, "rope_parameters", None) or {}
        if old_head and "mrope_section" in rope:
            rope["mrope_section"] = _in_proportion(rope["mrope_section"], old_head, _head_size(part))


def _head_size(part: Any) -> int:
    """Numbers of an attention head; 0 for what has none."""
    heads, hidden = getattr(part, "num_attention_heads", None), getattr(part, "hidden_size", None)
    return int(getattr(part, "head_dim", None) or (hidden // heads if heads and hidden else 0))


def _in_proportion(sections: list[int], old: int, new: int) -> list[int]:
    """How many of a head's numbers encode time, height and width, as shares of a smaller head; none is left without."""
    total = sum(sections) * new // old
    cut = [max(1, section * new // old) for section in sections]
    return [cut[0] + total - sum(cut), *cut[1:]]


def _copy_beside(source: Path | None, folder: Path) -> None:
    """Copies what the tokenizer or processor may need and `save_pretrained` left out."""
    for file in source.iterdir() if source is not None else ():
        if file.suffix in _BESIDE and not (folder / file.name).exists() and not file.name.endswith("index.json"):
            shutil.copy(file, folder / file.name)


# A policy that opens with a call of a declared tool: a model that knows nothing would make none, others not all.

_LOGPROB = -1.0
"""Of each written token; nobody sampled it."""


class OpeningCalls:
    """Writes the first turn of every other trajectory, a call of each tool in turn; the rest another policy samples."""

    def __init__(self, policy: Policy, chat: ChatFormat, tools: Sequence[ToolDeclaration], number: int) -> None:
        """Opens the trajectory with a number: an even one has a call, of which tool the number says."""
        self._policy = policy
        self._chat = chat
        # Those of a tool's own tests; without tests, one made from its schema. The first of each tool first.
        of_each = [
            [ToolCall(tool.name, test.arguments) for test in tool.tests] or [example_call(tool.description_for_model)]
            for tool in tools
            if not tool.hidden
        ]
        calls = [call for by_number in zip_longest(*of_each) for call in by_number if call is not None]
        self._call = calls[number // 2 % len(calls)] if calls and number % 2 == 0 else None

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Passes it to the policy behind."""
        self._policy.open(trajectory_ids)

    def release(self, trajectory_id: str) -> None:
        """Passes it to the policy behind."""
        self._policy.release(trajectory_id)

    async def sample(self, request: SampleRequest) -> Sample:
        """A written call, or what the policy behind samples."""
        if request.num_sampled or self._call is None:
            return await self._policy.sample(request)
        begin = self._chat.think[1] if self._chat.begins_thinking else ""
        tokens = encode_template(self._chat.tokenizer, begin + self._chat.write_call(self._call))
        tokens = [*tokens, *self._chat.stop_token_ids[:1]]
        finish = Finish.STOP if len(tokens) <= request.max_tokens else Finish.LENGTH
        tokens = tokens[: request.max_tokens]
        return Sample(tokens, [_LOGPROB] * len(tokens), finish)


# Changes of a spec for a rehearsal, as overrides that a person could type, each with its reason.
#
# Everything that is not named here goes to OpenRLHF as it would on the GPUs.

_STEPS = 2
_PROMPTS = 4
_GENERATIONS = 4
_NEW_TOKENS = 64
"""Room for a written call."""
_QUESTIONS = 8


def place_changes(engine: OpenRlhfSettings, *, vllm: bool) -> Iterator[SpecChange]:
    """Changes without which a CPU cannot run it.

    Args:
        vllm: whether the job samples with vLLM itself.
    """
    if engine.packing:
        yield SpecChange("engine.packing", False, "packing needs flash attention")
    if engine.ring_attention > 1:
        yield SpecChange("engine.ring_attention", 1, "ring attention needs flash attention")
    if engine.attention.startswith("flash"):
        yield SpecChange("engine.attention", "sdpa", "flash attention needs a GPU")
    one = {"nodes": 1, "per_node": 1}
    for name, gpus in (("actor", engine.actor), ("ref", engine.ref), ("critic", engine.critic)):
        if gpus is not None and gpus != Gpus():
            yield SpecChange(f"engine.{name}", one, "one process for each model")
    if engine.vllm.engines is not None and engine.vllm.engines > 1:
        yield SpecChange("engine.vllm.engines", 1, "one process that samples")
    if engine.vllm.tensor_parallel > 1:
        yield SpecChange("engine.vllm.tensor_parallel", 1, "a model split over GPUs needs NCCL")
    if vllm and not engine.vllm.enforce_eager:
        yield SpecChange("engine.vllm.enforce_eager", True, "CUDA graphs need a GPU")
    if vllm and engine.sleep is not False:
        yield SpecChange("engine.sleep", False, "vLLM for CPUs cannot sleep")
    for key in ("ray_address", "output", "wandb"):
        if getattr(engine, key) is not None:
            yield SpecChange(f"engine.{key}", None, "a rehearsal stays on this machine")


def size_changes(spec: RunSpec) -> Iterator[SpecChange]:
    """Changes that save time."""
    train, rollout = spec.train, spec.rollout
    smaller = "smaller, to save time"
    if train.steps != _STEPS:
        yield SpecChange("train.steps", _STEPS, smaller)
    if train.warmup_steps:
        yield SpecChange("train.warmup_steps", 0, "so that both steps change the weights")
    if spec.checkpoint.every != _STEPS:
        yield SpecChange("checkpoint.every", _STEPS, "so that one checkpoint is written")
    if spec.imitates_only:
        for key in ("per_step", "heldout"):
            if getattr(spec.data.demonstrations, key) > _PROMPTS:
                yield SpecChange(f"data.demonstrations.{key}", _PROMPTS, smaller)
        if spec.eval.every not in (None, _STEPS):
            yield SpecChange("eval.every", _STEPS, "so that the held-out loss is found at the end")
        return
    if train.prompts_per_step != _PROMPTS:
        yield SpecChange("train.prompts_per_step", _PROMPTS, smaller)
    if rollout.num_generations > _GENERATIONS:
        yield SpecChange("rollout.num_generations", _GENERATIONS, smaller)
    if train.mini_batches > _PROMPTS:
        yield SpecChange("train.mini_batches", _PROMPTS, smaller)
    if rollout.max_new_tokens is None or rollout.max_new_tokens > _NEW_TOKENS:
        yield SpecChange("rollout.max_new_tokens", _NEW_TOKENS, "an untrained model seldom ends a turn")
    if train.dynamic_filtering is not None:
        yield SpecChange("train.dynamic_filtering", None, "an untrained model gives no group with mixed rewards")
    if spec.data.eval is not None:
        if spec.eval.every != _STEPS:
            yield SpecChange("eval.every", _STEPS, "so that one evaluation runs")
        if spec.eval.limit > _QUESTIONS:
            yield SpecChange("eval.limit", _QUESTIONS, smaller)
