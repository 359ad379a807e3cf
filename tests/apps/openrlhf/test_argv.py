"""Each key of a spec becomes an option of OpenRLHF, is used by the agent, or is refused: none is ignored."""

from __future__ import annotations

import inspect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rlf.algo import ESTIMATORS
from rlf.algo.loss_config import LrSchedule, PolicyLossKind, lr_factor
from rlf.apps.openrlhf import OpenRlhf
from rlf.apps.openrlhf.argv import OPTIONS, argv, option_words
from rlf.apps.openrlhf.faults import find_openrlhf_faults
from rlf.apps.openrlhf.flags import TAKES
from rlf.apps.openrlhf.settings import ESTIMATOR_NAMES, LOSS_NAMES, Layout
from rlf.core import SpecError
from rlf.plan import compile as compile_plan
from rlf.spec.facts import leaf_types
from rlf.spec.models import RunSpec

from ...reference import load_reference
from .conftest import JOB

MAPPED = {key for option in OPTIONS for key in option.keys.split()}
UNMAPPED = {key for elsewhere in load_reference().KEYS_WITHOUT_OPTION for key in elsewhere.keys.split()}
WHOLE = (
    "chat",
    "tools",
    "health",
    "lineage",
    "report_to",
    "rewards",
    "data.train",
    "data.eval",
    "engine.ingest",
    "engine.extra_flags",
)
"""Sections that one answer holds for."""


def keys_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key at which a spec can say something, sections not counted."""
    found = set()
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        if path in WHOLE:
            found.add(path)
            continue
        below = [kind for kind in leaf_types(info.annotation) if inspect.isclass(kind) and issubclass(kind, BaseModel)]
        if path == "train.algorithm":
            below = [ESTIMATORS.get(name) for name in ESTIMATOR_NAMES]
            found.add("train.algorithm.kind")
        if path == "engine":
            below = [OpenRlhf]
        for kind in below:
            found |= keys_of(kind, f"{path}.")
        if not below:
            found.add(path)
    return found


KEYS = keys_of(RunSpec)
GAE, KL, KL_LOSS = "train.algorithm=gae", "+train.kl={coef: 0.01, kind: k2}", "+train.kl.coef=0.01"
ASYNC = ("+engine.mode=async", "+engine.colocate=actor_ref")
LOOSE, CORRECTED = "+engine.packing=false", "+train.loss.correction={level: token}"
CLUSTER = "kind: openrlhf, ray_address: 'http://head:8265', output: /mnt/runs, colocate: none, actor: {nodes: 2}"
WANDB, LORA = "+engine.wandb={}", "+model.lora={}"
CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "name": ((), "name=other"),
    "model.path": ((), "model.path=Qwen/Qwen3-4B"),
    "model.lora.rank": ((LORA,), "+model.lora.rank=4"),
    "model.lora.alpha": ((LORA,), "+model.lora.alpha=4"),
    "model.lora.target_modules": ((LORA,), "+model.lora.target_modules=[q_proj, v_proj]"),
    "data.eval": ((), "~data.eval"),
    "rollout.num_generations": ((), "rollout.num_generations=4"),
    "rollout.max_images": (("+engine.packing=false",), "+rollout.max_images=2"),
    "rollout.max_total_tokens": ((), "rollout.max_total_tokens=640"),
    "rollout.temperature": ((), "+rollout.temperature=0.9"),
    "rollout.top_p": ((), "+rollout.top_p=0.9"),
    "train.algorithm.kind": ((), "train.algorithm=grpo"),
    "train.algorithm.gamma": ((), "train.algorithm={kind: reinforce, gamma: 0.9}"),
    "train.algorithm.lam": ((GAE,), "train.algorithm={kind: gae, lam: 0.9}"),
    "train.algorithm.std_norm": ((), "train.algorithm={kind: reinforce_baseline, std_norm: false}"),
    "train.steps": (("+train.warmup_steps=4", "~eval.every"), "train.steps=60"),
    "train.prompts_per_step": ((), "train.prompts_per_step=8"),
    "train.learning_rate": ((), "train.learning_rate=1e-6"),
    "train.lr_schedule": ((), "+train.lr_schedule=linear"),
    "train.warmup_steps": ((), "+train.warmup_steps=4"),
    "train.min_lr_ratio": ((), "+train.min_lr_ratio=0.2"),
    "train.weight_decay": ((), "+train.weight_decay=0.1"),
    "train.adam_betas": ((), "+train.adam_betas=[0.8, 0.9]"),
    "train.max_grad_norm": ((), "+train.max_grad_norm=0.5"),
    "train.epochs": ((), "+train.epochs=2"),
    "train.mini_batches": ((), "+train.mini_batches=4"),
    "train.micro_batch_tokens": ((), "train.micro_batch_tokens=4096"),
    "train.loss.kind": ((), "+train.loss.kind=gspo"),
    "train.loss.clip_low": ((), "train.loss.clip_low=0.1"),
    "train.loss.clip_high": ((), "train.loss.clip_high=0.3"),
    "train.loss.dual_clip": ((), "+train.loss.dual_clip=3"),
    "train.loss.aggregation": ((), "+train.loss.aggregation=seq_mean_token_mean"),
    "train.loss.correction.level": ((CORRECTED,), "train.loss.correction.level=seq"),
    "train.loss.correction.mode": ((CORRECTED,), "+train.loss.correction.mode=clip"),
    "train.loss.correction.gating": (
        ("+train.loss.correction={level: token, threshold: [0, 2]}",),
        "+train.loss.correction.gating=tv",
    ),
    "train.loss.correction.threshold": ((CORRECTED,), "+train.loss.correction.threshold=[0.2, 3]"),
    "train.kl.coef": ((KL,), "train.kl.coef=0.02"),
    "train.kl.kind": ((KL,), "train.kl.kind=k3"),
    "train.kl.place": ((KL,), "+train.kl.place=reward"),
    "train.entropy_coef": ((), "+train.entropy_coef=0.01"),
    "train.reward_clip": ((), "+train.reward_clip=[-1, 1]"),
    "train.critic.learning_rate": ((GAE,), "+train.critic.learning_rate=1e-5"),
    "train.critic.value_clip": ((GAE,), "+train.critic.value_clip=0.5"),
    "eval.every": ((), "eval.every=10"),
    "eval.temperature": ((), "+eval.temperature=0.7"),
    "checkpoint.every": ((), "checkpoint.every=20"),
    "checkpoint.keep": ((), "+checkpoint.keep=5"),
    "engine.colocate": ((), "+engine.colocate=none"),
    "engine.mode": (ASYNC, "engine.mode=partial"),
    "engine.queue_size": (ASYNC, "+engine.queue_size=2"),
    "engine.sleep": ((), "+engine.sleep=false"),
    "engine.actor.nodes": (
        ("+engine.ray_address=http://head:8265", "+engine.output=/mnt/runs"),
        "+engine.actor.nodes=2",
    ),
    "engine.actor.per_node": ((), "+engine.actor.per_node=2"),
    "engine.ref.nodes": (
        (
            KL_LOSS,
            f"engine={{{CLUSTER}, ref: {{}}}}",
        ),
        "+engine.ref.nodes=2",
    ),
    "engine.ref.per_node": (
        (KL_LOSS, "engine={kind: openrlhf, colocate: none, actor: {per_node: 2}, ref: {}}"),
        "+engine.ref.per_node=2",
    ),
    "engine.critic.nodes": (
        (
            GAE,
            f"engine={{{CLUSTER}, critic: {{}}}}",
        ),
        "+engine.critic.nodes=2",
    ),
    "engine.critic.per_node": (
        (GAE, "engine={kind: openrlhf, colocate: none, actor: {per_node: 2}, critic: {}}"),
        "+engine.critic.per_node=2",
    ),
    "engine.vllm.engines": (("+engine.colocate=none",), "+engine.vllm.engines=2"),
    "engine.vllm.tensor_parallel": (("+engine.colocate=none",), "+engine.vllm.tensor_parallel=2"),
    "engine.vllm.gpu_memory": ((), "+engine.vllm.gpu_memory=0.3"),
    "engine.vllm.enforce_eager": ((), "+engine.vllm.enforce_eager=true"),
    "engine.vllm.prefix_caching": ((), "+engine.vllm.prefix_caching=false"),
    "engine.vllm.sync_backend": ((), "+engine.vllm.sync_backend=gloo"),
    "engine.zero_stage": ((), "+engine.zero_stage=3"),
    "engine.offload_optimizer": ((), "+engine.offload_optimizer=true"),
    "engine.offload_ref": ((KL_LOSS, "+engine.zero_stage=3"), "+engine.offload_ref=true"),
    "engine.muon.learning_rate": (("+engine.muon={}",), "+engine.muon.learning_rate=0.01"),
    "engine.muon.momentum": (("+engine.muon={}",), "+engine.muon.momentum=0.9"),
    "engine.ema": ((), "+engine.ema=0.99"),
    "engine.packing": ((), "+engine.packing=false"),
    "engine.ring_attention": (("+engine.actor.per_node=2",), "+engine.ring_attention=2"),
    "engine.attention": ((LOOSE,), "+engine.attention=sdpa"),
    "engine.gradient_checkpointing": ((), "+engine.gradient_checkpointing=false"),
    "engine.hf_checkpoints": ((), "+engine.hf_checkpoints=true"),
    "engine.wandb.project": ((WANDB,), "+engine.wandb.project=mine"),
    "engine.wandb.organisation": ((WANDB,), "+engine.wandb.organisation=team"),
    "engine.wandb.group": ((WANDB,), "+engine.wandb.group=first"),
    "engine.tensorboard": ((), "+engine.tensorboard=true"),
    "engine.deterministic": ((), "+engine.deterministic=true"),
    "seed": ((), "seed=7"),
}
"""For each key that becomes options: what else the spec says, and a change of the key."""
CONSTANT = {"model.dtype", "data.train", "engine.output"}
"""Mapped keys that change no word here: one value is left, the file's name is fixed, the folder is in the job."""


def emitted(spec):
    """Values by option."""
    found: dict[str, tuple[str, ...]] = {}
    for word in argv(spec, JOB):
        if word.startswith("--"):
            flag = word.removeprefix("--")
            assert flag not in found, f"{flag} twice"
            found[flag] = ()
        else:
            found[flag] = (*found[flag], word)
    return found


def test_each_key_is_an_option_or_used_elsewhere_and_no_other_is_named():
    sections = {option.partition(".")[0] for option in MAPPED}
    answered = {key for key in MAPPED | UNMAPPED if key in KEYS}
    assert KEYS - answered == set()
    extra = {key for key in (MAPPED | UNMAPPED) - KEYS if not any(known.startswith(f"{key}.") for known in KEYS)}
    assert extra == set(), "keys that a spec does not have"
    assert (MAPPED & UNMAPPED, "train" in sections) == (set(), True)


def test_the_table_of_changes_has_each_mapped_key():
    assert {key for key in MAPPED if key in KEYS} == set(CHANGES) | CONSTANT


@pytest.mark.parametrize("key", CHANGES)
def test_a_change_of_a_key_changes_its_options_and_no_other(key, load):
    before, change = CHANGES[key]
    one, other = load(*before), load(*before, change)
    compile_plan(one), compile_plan(other)
    left, right = emitted(one.spec), emitted(other.spec)
    changed = {flag for flag in left.keys() | right.keys() if left.get(flag) != right.get(flag)}
    assert changed
    sources = {option.flag: option.keys.split() for option in OPTIONS}
    foreign = {
        flag for flag in changed if not any(key == source or key.startswith(f"{source}.") for source in sources[flag])
    }
    assert foreign <= FOLLOWS.get(key, set())


FOLLOWS = {
    "train.loss.kind": {"actor.loss_agg_mode"},
    "train.algorithm.gamma": {"algo.advantage.estimator"},
    "engine.colocate": {"vllm.gpu_memory_utilization", "vllm.enable_sleep", "ds.enable_sleep"},
    "engine.actor.nodes": {"vllm.num_engines"},
    "engine.actor.per_node": {"vllm.num_engines"},
    "data.eval": {"eval.steps", "eval.temperature", "eval.n_samples_per_prompt"},
    "engine.packing": {
        "rollout.micro_batch_size",
        "rollout.max_tokens_per_gpu",
        "train.micro_batch_size",
        "train.max_tokens_per_gpu",
        "ds.packing_samples",
    },
    "engine.ring_attention": {"rollout.max_tokens_per_gpu"},
}
"""Options that follow from a key through the layout."""


@pytest.mark.parametrize(
    "override",
    [
        "+model.dtype=float32",
        "+rollout.max_concurrency=4",
        "+train.dynamic_filtering={max_rounds: 2}",
    ],
)
def test_a_key_that_is_refused_stops_the_compiler_at_its_place(override, load):
    with pytest.raises(SpecError) as error:
        compile_plan(load(override))
    assert error.value.faults[0].path == override[1:].partition("=")[0].replace("filtering", "filtering.max_rounds")


def test_estimators_and_losses_that_openrlhf_lacks_are_refused(load):
    assert set(ESTIMATOR_NAMES) <= set(ESTIMATORS.names())
    for name in set(ESTIMATORS.names()) - set(ESTIMATOR_NAMES):
        with pytest.raises(SpecError, match="which OpenRLHF does not have"):
            compile_plan(load(f"train.algorithm={name}"))
    for kind in set(PolicyLossKind) - set(LOSS_NAMES):
        with pytest.raises(SpecError, match="which OpenRLHF does not have"):
            compile_plan(load(f"+train.loss.kind={kind}"))


def test_every_option_of_the_table_is_one_of_openrlhfs():
    assert {option.flag for option in OPTIONS} <= set(TAKES)
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS)


def test_the_order_of_options_is_that_of_the_table(load):
    order = [option.flag for option in OPTIONS]
    flags = list(emitted(load("+engine.extra_flags={ds.overlap_comm: true}").spec))
    assert flags == [flag for flag in order if flag in flags] + ["ds.overlap_comm"]


def test_extra_flags_may_be_nested_or_dotted(load):
    nested, dotted = ("+engine.extra_flags={ds: {zpg: 8}}", "+engine.extra_flags={ds.zpg: 8}")
    assert argv(load(nested).spec, JOB) == argv(load(dotted).spec, JOB)
    assert argv(load(nested).spec, JOB)[-2:] == ["--ds.zpg", "8"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), (False, []), (True, ["--a.b"]), (3, ["--a.b", "3"]), ([1, 0.5], ["--a.b", "1", "0.5"])],
)
def test_the_words_of_an_option(value, expected):
    assert option_words("a.b", value) == expected


@given(st.integers(1, 400), st.integers(1, 4), st.integers(1, 8), st.data())
def test_openrlhf_makes_the_warm_up_updates_of_the_ratio_that_the_spec_says(steps, epochs, mini_batches, data):
    """Its formula is ceil(updates x ratio)."""
    updates = steps * epochs * mini_batches
    warmup = data.draw(st.integers(0, updates - 1))
    ratio = (warmup - 0.5) / updates if warmup else 0.0
    assert math.ceil(updates * ratio) == warmup


@pytest.mark.parametrize("kind", LrSchedule)
def test_the_rates_are_openrlhfs_and_within_a_warm_up_one_update_ahead_of_them(kind, load):
    """`transformers.get_scheduler` is what OpenRLHF calls, with these arguments."""
    torch = pytest.importorskip("torch")
    from transformers import get_scheduler

    updates, warmup = 40, 4
    flags = emitted(load(f"+train.lr_schedule={kind}", "+train.warmup_steps=4").spec)
    (ratio,), (name,) = flags["actor.lr_warmup_ratio"], flags["actor.lr_scheduler"]
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    least = {"min_lr_rate": 0.1} if name == "cosine_with_min_lr" else {}
    schedule = get_scheduler(
        name, optimizer, math.ceil(updates * float(ratio)), updates, scheduler_specific_kwargs=least
    )
    theirs = []
    for _ in range(updates):
        theirs.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    ours = [lr_factor(step, updates, warmup, kind) for step in range(1, updates + 1)]
    assert theirs[0] == 0.0
    assert theirs[1 : warmup + 1] == pytest.approx([*ours[: warmup - 1], theirs[warmup]])
    assert theirs[warmup:] == pytest.approx(ours[warmup:])


def test_a_micro_batch_without_packing_fits_the_budget_and_divides_a_gpus_share(load):
    """128 trajectories on 2 GPUs in 2 updates: 32 each; 2048 tokens / 320 = 6, whose next divisor of 32 is 4."""
    layout = Layout.of(load(LOOSE, "+engine.actor.per_node=2", "+train.mini_batches=2").spec)
    assert (layout.batch, layout.num_ranks, layout.micro_batch) == (64, 2, 4)


def test_a_trajectory_longer_than_the_budget_is_one_micro_batch(load):
    spec = load("train.micro_batch_tokens=100", "+engine.actor.per_node=2", "+engine.ring_attention=2").spec
    assert (Layout.of(spec).micro_batch, Layout.of(spec).micro_batch_tokens) == (1, 160)


def test_in_an_asynchronous_mode_trained_models_share_gpus_and_vllm_has_its_own(load):
    overrides = ("+engine.mode=async", "+engine.colocate=trained", "+engine.actor.per_node=2", "+engine.vllm.engines=2")
    spec = load(*overrides, KL_LOSS).spec
    options = emitted(spec)
    assert {"train.colocate_all", "train.async_enable"} <= set(options)
    assert not {"vllm.enable_sleep", "ds.enable_sleep", "train.colocate_actor_ref"} & set(options)
    assert Layout.of(spec).total_gpus(spec.engine) == 2 + 2


@pytest.mark.parametrize(
    ("overrides", "place", "words"),
    [
        (("+engine.colocate=trained",), "engine.colocate", "places vLLM there too"),
        (("+engine.muon={}", "+engine.zero_stage=3"), "engine.zero_stage", "refuses Muon"),
        (("+engine.muon={}", "+engine.offload_optimizer=true"), "engine.offload_optimizer", "only on the GPU"),
        (("+engine.ema=0.99", LORA), "engine.ema", "which do not include adapters"),
    ],
)
def test_what_openrlhf_or_deepspeed_refuses_is_a_fault_with_their_reason(overrides, place, words, load):
    (fault,) = find_openrlhf_faults(load(*overrides))
    assert (fault.path, words in fault.message) == (place, True)


def test_muon_is_not_clipped_and_the_critic_keeps_adam(load):
    options = emitted(load("+engine.muon={}", GAE).spec)
    assert (options["actor.optim"], options["actor.max_norm"]) == (("muon",), ("0.0",))
    assert (options["critic.optim"], options["critic.max_norm"]) == (("adam",), ("1.0",))
