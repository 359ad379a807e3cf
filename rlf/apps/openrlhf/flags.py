"""Options of OpenRLHF 0.11.2: those that it takes, those that a spec may not set, and whether it accepts a plan's.

Accepted is what OpenRLHF's own parser takes if it is installed, else what is listed here; a test holds the list against
the parser of the installed version.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from rlf.apps.openrlhf.job import Job
from rlf.apps.openrlhf.settings import (
    LAYOUT_KEYS,
    VERSION,
    Layout,
    OpenRlhfSettings,
    find_python_complaint,
    openrlhf_settings,
)
from rlf.apps.openrlhf.supervised import TAKEN, job_argv, options_of, program_of
from rlf.core import Fault, nearest
from rlf.core.identity import remember, stamp_file
from rlf.processes.child import run_to_end
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.model_files import folder_on_disk, read_config
from rlf.spec.models import KlPlace, RunSpec
from rlf.spec.nodes import KeyPath

# What breaks a promise of rlf's, each with what to write instead. Read in OpenRLHF 0.11.2, option by option.
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
        lambda spec: openrlhf_settings(spec).wandb is not None or openrlhf_settings(spec).tensorboard,
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


_BY_VALUE = {
    "float": (
        "actor.adam.eps actor.adam.lr actor.adam.weight_decay actor.aux_loss_coef actor.dual_clip actor.entropy_coef "
        "actor.eps_clip actor.lr_warmup_ratio actor.max_norm actor.min_lr_ratio actor.muon.lr actor.muon.momentum "
        "algo.advantage.gamma algo.advantage.lambd algo.kl.init_coef algo.kl.target ckpt.max_mem critic.adam.eps "
        "critic.adam.lr critic.adam.weight_decay critic.lr_warmup_ratio critic.max_norm critic.min_lr_ratio "
        "critic.muon.lr critic.muon.momentum critic.value_clip ds.lora.dropout eval.temperature "
        "reward.overlong_buffer_len reward.overlong_penalty_factor reward.stop_properly_penalty_coef "
        "rollout.temperature rollout.top_p train.ema_beta vllm.gpu_memory_utilization"
    ),
    "float +": ("algo.advantage.is_correction_threshold"),
    "float 2": (
        "actor.adam.betas actor.eps_clip_low_high algo.dynamic_filtering_range critic.adam.betas reward.clip_range"
    ),
    "int": (
        "actor.muon.ns_steps actor.num_gpus_per_node actor.num_nodes algo.kl.horizon ckpt.max_num ckpt.save_steps "
        "critic.freezing_steps critic.muon.ns_steps critic.num_gpus_per_node critic.num_nodes "
        "data.dataloader_num_workers data.max_images_per_prompt data.max_len data.max_samples ds.lora.alpha "
        "ds.lora.rank ds.ring_attn_head_stride ds.ring_attn_size ds.tensor_parallel_size ds.zero_stage ds.zpg "
        "eval.n_samples_per_prompt eval.steps local_rank logger.logging_steps ref.num_gpus_per_node ref.num_nodes "
        "reward.num_gpus_per_node reward.num_nodes rollout.batch_size rollout.max_new_tokens "
        "rollout.max_tokens_per_gpu rollout.micro_batch_size rollout.n_samples_per_prompt "
        "rollout.vllm_generate_batch_size train.async_queue_size train.batch_size train.max_epochs "
        "train.max_tokens_per_gpu train.micro_batch_size train.num_episodes train.seed vllm.num_engines "
        "vllm.tensor_parallel_size"
    ),
    "str": (
        "actor.loss_agg_mode actor.lr_scheduler actor.model_name_or_path actor.optim actor.policy_loss_type "
        "algo.advantage.estimator algo.advantage.is_correction_gating algo.advantage.is_correction_level "
        "algo.advantage.is_correction_mode algo.kl.estimator ckpt.best_metric_key ckpt.output_dir ckpt.path "
        "critic.lr_scheduler critic.model_name_or_path critic.optim data.image_key data.input_key data.input_template "
        "data.label_key data.prompt_dataset data.prompt_probs data.prompt_split ds.attn_implementation "
        "ds.experts_implementation ds.grad_accum_dtype ds.param_dtype ds.value_head_prefix eval.dataset eval.split "
        "logger.tensorboard_dir logger.wandb.group logger.wandb.key logger.wandb.org logger.wandb.project "
        "logger.wandb.run_name reward.model_name_or_path reward.remote_url train.agent_func_path vllm.sync_backend"
    ),
    "str *": ("ds.lora.target_modules"),
    "switch": (
        "actor.freeze_visual_encoder actor.gradient_checkpointing_enable actor.gradient_checkpointing_reentrant "
        "actor.muon.nesterov actor.muon.no_nesterov algo.advantage.no_std_norm algo.dynamic_filtering_enable "
        "algo.kl.unbiased_gradient algo.kl.use_loss ckpt.disable_ds ckpt.load_enable ckpt.save_hf critic.muon.nesterov "
        "critic.muon.no_nesterov critic.save_value_network data.apply_chat_template data.disable_fast_tokenizer "
        "ds.adam_offload ds.deepcompile ds.enable_sleep ds.load_in_4bit ds.overlap_comm ds.packing_samples "
        "ds.use_liger_kernel ds.use_universal_ckpt ref.offload reward.normalize_enable reward.offload "
        "train.async_enable train.colocate_actor_ref train.colocate_all train.colocate_critic_reward "
        "train.dynamic_batch_enable train.enable_ema train.full_determinism_enable train.partial_rollout_enable use_ms "
        "vllm.enable_prefix_caching vllm.enable_sleep vllm.enforce_eager vllm.sync_with_ray"
    ),
}
"""Options without dashes, by what they take: `switch`, or the type of their values and how many there are."""
TAKES: dict[str, str] = {flag: takes for takes, flags in _BY_VALUE.items() for flag in flags.split()}
"""What follows each option."""

_SCRIPT = Path(__file__).with_name("parse.py")
_TIMEOUT_S = 60
_NAMED = re.compile(r"argument --(\S+):")


@dataclass(frozen=True, slots=True)
class ParserAnswer:
    """Result of OpenRLHF's parser."""

    error: str
    """Of the parser, or of what it asserts after; empty where there is none."""
    said: tuple[str, ...]
    """What it prints, line by line: what it changes or recommends."""
    arguments: Mapping[str, Any]
    """The arguments that training would get; empty after an error."""
    takes: Mapping[str, str]
    """Every option that it knows, without dashes, with what follows it."""


def has_openrlhf() -> bool:
    """Whether OpenRLHF is on this machine, with or without what it needs to run."""
    return importlib.util.find_spec("openrlhf") is not None


@cache
def openrlhf_version() -> str:
    """E.g. `0.11.2`."""
    return importlib.metadata.version("openrlhf")


def parse_options(options: Sequence[str], python: Path | None = None, program: str = "train_ppo_ray") -> ParserAnswer:
    """OpenRLHF's own reading of options, where abbreviated ones are errors.

    Args:
        python: an interpreter with the OpenRLHF that rlf is made for; None: this one, which has one.
        program: of `openrlhf.cli`.
    """
    asked = list(options)
    if python is None:
        folder = Path(str(importlib.metadata.distribution("openrlhf").locate_file("openrlhf")))
        version, stamp = openrlhf_version(), stamp_file(folder / "cli" / f"{program}.py")
    else:
        version, stamp = VERSION, stamp_file(python)
    key, run = ["openrlhf", version, stamp, program, asked], partial(_run_parser, asked, python, program)
    values = run() if stamp is None else remember(key, run)
    takes = {flag.removeprefix("--"): words.removesuffix(" 1") for flag, words in values["options"].items()}
    return ParserAnswer(values["error"], tuple(values["said"]), values["arguments"] or {}, takes)


def _run_parser(options: list[str], python: Path | None, program: str) -> dict[str, Any]:
    """In a process of its own, since the parser's modules are replaced there."""
    command = [sys.executable if python is None else str(python), "-P", str(_SCRIPT), program]
    done = run_to_end(command, _TIMEOUT_S, says=json.dumps(options))
    assert done.returncode == 0, f"OpenRLHF's parser cannot run: {done.stderr}"
    values: dict[str, Any] = json.loads(done.stdout)
    return values


@reads("engine.extra_flags", *EFFECT_KEYS)
def find_flag_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """Faults of `engine.extra_flags` whatever the other options are."""
    emitted = {option.flag: option for option in options_of(loaded.spec)}
    for flag, path, value in _extra(openrlhf_settings(loaded.spec).extra_flags):
        if flag in emitted:
            keys, note = emitted[flag].keys.split(), emitted[flag].note
            why = f": {note}" if note else ""
            fix = f", from {keys[0]}. Write that instead." if keys else f"{why}. Remove it."
            yield loaded.fault(path, f"rlf writes --{flag} itself{fix}")
        elif loaded.spec.imitates_only:
            if flag not in TAKEN:
                message = f"--{flag} is not for jobs that imitate alone, which take {', '.join(TAKEN)}. Remove it."
                yield loaded.fault(path, message)
            elif complaint := _of_wrong_kind(flag, TAKEN[flag], value):
                yield loaded.fault(path, complaint)
        elif flag in REFUSED:
            yield loaded.fault(path, f"--{flag} is not for rlf's jobs: {REFUSED[flag]}.")
        elif flag not in TAKES and (not has_openrlhf() or openrlhf_version() == VERSION):
            yield _unknown_option_fault(loaded, path, flag, TAKES)
        elif flag in TAKES and (complaint := _of_wrong_kind(flag, TAKES[flag], value)):
            yield loaded.fault(path, complaint)
        elif value not in (None, False) and (idle := find_idle(flag, loaded.spec)):
            yield loaded.fault(path, f"--{flag} would have no effect: {idle}.")


def check_options(loaded: LoadedSpec, python: Path | None = None) -> tuple[list[Fault], list[Fault]]:
    """Faults and warnings of the whole list of options of a spec that has no other fault.

    Args:
        python: an interpreter with the OpenRLHF that rlf is made for, asked where this one has none.
    """
    engine = openrlhf_settings(loaded.spec)
    warnings: list[Fault] = []
    is_here = has_openrlhf()
    if not is_here and python is None:
        message = f"OpenRLHF is not installed: its options were checked only against rlf's list for {VERSION}. "
        complaint = find_python_complaint()
        fix = f"Run `pip install --no-deps openrlhf=={VERSION}` to have its own parser check them."
        if complaint is not None:
            fix = f"{complaint}. Use an older Python to have its own parser check them, and to run the job."
        return [], [loaded.fault(("engine", "kind"), message + fix)]
    options, place = job_argv(loaded.spec, Job(Path("/job"), Path("/job"))), None if is_here else python
    parsed = parse_options(options, place, program_of(loaded.spec))
    if is_here and openrlhf_version() != VERSION:
        message = f"OpenRLHF {openrlhf_version()} is installed; rlf is made for {VERSION}. Install that."
        warnings.append(loaded.fault(("engine", "kind"), message))
    stated = [loaded.fault(("engine", "kind"), f"OpenRLHF says: {line}") for line in parsed.said]
    return list(_parser_faults(loaded, engine, parsed)), [*warnings, *stated]


def _parser_faults(loaded: LoadedSpec, engine: OpenRlhfSettings, parsed: ParserAnswer) -> Iterator[Fault]:
    unknown = [(flag, path) for flag, path, _ in _extra(engine.extra_flags) if flag not in parsed.takes]
    for flag, path in unknown:
        yield _unknown_option_fault(loaded, path, flag, parsed.takes)
    if not parsed.error or unknown:
        return
    named = _NAMED.match(parsed.error)
    paths = {flag: path for flag, path, _ in _extra(engine.extra_flags)}
    path = paths.get(named[1], ("engine",)) if named else ("engine",)
    yield loaded.fault(path, f"OpenRLHF's parser refuses the job: {parsed.error}. Change it, or what it names.")


def _extra(flags: Mapping[str, Any], path: KeyPath = ("engine", "extra_flags")) -> Iterator[tuple[str, KeyPath, Any]]:
    """Each option with the place where the spec says it."""
    for key, value in flags.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield from _extra(value, here)
        else:
            yield ".".join(map(str, here[2:])), here, value


def _unknown_option_fault(loaded: LoadedSpec, path: KeyPath, flag: str, known: Mapping[str, str]) -> Fault:
    whole = [name for name in known if name.startswith(flag)]
    close = f"; did you mean {whole[0]!r}?" if len(whole) == 1 else nearest(flag, list(known))
    return loaded.fault(path, f"OpenRLHF has no option {flag!r}{close or '.'} Write its whole name, or remove it.")


def _of_wrong_kind(flag: str, takes: str, value: Any) -> str | None:
    """The fault of a value of the wrong kind; its text is the parser's to judge."""
    if takes == "switch":
        fix = "is a switch. Write true, or remove it."
        return None if isinstance(value, bool | None) else f"got {value!r}; --{flag} {fix}"
    if isinstance(value, bool):
        return f"got {str(value).lower()}; --{flag} takes a value ({takes}). Write it."
    if isinstance(value, list | tuple) and " " not in takes:
        return f"got a list; --{flag} takes one value ({takes}). Write it alone."
    return None
