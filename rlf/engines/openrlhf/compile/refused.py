"""Options of OpenRLHF that `engine.extra_flags` does not take, each with what to write instead: those that break a
promise of rlf's, and those that would change nothing. Read in OpenRLHF 0.11.2, option by option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlf.engines.openrlhf.layout import LAYOUT_KEYS, Layout
from rlf.engines.openrlhf.settings import openrlhf_settings
from rlf.spec.model_files import folder_on_disk, read_config
from rlf.spec.models import KlPlace, RunSpec

REFUSED = {
    "algo.kl.target": "an adaptive KL reads the mean of all trajectories, also of those left out. Write train.kl.coef",
    "ds.tensor_parallel_size": "OpenRLHF cuts batches as if there were none. Write zero_stage: 3, or ring_attention",
    "ds.lora.dropout": "vLLM samples without it, so the trained model is not the one that sampled",
    "ds.load_in_4bit": "vLLM is sent weights as the trainer holds them, and takes none of 4 bits. Write model.lora",
    "reward.remote_url": "rewards come from the agent. Write a reward term",
    "reward.model_name_or_path": "rewards come from the agent. Write a reward term",
    "reward.normalize_enable": "it belongs to OpenRLHF's own reward models",
    "reward.overlong_buffer_len": "its length counts tool output. Write the reward term {rule: overlong}",
    "reward.overlong_penalty_factor": "its length counts tool output. Write the weight of {rule: overlong}",
    "data.apply_chat_template": "the agent renders prompts, token by token. Write chat",
    "data.input_template": "the agent renders prompts, token by token. Write data.train.template",
    "data.image_key": "rows name their images in the task. Write data.train.images",
    "data.prompt_probs": "rlf writes the dataset. Write weights in a .mix.yaml file, and it as data.train.path",
    "data.prompt_split": "rlf writes the dataset. Write data.train.split",
    "data.max_samples": "rlf writes as many rows as there are to draw. Write train.steps",
    "eval.split": "rlf writes the dataset. Write data.eval.split",
    "rollout.max_new_tokens": "the agent bounds each turn itself. Write rollout.max_new_tokens",
    "rollout.vllm_generate_batch_size": "OpenRLHF reports to no agent which step takes a group sampled ahead, so "
    "its trajectories could be recorded for none. Write train.prompts_per_step, or mode: async with a queue_size",
    "local_rank": "Ray sets it for each process",
    "ckpt.disable_ds": "the run would have no state to resume from. Write a larger checkpoint.every",
    "ckpt.max_mem": "OpenRLHF would remove checkpoints by their size, the only whole one too. Write checkpoint.keep",
    "ds.use_universal_ckpt": "a resume would look for a checkpoint in another form, which no job writes. Write "
    "zero_stage",
    "reward.stop_properly_penalty_coef": "it changes rewards after rlf has recorded them. Write a reward term, e.g. "
    "{rule: overlong}",
    "reward.num_nodes": "rewards come from the agent, and no reward model is placed. Write a reward term",
    "reward.num_gpus_per_node": "rewards come from the agent, and no reward model is placed. Write a reward term",
    "reward.offload": "rewards come from the agent, and there is no reward model. Write a reward term",
    "train.colocate_critic_reward": "rewards come from the agent, and there is no reward model. Write engine.colocate",
    "actor.eps_clip": "OpenRLHF reads the two bounds that rlf writes. Write train.loss.clip_low and clip_high",
    "actor.muon.ns_steps": "DeepSpeed does not read it, and makes 5 steps. Write engine.muon",
    "actor.muon.nesterov": "DeepSpeed does not read it, and always has it. Write engine.muon",
    "actor.muon.no_nesterov": "DeepSpeed does not read it. Write engine.muon",
    **{
        f"critic.muon.{name}": "the critic is trained by Adam. Write train.critic.learning_rate"
        for name in ("lr", "momentum", "ns_steps", "nesterov", "no_nesterov")
    },
    "algo.kl.horizon": "it belongs to an adaptive KL. Write train.kl.coef",
    "data.disable_fast_tokenizer": "rlf renders and reads with its own tokenizer. Write chat",
    "use_ms": "rlf reads the model's tokenizer from Hugging Face. Write a folder as model.path",
}
"""Options that have no key here on purpose, with the reason and what to write instead."""


def _config(spec: RunSpec) -> Mapping[str, Any] | None:
    """The model's configuration; None where the model is not on this machine."""
    folder = folder_on_disk(spec.model.path)
    return None if folder is None else read_config(folder)


def _has_experts(spec: RunSpec) -> bool:
    config = _config(spec)
    text = {} if config is None else config.get("text_config", config)
    return config is None or any("expert" in key for key in text)


def _is_reported(spec: RunSpec) -> bool:
    engine = openrlhf_settings(spec)
    return engine.wandb is not None or engine.tensorboard


_CRITIC = (
    lambda spec: spec.train.algorithm.needs_critic,
    "the algorithm trains no critic. Write `train.algorithm: gae`, or remove it",
)
_EXPERTS = (_has_experts, "the model has no experts. Remove it")
EFFECTS: Mapping[str, tuple[Callable[[RunSpec], bool], str]] = {
    "critic.adam.eps": _CRITIC,
    "critic.freezing_steps": _CRITIC,
    "critic.model_name_or_path": _CRITIC,
    "critic.save_value_network": _CRITIC,
    "ds.value_head_prefix": _CRITIC,
    "actor.aux_loss_coef": _EXPERTS,
    "ds.experts_implementation": _EXPERTS,
    "actor.gradient_checkpointing_reentrant": (
        lambda spec: openrlhf_settings(spec).gradient_checkpointing,
        "nothing is computed twice. Write `engine.gradient_checkpointing: true`, or remove it",
    ),
    "algo.kl.unbiased_gradient": (
        lambda spec: spec.train.kl.coef > 0 and spec.train.kl.place is KlPlace.LOSS,
        "the loss has no KL. Write `train.kl: {coef: 0.001, place: loss}`, or remove it",
    ),
    "ds.ring_attn_head_stride": (
        lambda spec: openrlhf_settings(spec).ring_attention > 1,
        "no trajectory is cut over GPUs. Write `engine.ring_attention: 2`, or remove it",
    ),
    "ds.zpg": (
        lambda spec: openrlhf_settings(spec).zero_stage == 3,
        "weights are not cut over GPUs. Write `engine.zero_stage: 3`, or remove it",
    ),
    "ds.use_liger_kernel": (
        lambda spec: "vision_config" not in (_config(spec) or {}),
        "OpenRLHF leaves it out for models that see. Remove it",
    ),
    "vllm.sync_with_ray": (
        lambda spec: not Layout.of(spec).all_share or openrlhf_settings(spec).vllm.sync_backend != "nccl",
        "models that share a GPU hand weights over in its memory. Write `engine.colocate: none`, or remove it",
    ),
    "logger.logging_steps": (
        _is_reported,
        "nothing is reported beside the lineage. Write `engine.tensorboard: true` or `engine.wandb`, or remove it",
    ),
}
"""Options that change something in some jobs alone: in which, and what to write in the others."""
EFFECT_KEYS = (
    *("engine.gradient_checkpointing", "engine.ring_attention", "engine.zero_stage", "engine.tensorboard"),
    *("engine.wandb", "engine.vllm", "model.path", "train.kl", *LAYOUT_KEYS),
)
"""The keys that these read."""


def find_idle(flag: str, spec: RunSpec) -> str | None:
    """Why an option changes nothing in a job, and what to write; None where it does."""
    has_effect, why = EFFECTS.get(flag, (None, ""))
    return None if has_effect is None or has_effect(spec) else why
