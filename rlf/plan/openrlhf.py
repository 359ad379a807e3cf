"""What OpenRLHF cannot honour, refused before anything runs: the reason, and what to write instead.

Read in OpenRLHF 0.11.2: what its own start-up asserts, what it changes silently, and what ends a job after minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from rlf.algo.health import Action, Guard
from rlf.algo.loss_config import CorrectionLevel, PolicyLossKind
from rlf.chat.policy import HistoryPolicy
from rlf.core import Fault, nearest
from rlf.plan.algorithms import find_settings_openrlhf_lacks
from rlf.plan.cluster import find_cluster_warnings
from rlf.plan.layout import Layout
from rlf.plan.model_shape import ALL_LINEAR, NO_ADAPTER
from rlf.rewards.term import Stage
from rlf.spec import LoadedSpec
from rlf.spec.engines.openrlhf import Colocate, Gpus, Mode, OpenRlhfEngineSpec
from rlf.spec.load import unless_broken
from rlf.spec.models import Schedule
from rlf.spec.reading.nodes import KeyPath

ESTIMATORS = {
    "gae": "gae",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce_baseline",
    "rloo": "rloo",
    "grpo": "group_norm",
    "dr_grpo": "dr_grpo",
}
"""OpenRLHF's names of the estimators that it has; the others are refused."""
LOSSES = {PolicyLossKind.PPO: "ppo", PolicyLossKind.GSPO: "gspo"}
"""The same of policy losses."""

ATTENTIONS = ["flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "sdpa", "eager"]
"""Implementations that transformers 5.15 knows by name."""
_HUB_KERNEL = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?(:\w+)?")
"""One that is fetched, e.g. `kernels-community/flash-attn2`."""

SHORT_WARMUP = 10
"""Updates of a warm-up below which its empty first one counts."""

Check = Callable[[LoadedSpec, OpenRlhfEngineSpec], Iterator[Fault]]


def find_openrlhf_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """The faults of a spec whose engine is OpenRLHF; none of any other."""
    engine = loaded.spec.engine
    if isinstance(engine, OpenRlhfEngineSpec):
        for check in CHECKS:
            yield from unless_broken(loaded, check, loaded, engine)


def _algorithm_exists(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    name = loaded.value(("train", "algorithm", "kind"))
    if name not in ESTIMATORS:
        message = f"got {name}, which OpenRLHF does not have (it has {', '.join(ESTIMATORS)}). Write one of these, or "
        yield loaded.fault(("train", "algorithm"), f"{message}engine: local.")
    kind = loaded.spec.train.loss.kind
    if kind not in LOSSES:
        message = f"got {kind}, which OpenRLHF does not have (it has {', '.join(LOSSES)}). Write one of these, or "
        yield loaded.fault(("train", "loss", "kind"), f"{message}engine: local.")


def _loss_exists(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    yield from find_settings_openrlhf_lacks(loaded)


def _evaluations_have_no_budget(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    max_usd = loaded.spec.limits.max_usd_per_evaluation
    if max_usd is not None:
        message = f"got {max_usd:g}; OpenRLHF evaluates in processes that do not know of each other's cost. Remove it, "
        yield loaded.fault(("limits", "max_usd_per_evaluation"), f"{message}or write engine: local.")


def _turns_have_rewards(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    for position, term in enumerate(loaded.spec.rewards):
        if term.stage is Stage.TURN:
            message = "got turn; OpenRLHF has one reward for a trajectory, so that no turn is told from another. Write "
            yield loaded.fault(("rewards", position, "stage"), f"{message}stage: outcome, or engine: local.")


def _said_in_vain(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    """Settings that OpenRLHF has nothing for."""
    spec = loaded.spec
    mends: list[tuple[bool, KeyPath, str]] = [
        (
            spec.model.dtype == "float32",
            ("model", "dtype"),
            "got float32; OpenRLHF computes in bfloat16 over float32 weights of the optimiser. Write bfloat16 or auto.",
        ),
        (
            spec.train.observations_in_loss,
            ("train", "observations_in_loss"),
            "got true; vLLM gives no probabilities of tokens that it did not sample. Remove it, or write "
            "engine: local.",
        ),
        (
            spec.chat.history is HistoryPolicy.FORK,
            ("chat", "history"),
            "got fork; OpenRLHF trains one sequence for each sample. Write keep or refuse, or engine: local.",
        ),
        (
            loaded.value(("rollout", "max_concurrency")) is not None,
            ("rollout", "max_concurrency"),
            "vLLM decides by its memory how many trajectories it samples at once. Remove it, or set "
            "engine.vllm.gpu_memory.",
        ),
        (
            loaded.value(("train", "dynamic_filtering", "max_rounds")) is not None,
            ("train", "dynamic_filtering", "max_rounds"),
            "OpenRLHF draws questions until the step is full. Remove it.",
        ),
    ]
    yield from (loaded.fault(path, message) for wrong, path, message in mends if wrong)


def _adapters_reach_vllm(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
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
        message = f"got {tied[0]}; vLLM can hold its weights as one with others, which have no adapter. Remove it."
        yield loaded.fault(path, message)
    if loaded.spec.train.algorithm.needs_critic:
        message = f"got names; of the critic OpenRLHF trains these alone, and not its head. Write {ALL_LINEAR}."
        yield loaded.fault(path, message)


def _critic_and_reference_have_a_use(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    train = loaded.spec.train
    for name, used, mend in (
        ("ref", train.kl.coef > 0, "train.kl.coef is 0, so that there is no reference"),
        ("critic", train.algorithm.needs_critic, "the algorithm trains no critic"),
    ):
        if not used and loaded.value(("engine", name)) is not None:
            yield loaded.fault(("engine", name), f"{mend} to place. Remove it.")
    if engine.offload_ref and train.kl.coef == 0:
        message = "got true; train.kl.coef is 0, so that there is no reference. Remove it."
        yield loaded.fault(("engine", "offload_ref"), message)
    elif engine.offload_ref and engine.zero_stage < 3:
        message = f"got true with zero_stage: {engine.zero_stage}; DeepSpeed moves weights at stage 3 alone. Write "
        yield loaded.fault(("engine", "offload_ref"), f"{message}zero_stage: 3, or remove it.")


def _modes_fit_the_layout(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    if engine.mode is not Mode.SYNC and engine.colocate is Colocate.ALL:
        message = f"got {engine.mode} with colocate: all; who samples while others train needs GPUs of its own. Write "
        yield loaded.fault(("engine", "mode"), f"{message}colocate: actor_ref, or mode: sync.")
    elif engine.sleep and not Layout.of(loaded.spec).all_share:
        message = f"got true with colocate: {engine.colocate}; who has GPUs of its own has nobody to leave them to. "
        yield loaded.fault(("engine", "sleep"), f"{message}Remove it, or write colocate: all.")
    if engine.mode is Mode.SYNC and loaded.value(("engine", "queue_size")) is not None:
        message = "got a queue with mode: sync, which has none. Remove it, or write mode: async."
        yield loaded.fault(("engine", "queue_size"), message)


def _gpus_match(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    layout, actor = Layout.of(loaded.spec), engine.actor
    if layout.all_share and layout.vllm_gpus != actor.total:
        parts, left = divmod(actor.total, layout.tensor_parallel)
        mend = f"a tensor_parallel that divides {actor.total}" if left else f"engines: {parts}"
        yield loaded.fault(
            ("engine", "vllm", "engines" if engine.vllm.engines else "tensor_parallel"),
            f"got {layout.num_engines} engines x {layout.tensor_parallel} GPUs = {layout.vllm_gpus}; with colocate: "
            f"all vLLM lies on the policy's {actor.total}. Write {mend}, or colocate: actor_ref.",
        )
    if layout.ref not in (None, actor) and engine.colocate is not Colocate.NONE:
        message = f"got {_said(layout.ref)}; with colocate: {engine.colocate} it shares the policy's {_said(actor)}. "
        yield loaded.fault(("engine", "ref"), f"{message}Remove it, or write colocate: none.")
    if layout.critic not in (None, actor) and layout.all_share:
        message = f"got {_said(layout.critic)}; with colocate: all it shares the policy's {_said(actor)}. "
        yield loaded.fault(("engine", "critic"), f"{message}Remove it, or write colocate: none.")
    for name, gpus in (("ref", layout.ref), ("critic", layout.critic)):
        if gpus is not None and not layout.all_share and actor.total % gpus.total:
            message = f"got {_said(gpus)}; OpenRLHF deals out equal parts, so that they must divide the policy's "
            yield loaded.fault(("engine", name), f"{message}{actor.total}. Write per_node: {actor.per_node}.")


def _address_is_a_job_server(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    address = engine.ray_address
    if address is not None and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc):
        message = f"got {address!r}; expected the http address of a Ray cluster's job server. "
        yield loaded.fault(("engine", "ray_address"), f"{message}Write e.g. `http://head:8265`.")


def _one_machine_is_one_node(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    if engine.ray_address is not None:
        return
    for name in ("actor", "ref", "critic"):
        gpus: Gpus | None = getattr(engine, name)
        if gpus is not None and gpus.nodes > 1:
            message = f"got {gpus.nodes}; without engine.ray_address Ray starts on this machine alone. Write nodes: 1, "
            yield loaded.fault(("engine", name, "nodes"), f"{message}or the address of a cluster.")


def _attention_fits(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
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
        message = f"got {engine.ring_attention} with packing: false; a trajectory is cut only where rows are packed. "
        yield loaded.fault(path, f"{message}Write packing: true, or ring_attention: 1.")
    groups = {"actor": engine.actor, "ref": Layout.of(loaded.spec).ref, "critic": Layout.of(loaded.spec).critic}
    for name, gpus in groups.items():
        if gpus is not None and gpus.total % engine.ring_attention:
            message = f"got {engine.ring_attention}; it must divide the {gpus.total} GPUs of {name}. "
            yield loaded.fault(path, f"{message}Write a divisor of {gpus.total}.")
            return


def _batches_divide(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    train, layout = loaded.spec.train, Layout.of(loaded.spec)
    if train.prompts_per_step * loaded.spec.rollout.num_generations % train.mini_batches:
        return  # told for every engine
    if layout.batch % layout.num_ranks == 0:
        return
    each, ranks = loaded.spec.rollout.num_generations, layout.num_ranks * train.mini_batches
    fitting = next(n for n in count(train.prompts_per_step + 1) if n * each % ranks == 0)
    updates = f" in {train.mini_batches} updates" if train.mini_batches > 1 else ""
    ring = " / ring_attention" if engine.ring_attention > 1 else ""
    yield loaded.fault(
        ("train", "prompts_per_step"),
        f"got {train.prompts_per_step} x {each} trajectories{updates}; the {layout.batch} of one update must divide "
        f"evenly over {layout.num_ranks} parts (engine.actor{ring}). Write e.g. `prompts_per_step: {fitting}`.",
    )


def _filtering_has_groups(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    if loaded.spec.train.dynamic_filtering is not None and loaded.spec.rollout.num_generations == 1:
        message = "got 1 with train.dynamic_filtering; a group of one is all or nothing. Write 2 or more."
        yield loaded.fault(("rollout", "num_generations"), message)


def _leftovers_divide(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    """Groups that are dropped leave an incomplete step at the end, which OpenRLHF deals out as well."""
    layout, each = Layout.of(loaded.spec), loaded.spec.rollout.num_generations
    part = layout.num_ranks * (1 if engine.packing else layout.micro_batch)
    if loaded.spec.train.dynamic_filtering is not None and layout.num_ranks > 1 and each % part:
        yield loaded.fault(
            ("train", "dynamic_filtering"),
            f"the last step may be left with one group of {each}, which must divide over {layout.num_ranks} parts of "
            f"{part // layout.num_ranks}. Write num_generations: {-(-each // part) * part}, or fewer GPUs.",
        )


def _warmup_moves(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    train = loaded.spec.train
    updates = train.steps * train.epochs * train.mini_batches
    path: KeyPath = ("train", "warmup_steps")
    if train.warmup_steps == 1:
        message = "got 1; OpenRLHF's first update of a warm-up has rate 0, so that this one changes nothing. "
        yield loaded.fault(path, f"{message}Write 0.")
    elif train.warmup_steps >= updates:
        message = f"got {train.warmup_steps} of {updates} updates; the rate would never reach its peak. "
        yield loaded.fault(path, f"{message}Write {f'at most {updates // 10}' if updates >= 20 else '0'}.")


def _evaluations_meet_the_end(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    every, steps = loaded.spec.eval.every, loaded.spec.train.steps
    if loaded.spec.data.eval is not None and every is not None and steps % every:
        near = min((n for n in range(1, steps + 1) if steps % n == 0), key=lambda n: abs(n - every))
        message = f"got {every} of {steps} steps; OpenRLHF evaluates at multiples alone, which leaves out the last "
        yield loaded.fault(("eval", "every"), f"{message}step. Write e.g. `every: {near}`.")


def _correction_sees_whole_distributions(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
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
            message = f"got {value} with train.loss.correction; vLLM's probabilities are then of the tokens kept, the "
            yield loaded.fault(("rollout", key), f"{message}trainer's of all. Write {whole}, or correction level: off.")


def _spool_is_shared(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    if engine.ray_address is not None and engine.output is None:
        message = "absent beside ray_address; the agents on the cluster's nodes write their trajectories there. Name a "
        mend = "folder on a shared disk; with engine.ingest one of the nodes."
        yield loaded.fault(("engine", "output"), message + mend)
    if engine.ingest is not None and engine.ray_address is None:
        message = "without ray_address the job runs on this machine, which reads its records from its disk. Remove it."
        yield loaded.fault(("engine", "ingest"), f"got an address; {message}")


def _guards_can_act(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    for name, guard in loaded.spec.health:
        if isinstance(guard, Guard) and guard.action is Action.ROLLBACK:
            message = "got rollback; OpenRLHF goes on from the newest of its own checkpoints. Write stop."
            yield loaded.fault(("health", name, "action"), message)


def _output_is_one_place(loaded: LoadedSpec, engine: OpenRlhfEngineSpec) -> Iterator[Fault]:
    if engine.output is not None and not engine.output.startswith("/"):
        message = f"got {engine.output!r}; every node must find it under one name. Write its whole path from /."
        yield loaded.fault(("engine", "output"), message)


def find_openrlhf_warnings(loaded: LoadedSpec) -> Iterator[Fault]:
    """What OpenRLHF does otherwise than the local engine, within what the spec allows."""
    spec, engine = loaded.spec, loaded.spec.engine
    if not isinstance(engine, OpenRlhfEngineSpec):
        return
    train = spec.train
    if spec.rollout.schedule is Schedule.LOGICAL:
        message = "got logical; vLLM samples as its load allows, so that a seed does not give the same tokens again. "
        yield loaded.fault(("rollout", "schedule"), f"{message}Write clock.")
    if 1 < train.warmup_steps < SHORT_WARMUP:
        message = f"got {train.warmup_steps}; OpenRLHF's warm-up starts at rate 0, so that the first update changes "
        mend = f"Write 0, or {SHORT_WARMUP} or more."
        yield loaded.fault(("train", "warmup_steps"), f"{message}nothing and each later one is a step behind. {mend}")
    if train.weight_decay > 0:
        message = f"got {train.weight_decay:g}; OpenRLHF leaves biases and norms out, the local engine nothing. "
        yield loaded.fault(("train", "weight_decay"), f"{message}Write 0 to have the same on both.")
    if train.dynamic_filtering is not None:
        message = (
            f"OpenRLHF replaces dropped groups from the {train.steps * train.prompts_per_step} questions of all steps, "
            f"so that fewer than {train.steps} updates are made. Raise train.steps by the share that is dropped."
        )
        yield loaded.fault(("train", "dynamic_filtering"), message)
    if engine.mode is not Mode.SYNC and train.loss.correction.level is CorrectionLevel.OFF:
        message = f"got {engine.mode} without train.loss.correction; trajectories are of older weights than the update "
        yield loaded.fault(("engine", "mode"), f"{message}takes them for. Write e.g. `correction: {{level: token}}`.")
    if engine.mode is not Mode.SYNC and spec.data.eval is not None:
        message = f"got {engine.mode}; sampling ends before the last update, which is then not evaluated. "
        yield loaded.fault(("engine", "mode"), f"{message}Write mode: sync to have its figure.")
    if engine.ray_address is not None:
        yield from find_cluster_warnings(loaded, engine.ray_address)


def _said(gpus: Gpus | None) -> str:
    assert gpus is not None, "a model that is not there"
    return f"{gpus.nodes} x {gpus.per_node} GPUs"


CHECKS: tuple[Check, ...] = (
    _algorithm_exists,
    _loss_exists,
    _evaluations_have_no_budget,
    _turns_have_rewards,
    _said_in_vain,
    _adapters_reach_vllm,
    _critic_and_reference_have_a_use,
    _modes_fit_the_layout,
    _gpus_match,
    _address_is_a_job_server,
    _one_machine_is_one_node,
    _attention_fits,
    _batches_divide,
    _filtering_has_groups,
    _leftovers_divide,
    _warmup_moves,
    _evaluations_meet_the_end,
    _correction_sees_whole_distributions,
    _guards_can_act,
    _spool_is_shared,
    _output_is_one_place,
)
