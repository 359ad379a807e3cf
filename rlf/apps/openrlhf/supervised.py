"""A run whose every step imitates is a job of OpenRLHF's supervised trainer: its options, its rows, what it lacks.

The trainer samples nothing and needs neither Ray nor vLLM: torchrun starts a process for each GPU of one machine. They
run `imitate`, which gives the trainer the tokens and masks that rollouts of the spec would have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from rlf.apps.openrlhf.argv import OPTIONS, Option, OptionInputs, argv
from rlf.apps.openrlhf.job import Job
from rlf.apps.openrlhf.settings import openrlhf_settings
from rlf.core import Fault
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.load import reads

if TYPE_CHECKING:
    from rlf.training.harness import Demonstrations
    from rlf.types.score import Scored

MODULE = "rlf.apps.openrlhf.imitate"
TAKEN = {
    "adam.eps": "float",
    "data.dataloader_num_workers": "int",
    "ds.deepcompile": "switch",
    "ds.experts_implementation": "str",
    "ds.grad_accum_dtype": "str",
    "ds.lora.dropout": "float",
    "ds.overlap_comm": "switch",
    "ds.ring_attn_head_stride": "int",
    "ds.use_liger_kernel": "switch",
    "ds.zpg": "int",
    "logger.logging_steps": "int",
    "model.aux_loss_coef": "float",
    "model.gradient_checkpointing_reentrant": "switch",
}
"""The options of `train_sft` that `engine.extra_flags` takes, with what follows each."""
_SHARED = (
    "model.model_name_or_path ds.param_dtype train.seed train.full_determinism_enable ds.lora.rank ds.lora.alpha "
    "ds.lora.target_modules data.max_len train.batch_size optim muon.lr muon.momentum adam.betas adam.weight_decay "
    "lr_scheduler min_lr_ratio max_norm model.gradient_checkpointing_enable ckpt.output_dir ckpt.save_steps "
    "ckpt.load_enable ds.zero_stage ds.adam_offload ds.packing_samples ds.attn_implementation ds.ring_attn_size "
    "logger.tensorboard_dir logger.wandb.run_name logger.wandb.key logger.wandb.project logger.wandb.org "
    "logger.wandb.group"
)
"""Those that are made as `train_ppo_ray`'s are, where the policy's begin with `actor`."""


def _warmup_ratio(source: OptionInputs) -> float:
    """As of the other trainer, of one update a step."""
    train = source.train
    return (train.warmup_steps - 0.5) / train.steps if train.warmup_steps else 0.0


def _shared() -> Iterator[Option]:
    for option in OPTIONS:
        own = option.flag.removeprefix("actor.")
        yield from (replace(option, flag=flag) for flag in (own, f"model.{own}") if flag in _SHARED.split())


_OWN = (
    Option("data.dataset", "data.demonstrations.path data.demonstrations.limit", lambda s: "data/train.jsonl"),
    Option("eval.dataset", "data.demonstrations.heldout", lambda s: "data/heldout.jsonl" if _heldout(s.spec) else None),
    Option("eval.steps", "eval.every train.steps", lambda s: s.spec.eval.every or s.train.steps),
    Option(
        "train.micro_batch_size", "train.micro_batch_tokens rollout.max_total_tokens", lambda s: s.layout.micro_batch
    ),
    Option("train.max_epochs", "train.steps", lambda s: 1, "the rows are drawn steps x per_step times"),
    Option("adam.lr", "data.demonstrations.learning_rate train.learning_rate", lambda s: _rate(s.spec)),
    Option("lr_warmup_ratio", "train.warmup_steps train.steps", _warmup_ratio, "as of the other trainer"),
    Option("ckpt.path", "engine.output", lambda s: str(s.job.checkpoints / "_actor"), "as the other trainer has it"),
    Option("ckpt.max_num", "checkpoint.keep", lambda s: s.spec.checkpoint.keep + 1, "one more, as there"),
)
OPTIONS_OF_IMITATION: tuple[Option, ...] = (*_shared(), *_OWN)
"""Every option that rlf emits for `train_sft`, in order."""


def _heldout(spec: RunSpec) -> int:
    return 0 if spec.data.demonstrations is None else spec.data.demonstrations.heldout


def _rate(spec: RunSpec) -> float:
    shown = spec.data.demonstrations
    return (shown.learning_rate if shown is not None else None) or spec.train.learning_rate


def program_of(spec: RunSpec) -> str:
    """The program of `openrlhf.cli` that trains by a spec."""
    return "train_sft" if spec.imitates_only else "train_ppo_ray"


def options_of(spec: RunSpec) -> tuple[Option, ...]:
    """The options that rlf emits for that program."""
    return OPTIONS_OF_IMITATION if spec.imitates_only else OPTIONS


def job_argv(spec: RunSpec, job: Job) -> list[str]:
    """The options of a plan without faults, whichever trainer it is for."""
    return argv(spec, job, options_of(spec))


def launcher(spec: RunSpec) -> list[str]:
    """What torchrun starts, and the module's options follow; DeepSpeed's launcher imports DeepSpeed twice for it."""
    return ["--nproc_per_node", str(openrlhf_settings(spec).actor.per_node), "--module", MODULE]


async def draw_demonstrations(spec: RunSpec, shown: Demonstrations) -> list[list[Scored]]:
    """What each step imitates, which is what the local engine takes in that step."""
    return [await shown.of_step(step) for step in range(1, spec.train.steps + 1)]


def write_imitated(steps: Sequence[Sequence[Scored]], heldout: Sequence[Scored], job: Job) -> None:
    """Writes the rows of `imitate.TokenRows`: each demonstration once, with the positions at which it is drawn."""
    job.train.parent.mkdir(parents=True, exist_ok=True)
    for path, drawn in ((job.train, [scored for step in steps for scored in step]), (job.heldout, heldout)):
        rows: dict[int, dict[str, Any]] = {}
        for position, scored in enumerate(drawn):
            trajectory = scored.trajectory
            row = {"tokens": list(trajectory.tokens), "sampled": list(map(int, trajectory.action_mask)), "drawn": []}
            rows.setdefault(id(trajectory.tokens), row)["drawn"].append(position)
        if rows:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.values()))


_LACKING = {
    "ray_address": "it is started on the GPUs of this machine, by torchrun. Remove it.",
    "ema": "it keeps no mean of weights. Remove it.",
    "hf_checkpoints": "it counts each such folder as a checkpoint, and removes one for the other. Remove it: the final "
    "model is such a folder.",
}


@reads(*(f"engine.{key}" for key in _LACKING), "data.demonstrations", "train.steps")
def supervised_trainer_has_it(loaded: LoadedSpec) -> Iterator[Fault]:
    """Keys of `engine` that this trainer has nothing for."""
    engine = openrlhf_settings(loaded.spec)
    for key, why in _LACKING.items():
        if loaded.spec.imitates_only and getattr(engine, key):
            yield loaded.fault(("engine", key), f"every step imitates, in OpenRLHF's supervised trainer: {why}")


@reads("engine.actor", "engine.ring_attention", "data.demonstrations", "train.steps", "eval.every")
def demonstrations_divide(loaded: LoadedSpec) -> Iterator[Fault]:
    """Batches that OpenRLHF would cut, or fill up by taking demonstrations twice."""
    spec, shown = loaded.spec, loaded.spec.data.demonstrations
    engine, every = openrlhf_settings(spec), spec.eval.every
    ranks = max(1, engine.actor.total // engine.ring_attention)
    if shown is None or not spec.imitates_only:
        return
    for key, number in (("per_step", shown.per_step), ("heldout", shown.heldout)):
        if number % ranks:
            fitting = next(n for n in count(number + 1) if n % ranks == 0)
            message = f"got {number}, which must divide evenly among {ranks} parts (engine.actor). "
            yield loaded.fault(("data", "demonstrations", key), f"{message}Write e.g. `{key}: {fitting}`.")
    if shown.heldout and every is not None and spec.train.steps % every:
        message = f"got {every} of {spec.train.steps} steps; OpenRLHF finds the held-out loss only at multiples, which "
        yield loaded.fault(("eval", "every"), f"{message}leaves out the last step. Write a divisor.")
