"""From a plan to the options of `openrlhf.cli.train_ppo_ray`: one table, in the order in which they are emitted.

Only what matters is emitted, and what has a trap for a default always is: the warm-up ratio (0.03, which makes the
first update empty), the coefficient of the KL (0.01, which starts a reference), GPUs per node (8). The table of the
documentation is made from this file, and a test holds every key of a spec against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlf.algo.loss_config import Aggregation, CorrectionGating, CorrectionLevel, LrSchedule, OffPolicyCorrection
from rlf.apps.openrlhf.job import Job
from rlf.apps.openrlhf.settings import (
    ESTIMATOR_NAMES,
    LOSS_NAMES,
    Colocate,
    Layout,
    Mode,
    OpenRlhfSettings,
    openrlhf_settings,
)
from rlf.plan.estimate import ALL_LINEAR
from rlf.spec.model_files import model_location
from rlf.spec.models import KlPlace, RunSpec, TrainSpec

Value = bool | str | int | float | Sequence[str | int | float] | None
"""Of an option: None and false leave it out, true is the option alone."""


@dataclass(frozen=True, slots=True)
class OptionInputs:
    """The inputs of options."""

    spec: RunSpec
    engine: OpenRlhfSettings
    layout: Layout
    job: Job

    @property
    def train(self) -> TrainSpec:
        """The section that most options are of."""
        return self.spec.train

    def has_eval(self, value: Value) -> Value:
        """A value where there is an evaluation set; else None."""
        return None if self.spec.data.eval is None else value


@dataclass(frozen=True, slots=True)
class Option:
    """One option of OpenRLHF."""

    flag: str
    """Without dashes."""
    keys: str
    """The keys of the spec that it is made from, separated by spaces; empty for what rlf decides itself."""
    value: Callable[[OptionInputs], Value] | None = None
    """None: the key's own value; the option is left out where a section that leads to it is absent."""
    note: str = ""
    """How the value is made, where it is not the key's own."""

    def of(self, source: OptionInputs) -> Value:
        """The option's value."""
        return _find(source.spec, self.keys) if self.value is None else self.value(source)


def argv(spec: RunSpec, job: Job, options: Sequence[Option] | None = None) -> list[str]:
    """The options of a plan without faults, `engine.extra_flags` last.

    Args:
        options: a table of them; None: `OPTIONS`.
    """
    source = OptionInputs(spec, openrlhf_settings(spec), Layout.of(spec), job)
    values = {option.flag: option.of(source) for option in options or OPTIONS} | flat(source.engine.extra_flags)
    return [word for flag, value in values.items() for word in option_words(flag, value)]


def option_words(flag: str, value: Any) -> list[str]:
    """The words of one option: `--flag`, `--flag value`, `--flag low high`; none where it is left out."""
    if value is None or value is False:
        return []
    values = [] if value is True else value if isinstance(value, list | tuple) else [value]
    return [f"--{flag}", *map(str, values)]


def flat(flags: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{ds: {overlap_comm: true}}` and `{ds.overlap_comm: true}` as the latter."""
    found: dict[str, Any] = {}
    for key, value in flags.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _find(start: Any, path: str) -> Any:
    """The value that a dotted path leads to; None where there is none."""
    for part in path.split("."):
        start = getattr(start, part, None)
    return start


def _laid(path: str) -> Callable[[OptionInputs], Value]:
    return lambda source: _find(source.layout, path)


def _warmup_ratio(source: OptionInputs) -> float:
    """The ratio that OpenRLHF's ceil(updates x ratio) makes these warm-up updates of."""
    train = source.train
    updates = train.steps * train.epochs * train.mini_batches
    return (train.warmup_steps - 0.5) / updates if train.warmup_steps else 0.0


def _schedule(source: OptionInputs) -> str:
    """transformers' `constant` has no warm-up."""
    train = source.train
    return (
        "constant_with_warmup" if train.lr_schedule is LrSchedule.CONSTANT and train.warmup_steps else train.lr_schedule
    )


def _of_critic(option: Option) -> Option:
    """An option of the critic alone, which is left out where there is none."""

    def value(source: OptionInputs) -> Value:
        return None if source.layout.critic is None else option.of(source)

    return replace(option, flag=f"critic.{option.flag}", value=value)


def _corrected(value: Callable[[OffPolicyCorrection], Value]) -> Callable[[OptionInputs], Value]:
    def of(source: OptionInputs) -> Value:
        correction = source.train.loss.correction
        return None if correction.level is CorrectionLevel.OFF else value(correction)

    return of


def _bounds(correction: OffPolicyCorrection) -> Value:
    """The thresholds; OpenRLHF holds the lower one against a KL that rounding can leave below 0."""
    low, high = correction.threshold
    return (-1.0 if correction.gating is CorrectionGating.BINARY_KL else low), high


def _packed(
    value: Callable[[OptionInputs], Value], otherwise: Callable[[OptionInputs], Value]
) -> Callable[[OptionInputs], Value]:
    return lambda source: value(source) if source.engine.packing else otherwise(source)


def _aggregation(source: OptionInputs) -> str:
    return "token-mean" if source.train.loss.aggregation is Aggregation.TOKEN_MEAN else "seq-mean-token-mean"


def _estimator(source: OptionInputs) -> str:
    return ESTIMATOR_NAMES[type(source.train.algorithm).__module__.rpartition(".")[2]]


def _adapted(source: OptionInputs) -> Value:
    lora = source.spec.model.lora
    return None if lora is None or lora.target_modules == ALL_LINEAR else lora.target_modules


_OPTIMISER = (
    Option("adam.betas", "train.adam_betas"),
    Option("adam.weight_decay", "train.weight_decay"),
    Option(
        "lr_scheduler", "train.lr_schedule train.warmup_steps", _schedule, "`constant_with_warmup` where there is one"
    ),
    Option(
        "lr_warmup_ratio",
        "train.warmup_steps train.steps train.epochs train.mini_batches",
        _warmup_ratio,
        "(warmup_steps - 1/2) / updates, which OpenRLHF rounds up to warmup_steps",
    ),
    Option("min_lr_ratio", "train.min_lr_ratio"),
)
"""Options that the policy and the critic have each for itself."""

_MODELS = (
    Option("actor.model_name_or_path", "model.path", lambda s: model_location(s.spec.model.path)),
    Option("ds.param_dtype", "model.dtype", lambda s: "bf16", "float32 is refused"),
    Option("train.agent_func_path", "", lambda s: s.job.agent.name, "the job's agent"),
    Option("train.seed", "seed"),
    Option("train.full_determinism_enable", "engine.deterministic"),
    Option("ds.lora.rank", "model.lora.rank"),
    Option("ds.lora.alpha", "model.lora.alpha"),
    Option(
        "ds.lora.target_modules", "model.lora.target_modules", _adapted, "`all-linear` is what OpenRLHF does without"
    ),
)
_DATA = (
    Option("data.prompt_dataset", "data.train train.steps", lambda s: "data/train.jsonl", "written by rlf, see below"),
    Option("data.input_key", "", lambda s: "input", "the row's name"),
    Option("data.label_key", "", lambda s: "label", "the task as JSON"),
    Option("data.max_images_per_prompt", "rollout.max_images", lambda s: s.spec.rollout.max_images or None),
    Option(
        "actor.freeze_visual_encoder",
        "rollout.max_images",
        lambda s: s.spec.rollout.max_images > 0,
        "with images: vLLM keeps an image's encoding when new weights come",
    ),
    Option("data.max_len", "rollout.max_total_tokens"),
    Option("train.num_episodes", "train.steps", lambda s: 1, "the rows are steps x prompts_per_step"),
)
_ROLLOUT = (
    Option("rollout.batch_size", "train.prompts_per_step"),
    Option("rollout.n_samples_per_prompt", "rollout.num_generations"),
    Option("rollout.temperature", "rollout.temperature"),
    Option("rollout.top_p", "rollout.top_p"),
    Option(
        "rollout.micro_batch_size",
        "train.micro_batch_tokens rollout.max_total_tokens",
        _packed(lambda s: None, lambda s: s.layout.micro_batch),
        "without packing: micro_batch_tokens / max_total_tokens, down to a divisor of a GPU's share",
    ),
    Option(
        "rollout.max_tokens_per_gpu",
        "train.micro_batch_tokens",
        _packed(lambda s: s.layout.micro_batch_tokens, lambda s: None),
        "with packing: at least one whole trajectory, / ring_attention",
    ),
)
_TRAIN = (
    Option(
        "train.batch_size",
        "train.prompts_per_step rollout.num_generations train.mini_batches",
        lambda s: s.layout.batch,
        "prompts_per_step x num_generations / mini_batches",
    ),
    Option(
        "train.micro_batch_size",
        "train.micro_batch_tokens rollout.max_total_tokens",
        _packed(lambda s: None, lambda s: s.layout.micro_batch),
        "as rollout.micro_batch_size",
    ),
    Option("train.dynamic_batch_enable", "engine.packing"),
    Option(
        "train.max_tokens_per_gpu",
        "train.micro_batch_tokens engine.ring_attention",
        _packed(lambda s: s.layout.micro_batch_tokens, lambda s: None),
        "as rollout.max_tokens_per_gpu",
    ),
    Option("train.max_epochs", "train.epochs"),
    Option("actor.adam.lr", "train.learning_rate"),
    Option("actor.optim", "engine.muon", lambda s: "adam" if s.engine.muon is None else "muon"),
    Option("actor.muon.lr", "engine.muon.learning_rate"),
    Option("actor.muon.momentum", "engine.muon.momentum"),
    *(replace(option, flag=f"actor.{option.flag}") for option in _OPTIMISER),
    Option(
        "actor.max_norm",
        "train.max_grad_norm engine.muon",
        lambda s: s.train.max_grad_norm if s.engine.muon is None else 0.0,
        "0 with Muon",
    ),
    Option("train.enable_ema", "engine.ema", lambda s: s.engine.ema is not None),
    Option("train.ema_beta", "engine.ema"),
    Option("actor.gradient_checkpointing_enable", "engine.gradient_checkpointing"),
)
_CRITIC = tuple(
    map(
        _of_critic,
        (
            Option("adam.lr", "train.critic.learning_rate"),
            Option("value_clip", "train.critic.value_clip"),
            Option("optim", "", lambda s: "adam"),
            *_OPTIMISER,
            Option("max_norm", "train.max_grad_norm"),
        ),
    )
)
_LOSS = (
    Option("actor.policy_loss_type", "train.loss.kind", lambda s: LOSS_NAMES[s.train.loss.kind]),
    Option(
        "actor.eps_clip_low_high",
        "train.loss.clip_low train.loss.clip_high",
        lambda s: (s.train.loss.clip_low, s.train.loss.clip_high),
    ),
    Option("actor.dual_clip", "train.loss.dual_clip"),
    Option("actor.loss_agg_mode", "train.loss.aggregation", _aggregation),
    Option("actor.entropy_coef", "train.entropy_coef", lambda s: s.train.entropy_coef or None),
    Option("algo.advantage.is_correction_level", "train.loss.correction.level", _corrected(lambda c: c.level)),
    Option("algo.advantage.is_correction_mode", "train.loss.correction.mode", _corrected(lambda c: c.mode)),
    Option("algo.advantage.is_correction_gating", "train.loss.correction.gating", _corrected(lambda c: c.gating)),
    Option(
        "algo.advantage.is_correction_threshold",
        "train.loss.correction.threshold",
        _corrected(_bounds),
        "of `binary_kl` from -1, since rounding leaves the KL of near probabilities below 0",
    ),
)
_ADVANTAGE = (
    Option("algo.advantage.estimator", "train.algorithm.kind", _estimator, "`grpo` is `group_norm` there"),
    Option("algo.advantage.gamma", "train.algorithm.gamma"),
    Option("algo.advantage.lambd", "train.algorithm.lam"),
    Option(
        "algo.advantage.no_std_norm",
        "train.algorithm.std_norm",
        lambda s: not getattr(s.train.algorithm, "std_norm", True),
        "its opposite",
    ),
    Option("reward.clip_range", "train.reward_clip"),
    Option("algo.kl.init_coef", "train.kl.coef"),
    Option("algo.kl.estimator", "train.kl.kind", lambda s: s.train.kl.kind if s.train.kl.coef else None),
    Option(
        "algo.kl.use_loss",
        "train.kl.place",
        lambda s: s.train.kl.coef > 0 and s.train.kl.place is KlPlace.LOSS,
        "`loss`; without it the reward is penalised",
    ),
    Option("algo.dynamic_filtering_enable", "train.dynamic_filtering", lambda s: s.train.dynamic_filtering is not None),
    Option(
        "algo.dynamic_filtering_range",
        "train.dynamic_filtering",
        lambda s: None if s.train.dynamic_filtering is None else (0.0, 1.0),
        "`0 1`; agents decide by the whole group, and report 0.5 for a kept one's `scores`, else 0",
    ),
)
_EVAL = (
    Option("eval.dataset", "data.eval", lambda s: s.has_eval("data/eval.jsonl"), "written by rlf, see below"),
    Option(
        "eval.steps",
        "eval.every train.steps",
        lambda s: s.has_eval(s.spec.eval.every or s.train.steps),
        "without it: the number of steps",
    ),
    Option("eval.temperature", "eval.temperature", lambda s: s.has_eval(s.spec.eval.temperature)),
    Option("eval.n_samples_per_prompt", "", lambda s: s.has_eval(1), "a row for each sample"),
)
_CHECKPOINT = (
    Option("ckpt.path", "engine.output", lambda s: str(s.job.checkpoints), "the folder's `ckpt`"),
    Option("ckpt.output_dir", "engine.output", lambda s: str(s.job.model), "the folder's `model`"),
    Option("ckpt.save_steps", "checkpoint.every"),
    Option(
        "ckpt.max_num",
        "checkpoint.keep data.eval",
        lambda s: s.spec.checkpoint.keep + (1 if s.spec.data.eval is None else 2),
        "one more, since OpenRLHF removes an old one before it writes the new one, and one for the best evaluation",
    ),
    Option("ckpt.save_hf", "engine.hf_checkpoints"),
    Option("ckpt.load_enable", "", lambda s: True, "a job continues from its own checkpoint, where there is one"),
    Option(
        "ckpt.best_metric_key",
        "",
        lambda s: "none",
        "with a metric it keeps a checkpoint that is none of the run's and removes counted ones; rlf keeps that of the "
        "best evaluation itself",
    ),
)
_PLACES = (
    Option("actor.num_nodes", "engine.actor.nodes", _laid("actor.nodes")),
    Option("actor.num_gpus_per_node", "engine.actor.per_node", _laid("actor.per_node")),
    Option("ref.num_nodes", "engine.ref.nodes", _laid("ref.nodes")),
    Option("ref.num_gpus_per_node", "engine.ref.per_node", _laid("ref.per_node")),
    Option("critic.num_nodes", "engine.critic.nodes", _laid("critic.nodes")),
    Option("critic.num_gpus_per_node", "engine.critic.per_node", _laid("critic.per_node")),
    Option(
        "train.colocate_all",
        "engine.colocate",
        lambda s: s.layout.all_share or s.engine.colocate is Colocate.TRAINED,
        "`all` and `trained`",
    ),
    Option(
        "train.colocate_actor_ref",
        "engine.colocate",
        lambda s: s.engine.colocate is Colocate.ACTOR_REF and s.layout.ref is not None,
        "where there is a reference",
    ),
    Option("train.async_enable", "engine.mode", lambda s: s.engine.mode is not Mode.SYNC, "`async` and `partial`"),
    Option("train.partial_rollout_enable", "engine.mode", lambda s: s.engine.mode is Mode.PARTIAL, "`partial`"),
    Option(
        "train.async_queue_size",
        "engine.queue_size",
        lambda s: None if s.engine.mode is Mode.SYNC else s.engine.queue_size,
    ),
)
_VLLM = (
    Option("vllm.num_engines", "engine.vllm.engines", _laid("num_engines")),
    Option("vllm.tensor_parallel_size", "engine.vllm.tensor_parallel"),
    Option("vllm.gpu_memory_utilization", "engine.vllm.gpu_memory", _laid("gpu_memory")),
    Option("vllm.enforce_eager", "engine.vllm.enforce_eager"),
    Option("vllm.enable_prefix_caching", "engine.vllm.prefix_caching"),
    Option("vllm.sync_backend", "engine.vllm.sync_backend"),
    Option("vllm.enable_sleep", "engine.sleep", _laid("sleep")),
)
_DEEPSPEED = (
    Option("ds.enable_sleep", "engine.sleep", _laid("sleep")),
    Option("ds.zero_stage", "engine.zero_stage"),
    Option("ds.adam_offload", "engine.offload_optimizer"),
    Option("ref.offload", "engine.offload_ref"),
    Option("ds.packing_samples", "engine.packing"),
    Option("ds.attn_implementation", "engine.attention"),
    Option(
        "ds.ring_attn_size",
        "engine.ring_attention",
        lambda s: s.engine.ring_attention if s.engine.ring_attention > 1 else None,
    ),
)
_REPORTS = (
    Option(
        "logger.tensorboard_dir",
        "engine.tensorboard",
        lambda s: str(s.job.tensorboard) if s.engine.tensorboard else None,
        "the folder's `tensorboard`",
    ),
    Option("logger.wandb.run_name", "name"),
    Option(
        "logger.wandb.key",
        "engine.wandb",
        lambda s: None if s.engine.wandb is None else "WANDB_API_KEY",
        "the variable's name, which only turns reports on: wandb reads the key from the environment",
    ),
    Option("logger.wandb.project", "engine.wandb.project"),
    Option("logger.wandb.org", "engine.wandb.organisation"),
    Option("logger.wandb.group", "engine.wandb.group"),
)
OPTIONS: tuple[Option, ...] = (
    *_MODELS,
    *_DATA,
    *_ROLLOUT,
    *_TRAIN,
    *_CRITIC,
    *_LOSS,
    *_ADVANTAGE,
    *_EVAL,
    *_CHECKPOINT,
    *_PLACES,
    *_VLLM,
    *_DEEPSPEED,
    *_REPORTS,
)
"""Every option that rlf emits, in order."""
