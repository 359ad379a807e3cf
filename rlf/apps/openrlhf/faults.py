"""Keys that OpenRLHF cannot follow, refused before anything runs: the reason, and what to write instead.

Read in OpenRLHF 0.11.2: what its own start-up asserts, what it changes silently, and what ends a job after minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from rlf.algo.loss_config import Aggregation, CorrectionLevel, CorrectionMode
from rlf.apps.openrlhf.settings import LAYOUT_KEYS, Colocate, Gpus, Layout, Mode, openrlhf_settings
from rlf.apps.openrlhf.supervised import demonstrations_divide, supervised_trainer_has_it
from rlf.core import Fault, nearest
from rlf.plan.estimate import ALL_LINEAR, NO_ADAPTER
from rlf.spec import LoadedSpec
from rlf.spec.load import SpecCheck, reads
from rlf.spec.nodes import KeyPath
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.kind import LimitScope

ATTENTIONS = ["flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "sdpa", "eager"]
"""Implementations that transformers 5.15 knows by name."""
_HUB_KERNEL = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?(:\w+)?")
"""One that is fetched, e.g. `kernels-community/flash-attn2`."""


def find_openrlhf_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """The faults that no other engine has."""
    known = loaded.is_sound(("data", "demonstrations"), ("train", "steps"))
    for check in _OF_IMITATION if known and loaded.spec.imitates_only else CHECKS:
        yield from check(loaded)


@reads("train.loss", "train.mask_truncated", "train.kl", "model.dtype", "rollout.max_concurrency")
def _settings_exist(loaded: LoadedSpec) -> Iterator[Fault]:
    """Settings of the algorithm, its loss and the rest that OpenRLHF has nothing for."""
    spec, train = loaded.spec, loaded.spec.train
    loss, correction = train.loss, train.loss.correction
    by_sequence = correction.level is CorrectionLevel.SEQ and correction.mode is CorrectionMode.CLIP
    lacking: list[tuple[bool, KeyPath, str]] = [
        (
            loss.aggregation is Aggregation.CONSTANT_LENGTH,
            ("train", "loss", "aggregation"),
            "got constant_length, which OpenRLHF does not have. Write token_mean or seq_mean_token_mean, or "
            "engine: local.",
        ),
        (
            correction.level is CorrectionLevel.SEQ_PRODUCT,
            ("train", "loss", "correction", "level"),
            "got seq_product; OpenRLHF takes the geometric mean over a sequence. Write seq or token, or engine: local.",
        ),
        (
            by_sequence,
            ("train", "loss", "correction", "mode"),
            "got clip with level seq; OpenRLHF clips tokens only. Write mask, or level: token, or engine: local.",
        ),
        *(
            (value, ("train", "loss", key), "OpenRLHF has no such mask. Remove it, or engine: local.")
            for key, value in (
                ("off_policy_mask", loss.off_policy_mask is not None),
                ("probability_mask", loss.probability_mask is not None),
                ("dppo_mask", loss.dppo_mask is not None),
                ("top_entropy", loss.top_entropy < 1),
            )
        ),
        (
            loss.observations > 0,
            ("train", "loss", "observations"),
            "OpenRLHF computes no probabilities of tokens that vLLM did not sample. Remove it, or engine: local.",
        ),
        (
            train.mask_truncated,
            ("train", "mask_truncated"),
            "got true; OpenRLHF has no such mask. Remove it, or engine: local.",
        ),
        (
            train.kl.sync_every is not None,
            ("train", "kl", "sync_every"),
            "OpenRLHF's reference never changes. Remove it, or engine: local.",
        ),
        (
            spec.model.dtype == "float32",
            ("model", "dtype"),
            "got float32; OpenRLHF computes in bfloat16 over float32 weights of the optimiser. Write bfloat16 or auto.",
        ),
        (
            loaded.value(("rollout", "max_concurrency")) is not None,
            ("rollout", "max_concurrency"),
            "vLLM decides by its memory how many trajectories it samples at once. Remove it, or set "
            "engine.vllm.gpu_memory.",
        ),
    ]
    yield from (loaded.fault(path, message) for wrong, path, message in lacking if wrong)


@reads(*LAYOUT_KEYS, "rollout.max_images", "engine.packing", "engine.zero_stage", "model.lora")
def _images_are_seen(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    spec = loaded.spec
    if spec.rollout.max_images == 0:
        return
    if spec.train.algorithm.needs_critic:
        message = "got gae with rollout.max_images; OpenRLHF's critic sees no images. Write e.g. reinforce_baseline."
        yield loaded.fault(("train", "algorithm"), message)
    if engine.packing:
        message = "got true with rollout.max_images; OpenRLHF cannot assign images in packed rows. Write false."
        yield loaded.fault(("engine", "packing"), message)
    if engine.zero_stage == 3 and Layout.of(spec).num_ranks > 1:
        message = (
            "got 3 with rollout.max_images; a GPU whose rows hold no image does not gather the vision weights, and "
        )
        yield loaded.fault(("engine", "zero_stage"), f"{message}the others would wait for it. Write 2.")
    if spec.model.lora is not None:
        message = "got adapters with rollout.max_images; vLLM names the weights of such models differently. "
        yield loaded.fault(("model", "lora"), f"{message}Remove it.")


@reads("env", "train.algorithm")
def _worlds_share_no_statistics(loaded: LoadedSpec) -> Iterator[Fault]:
    env = loaded.spec.env
    if env is not None and len(env.parts) > 1 and loaded.spec.train.algorithm.spans_batch:
        name = loaded.value(("train", "algorithm", "kind"))
        message = f"got {name} with several worlds, whose advantages are normalised within each; OpenRLHF does so over "
        yield loaded.fault(("train", "algorithm"), f"{message}the whole batch. Write grpo, rloo or dr_grpo.")


@reads("model.lora", "engine.zero_stage", "train.algorithm")
def _adapters_reach_vllm(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    lora = loaded.spec.model.lora
    if lora is not None and engine.zero_stage == 3:
        message = "got 3 with model.lora; OpenRLHF then holds adapters in float32, which vLLM's workers do not take. "
        yield loaded.fault(("engine", "zero_stage"), f"{message}Write 2.")
    if lora is None or lora.target_modules == ALL_LINEAR:
        return
    path: KeyPath = ("model", "lora", "target_modules")
    if isinstance(lora.target_modules, str):
        message = f"got {lora.target_modules!r}, a pattern; OpenRLHF takes names. Write a list of them, or "
        yield loaded.fault(path, f"{message}{ALL_LINEAR}.")
        return
    if tied := [name for name in lora.target_modules if name in NO_ADAPTER]:
        message = f"got {tied[0]}; vLLM may merge its weights with others that have no adapter. Remove it."
        yield loaded.fault(path, message)
    if loaded.spec.train.algorithm.needs_critic:
        message = f"got names; OpenRLHF then trains only these of the critic, and not its head. Write {ALL_LINEAR}."
        yield loaded.fault(path, message)


@reads("train.kl", "train.algorithm", "engine.ref", "engine.critic", "engine.offload_ref", "engine.zero_stage")
def _critic_and_reference_have_a_use(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    train = loaded.spec.train
    for name, used, fix in (
        ("ref", train.kl.coef > 0, "train.kl.coef is 0, so there is no reference"),
        ("critic", train.algorithm.needs_critic, "the algorithm trains no critic"),
    ):
        if not used and loaded.value(("engine", name)) is not None:
            yield loaded.fault(("engine", name), f"{fix} to place. Remove it.")
    if engine.offload_ref and train.kl.coef == 0:
        message = "got true; train.kl.coef is 0, so there is no reference. Remove it."
        yield loaded.fault(("engine", "offload_ref"), message)
    elif engine.offload_ref and engine.zero_stage < 3:
        message = f"got true with zero_stage: {engine.zero_stage}; DeepSpeed moves weights only at stage 3. Write "
        yield loaded.fault(("engine", "offload_ref"), f"{message}zero_stage: 3, or remove it.")


@reads("engine.muon", "engine.ema", "engine.offload_optimizer", "engine.zero_stage", "model.lora")
def _optimiser_fits(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.muon is not None and engine.offload_optimizer:
        message = (
            "got true with engine.muon, whose steps DeepSpeed computes only on the GPU. Remove it, or engine.muon."
        )
        yield loaded.fault(("engine", "offload_optimizer"), message)
    if engine.muon is not None and engine.zero_stage == 3:
        message = "got 3 with engine.muon; DeepSpeed refuses Muon with the reduce-scatter of that stage. Write 2."
        yield loaded.fault(("engine", "zero_stage"), message)
    if engine.ema is not None and loaded.spec.model.lora is not None:
        message = "got a mean with model.lora; it averages whole weights, which do not include adapters. "
        yield loaded.fault(("engine", "ema"), f"{message}Remove it, or model.lora.")


@reads(*LAYOUT_KEYS, "engine.queue_size")
def _modes_fit_the_layout(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.mode is not Mode.SYNC and engine.colocate is Colocate.ALL:
        message = f"got {engine.mode} with colocate: all; sampling during training needs GPUs of its own. Write "
        yield loaded.fault(("engine", "mode"), f"{message}colocate: trained or actor_ref, or mode: sync.")
    elif engine.mode is Mode.SYNC and engine.colocate is Colocate.TRAINED:
        message = "got trained with mode: sync; OpenRLHF then places vLLM there too. Write all, or mode: async."
        yield loaded.fault(("engine", "colocate"), message)
    elif engine.sleep and not Layout.of(loaded.spec).all_share:
        message = f"got true with colocate: {engine.colocate}; models with GPUs of their own never leave them. "
        yield loaded.fault(("engine", "sleep"), f"{message}Remove it, or write colocate: all.")
    if engine.mode is Mode.SYNC and loaded.value(("engine", "queue_size")) is not None:
        message = "got a queue with mode: sync, which has none. Remove it, or write mode: async."
        yield loaded.fault(("engine", "queue_size"), message)


@reads(*LAYOUT_KEYS)
def _gpus_match(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    layout, actor = Layout.of(loaded.spec), engine.actor
    if layout.all_share and layout.vllm_gpus != actor.total:
        parts, left = divmod(actor.total, layout.tensor_parallel)
        fix = f"a tensor_parallel that divides {actor.total}" if left else f"engines: {parts}"
        yield loaded.fault(
            ("engine", "vllm", "engines" if engine.vllm.engines else "tensor_parallel"),
            f"got {layout.num_engines} engines x {layout.tensor_parallel} GPUs = {layout.vllm_gpus}; with colocate: "
            f"all vLLM lies on the policy's {actor.total}. Write {fix}, or colocate: actor_ref.",
        )
    for name, gpus, shares in (
        ("ref", layout.ref, engine.colocate is not Colocate.NONE),
        ("critic", layout.critic, layout.all_share or engine.colocate is Colocate.TRAINED),
    ):
        if gpus not in (None, actor) and shares:
            shared = f"with colocate: {engine.colocate} it shares the policy's {_show_gpus(actor)}"
            message = f"got {_show_gpus(gpus)}; {shared}. "
            yield loaded.fault(("engine", name), f"{message}Remove it, or write colocate: none.")
        if gpus is not None and not layout.all_share and actor.total % gpus.total:
            message = f"got {_show_gpus(gpus)}; OpenRLHF makes equal parts, so the number must divide the policy's "
            yield loaded.fault(("engine", name), f"{message}{actor.total}. Write per_node: {actor.per_node}.")


@reads("engine.ray_address")
def _address_is_a_job_server(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    address = engine.ray_address
    if address is not None and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname):
        message = f"got {address!r}; expected the http address of a Ray cluster's job server. "
        yield loaded.fault(("engine", "ray_address"), f"{message}Write e.g. `http://head:8265`.")


@reads("engine.ray_address", "engine.actor", "engine.ref", "engine.critic")
def _one_machine_is_one_node(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.ray_address is not None:
        return
    for name in ("actor", "ref", "critic"):
        gpus: Gpus | None = getattr(engine, name)
        if gpus is not None and gpus.nodes > 1:
            message = f"got {gpus.nodes}; without engine.ray_address Ray starts on this machine only. Write nodes: 1, "
            yield loaded.fault(("engine", name, "nodes"), f"{message}or the address of a cluster.")


@reads(*LAYOUT_KEYS, "engine.attention", "engine.packing")
def _attention_fits(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.attention not in ATTENTIONS and not _HUB_KERNEL.fullmatch(engine.attention):
        known = f"{nearest(engine.attention, ATTENTIONS)} (known: {', '.join(ATTENTIONS)})"
        message = f"unknown attention {engine.attention!r}{known}. Write one of these."
        yield loaded.fault(("engine", "attention"), message)
        return
    flash = "flash" in engine.attention
    if engine.packing and not flash:
        message = f"got {engine.attention}; packing needs flash attention. Write packing: false, or "
        yield loaded.fault(("engine", "attention"), f"{message}flash_attention_2.")
    if engine.ring_attention == 1:
        return
    path: KeyPath = ("engine", "ring_attention")
    if not engine.packing:
        message = f"got {engine.ring_attention} with packing: false; OpenRLHF cuts a trajectory only in packed rows. "
        yield loaded.fault(path, f"{message}Write packing: true, or ring_attention: 1.")
    groups = {"actor": engine.actor, "ref": Layout.of(loaded.spec).ref, "critic": Layout.of(loaded.spec).critic}
    for name, gpus in groups.items():
        if gpus is not None and gpus.total % engine.ring_attention:
            message = f"got {engine.ring_attention}; it must divide the {gpus.total} GPUs of {name}. "
            yield loaded.fault(path, f"{message}Write a divisor of {gpus.total}.")
            return


@reads(*LAYOUT_KEYS)
def _batches_divide(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    train, layout = loaded.spec.train, Layout.of(loaded.spec)
    if train.prompts_per_step * loaded.spec.rollout.num_generations % train.mini_batches:
        return  # reported for every engine
    if layout.batch % layout.num_ranks == 0:
        return
    each, ranks = loaded.spec.rollout.num_generations, layout.num_ranks * train.mini_batches
    fitting = next(n for n in count(train.prompts_per_step + 1) if n * each % ranks == 0)
    updates = f" in {train.mini_batches} updates" if train.mini_batches > 1 else ""
    ring = " / ring_attention" if engine.ring_attention > 1 else ""
    yield loaded.fault(
        ("train", "prompts_per_step"),
        f"got {train.prompts_per_step} x {each} trajectories{updates}; the {layout.batch} of one update must divide "
        f"evenly among {layout.num_ranks} parts (engine.actor{ring}). Write e.g. `prompts_per_step: {fitting}`.",
    )


@reads("train.dynamic_filtering", "rollout.num_generations")
def _filtering_has_groups(loaded: LoadedSpec) -> Iterator[Fault]:
    filtering = loaded.spec.train.dynamic_filtering
    if filtering is not None and filtering.bounds is not None and loaded.spec.rollout.num_generations == 1:
        message = "got 1 with train.dynamic_filtering; the reward of a group of one is all or nothing. Write 2 or more."
        yield loaded.fault(("rollout", "num_generations"), message)


@reads(*LAYOUT_KEYS, "train.dynamic_filtering", "engine.packing")
def _leftovers_divide(loaded: LoadedSpec) -> Iterator[Fault]:
    """Groups that are dropped leave an incomplete step at the end, which OpenRLHF deals out as well."""
    engine = openrlhf_settings(loaded.spec)
    layout, each = Layout.of(loaded.spec), loaded.spec.rollout.num_generations
    part = layout.num_ranks * (1 if engine.packing else layout.micro_batch)
    if loaded.spec.train.dynamic_filtering is not None and layout.num_ranks > 1 and each % part:
        yield loaded.fault(
            ("train", "dynamic_filtering"),
            f"the last step may have only one group of {each}, which must divide among {layout.num_ranks} parts of "
            f"{part // layout.num_ranks}. Write num_generations: {-(-each // part) * part}, or fewer GPUs.",
        )


@reads("train.steps", "train.epochs", "train.mini_batches", "train.warmup_steps")
def _warmup_moves(loaded: LoadedSpec) -> Iterator[Fault]:
    train = loaded.spec.train
    updates = train.steps * train.epochs * train.mini_batches
    path: KeyPath = ("train", "warmup_steps")
    if train.warmup_steps == 1:
        message = "got 1; OpenRLHF's first update of a warm-up has rate 0, so it changes nothing. "
        yield loaded.fault(path, f"{message}Write 0.")
    elif train.warmup_steps >= updates:
        message = f"got {train.warmup_steps} of {updates} updates; the rate would never reach its peak. "
        yield loaded.fault(path, f"{message}Write {f'at most {updates // 10}' if updates >= 20 else '0'}.")


@reads("eval.every", "train.steps", "data.eval")
def _evaluations_meet_the_end(loaded: LoadedSpec) -> Iterator[Fault]:
    every, steps = loaded.spec.eval.every, loaded.spec.train.steps
    if loaded.spec.data.eval is not None and every is not None and steps % every:
        near = min((n for n in range(1, steps + 1) if steps % n == 0), key=lambda n: abs(n - every))
        message = f"got {every} of {steps} steps; OpenRLHF evaluates only at multiples, which leaves out the last "
        yield loaded.fault(("eval", "every"), f"{message}step. Write e.g. `every: {near}`.")


@reads("rollout.top_p", "rollout.top_k", "rollout.min_p", "train.loss.correction")
def _correction_sees_whole_distributions(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout, correction = loaded.spec.rollout, loaded.spec.train.loss.correction
    if correction.level is CorrectionLevel.OFF:
        return
    cut: dict[str, tuple[Any, Any]] = {
        "top_p": (rollout.top_p, 1),
        "top_k": (rollout.top_k, 0),
        "min_p": (rollout.min_p, 0),
    }
    for key, (value, whole) in cut.items():
        if value != whole:
            message = (
                f"got {value} with train.loss.correction; vLLM's probabilities are then over the kept tokens, the "
            )
            yield loaded.fault(("rollout", key), f"{message}trainer's of all. Write {whole}, or correction level: off.")


@reads("engine.ray_address", "engine.output", "engine.ingest")
def _spool_is_shared(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.ray_address is not None and engine.output is None:
        message = "absent beside ray_address; the agents on the nodes write their trajectories there. Name a "
        fix = "folder on a shared disk; with engine.ingest one of the nodes."
        yield loaded.fault(("engine", "output"), message + fix)
    if engine.ingest is not None and engine.ray_address is None:
        message = "without ray_address the job runs on this machine, which reads its records from its disk. Remove it."
        yield loaded.fault(("engine", "ingest"), f"got an address; {message}")
    if engine.ingest is not None and (engine.ingest.certificate is None) != (engine.ingest.key is None):
        message = "got one of certificate and key; TLS needs the file with the other one. Write both, or remove it."
        yield loaded.fault(("engine", "ingest"), message)


@reads("engine.output")
def _output_is_one_place(loaded: LoadedSpec) -> Iterator[Fault]:
    engine = openrlhf_settings(loaded.spec)
    if engine.output is not None and not engine.output.startswith("/"):
        message = f"got {engine.output!r}; every node must find it under one name. Write its whole path from /."
        yield loaded.fault(("engine", "output"), message)


@reads("tools")
def _shared_tools_are_the_runs_own(loaded: LoadedSpec) -> Iterator[Fault]:
    """A tool of an agent is opened with the agent, so only an agent's own scope decides for how many there is one."""
    for index, tool in enumerate(loaded.spec.tools):
        if tool.limits.scope is not LimitScope.JOB:
            for path in _find_shared(tool, ("tools", index)):
                message = "got job in a tool of an agent, which each process that samples opens for itself. "
                fix = f"Write it in limits of the agent {tool.name!r}: its tools are then those of the whole job."
                yield loaded.fault(path, f"{message}{fix}")


def _find_shared(tool: ToolDeclaration, path: KeyPath) -> Iterator[KeyPath]:
    """Where tools of an agent, and of agents in it, have `scope: job`."""
    for index, inner in enumerate(getattr(tool.target, "tools", ())):
        below: KeyPath = (*path, "target", "tools", index)
        if inner.limits.scope is LimitScope.JOB:
            yield (*below, "limits", "scope")
        yield from _find_shared(inner, below)


def _show_gpus(gpus: Gpus | None) -> str:
    assert gpus is not None, "a model that is not there"
    return f"{gpus.nodes} x {gpus.per_node} GPUs"


_OF_IMITATION = (
    *(_settings_exist, _adapters_reach_vllm, _optimiser_fits, _attention_fits, _one_machine_is_one_node, _warmup_moves),
    *(supervised_trainer_has_it, demonstrations_divide, _output_is_one_place),
)
"""Of runs whose every step imitates."""
CHECKS = tuple(check for check in list(globals().values()) if isinstance(check, SpecCheck))
