"""Names that TRL, verl and OpenRLHF give to what the spec has a name for: accepted, stored under the spec's own name.

A name is here only if it means exactly what ours means; where it nearly does, `NEAR_MISSES` says the difference. The
table of the documentation is made from this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from rlf.core import Fault
from rlf.spec.models import RunSpec
from rlf.spec.nodes import (
    KeyPath,
    Node,
    dotted,
    edit,
    edit_leaves,
    find,
    plain,
    replace_text,
    show,
    unknown,
    walk,
    wrap,
)


class Source(StrEnum):
    """Whose name it is."""

    TRL = "TRL"
    """`GRPOConfig` and `ModelConfig`; its keys are flat and go under `train`."""
    VERL = "verl"
    """`ppo_trainer.yaml`, by whole path or in the spec's own section."""
    OPENRLHF = "OpenRLHF"
    """The dotted flags of `train_ppo_ray`, and the flat ones before 0.10 under `train`."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Names of one library for one value."""

    source: Source
    names: tuple[str, ...]
    """Dotted keys, from the top of a spec."""
    canonical: tuple[str, ...]
    """The dotted key of ours; several take the items of a list, in order."""
    also: tuple[str, ...]
    """Keys that take the same value, unless the same file gives them another."""
    implies: Mapping[str, str]
    """Settings that the name stands for beside its value, unless the same file says otherwise."""
    values: Mapping[str, str]
    """The library's words for values that are called otherwise here."""


_LOSS_KL = {"train.kl.place": "loss", "train.kl.kind": "k3"}
_REWARD_KL = {"train.kl.place": "reward", "train.kl.kind": "k1"}
_AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "seq_mean_token_mean",
    "seq-mean-token-sum-norm": "constant_length",
}
_ESTIMATORS = {"reinforce_plus_plus": "reinforce", "reinforce_plus_plus_baseline": "reinforce_baseline"}
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_CLIP, _BOTH_CLIPS = "train.loss.clip_low", ("train.loss.clip_high",)


def _make_alias(
    source: Source,
    names: str,
    canonical: str,
    also: tuple[str, ...] = (),
    implies: Mapping[str, str] = MappingProxyType({}),
    values: Mapping[str, str] = MappingProxyType({}),
) -> Alias:
    return Alias(source, tuple(names.split()), tuple(canonical.split()), also, implies, values)


_trl = partial(_make_alias, Source.TRL)
_verl = partial(_make_alias, Source.VERL)
_openrlhf = partial(_make_alias, Source.OPENRLHF)
ALIASES: tuple[Alias, ...] = (
    _trl("train.num_generations", "rollout.num_generations"),
    _trl("train.temperature", "rollout.temperature"),
    _trl("train.top_p", "rollout.top_p"),
    _trl("train.top_k", "rollout.top_k"),
    _trl("train.min_p", "rollout.min_p"),
    _trl("train.beta train.kl.beta", "train.kl.coef", implies=_LOSS_KL),
    _trl("train.epsilon train.loss.epsilon", _CLIP, also=_BOTH_CLIPS),
    _trl("train.epsilon_high train.loss.epsilon_high", "train.loss.clip_high"),
    _trl("train.sapo_temperature_pos train.loss.sapo_temperature_pos", "train.loss.tau_pos"),
    _trl("train.sapo_temperature_neg train.loss.sapo_temperature_neg", "train.loss.tau_neg"),
    _trl("train.off_policy_mask_threshold", "train.loss.off_policy_mask"),
    _trl("train.top_entropy_quantile", "train.loss.top_entropy"),
    _trl("train.mask_truncated_completions", "train.mask_truncated"),
    _trl("train.ref_model_mixup_alpha train.kl.ref_model_mixup_alpha", "train.kl.sync_mix"),
    _trl("train.num_iterations", "train.epochs"),
    _trl("train.num_generations_eval", "eval.num_samples"),
    _trl("train.save_total_limit", "checkpoint.keep"),
    _trl("model.model_name_or_path", "model.path"),
    _trl("model.lora_r", "model.lora.rank"),
    _trl("model.lora_target_modules", "model.lora.target_modules"),
    _trl("data.dataset_name", "data.train.path"),
    _trl("data.dataset_config", "data.train.config"),
    _trl("data.dataset_train_split", "data.train.split"),
    _verl(f"rollout.n {_ROLLOUT}.n", "rollout.num_generations"),
    _verl(f"{_ROLLOUT}.temperature", "rollout.temperature"),
    _verl(f"{_ROLLOUT}.top_p", "rollout.top_p"),
    _verl(f"rollout.multi_turn.max_assistant_turns {_ROLLOUT}.multi_turn.max_assistant_turns", "rollout.max_turns"),
    _verl(f"train.kl_loss_coef train.kl.kl_loss_coef {_ACTOR}.kl_loss_coef", "train.kl.coef", implies=_LOSS_KL),
    _verl(
        f"train.kl_loss_type {_ACTOR}.kl_loss_type",
        "train.kl.kind",
        values={"low_var_kl": "k3", "mse": "k2", "kl": "k1"},
    ),
    _verl("algorithm.kl_ctrl.kl_coef", "train.kl.coef", implies=_REWARD_KL),
    _verl(f"train.clip_ratio train.loss.clip_ratio {_ACTOR}.clip_ratio", _CLIP, also=_BOTH_CLIPS),
    _verl(f"train.clip_ratio_low train.loss.clip_ratio_low {_ACTOR}.clip_ratio_low", _CLIP),
    _verl(f"train.clip_ratio_high train.loss.clip_ratio_high {_ACTOR}.clip_ratio_high", "train.loss.clip_high"),
    _verl(f"train.clip_ratio_c train.loss.clip_ratio_c {_ACTOR}.clip_ratio_c", "train.loss.dual_clip"),
    _verl(f"train.loss_agg_mode {_ACTOR}.loss_agg_mode", "train.loss.aggregation", values=_AGGREGATIONS),
    _verl(f"train.policy_loss.loss_mode {_ACTOR}.policy_loss.loss_mode", "train.loss.kind", values={"vanilla": "ppo"}),
    _verl(f"train.loss_scale_factor {_ACTOR}.loss_scale_factor", "train.loss.length"),
    _verl(f"{_ACTOR}.tau_pos", "train.loss.tau_pos"),
    _verl(f"{_ACTOR}.tau_neg", "train.loss.tau_neg"),
    _verl(f"train.entropy_coeff {_ACTOR}.entropy_coeff", "train.entropy_coef"),
    _verl(f"train.ppo_epochs {_ACTOR}.ppo_epochs", "train.epochs"),
    _verl(f"train.lr {_ACTOR}.optim.lr", "train.learning_rate"),
    _verl(f"{_ACTOR}.optim.weight_decay", "train.weight_decay"),
    _verl(f"train.grad_clip {_ACTOR}.grad_clip {_ACTOR}.optim.clip_grad", "train.max_grad_norm"),
    _verl("train.adv_estimator algorithm.adv_estimator", "train.algorithm.kind", values=_ESTIMATORS),
    _verl("algorithm.gamma", "train.algorithm.gamma"),
    _verl("algorithm.lam", "train.algorithm.lam"),
    _verl("data.train_batch_size", "train.prompts_per_step"),
    _verl("data.train_files", "data.train.path"),
    _verl("data.val_files", "data.eval.path"),
    _verl("data.train.prompt_key", "data.train.prompt"),
    _verl("data.eval.prompt_key", "data.eval.prompt"),
    _verl("actor_rollout_ref.model.path", "model.path"),
    _verl("model.lora_rank actor_rollout_ref.model.lora_rank", "model.lora.rank"),
    _verl("model.lora_alpha actor_rollout_ref.model.lora_alpha", "model.lora.alpha"),
    _verl("critic.optim.lr", "train.critic.learning_rate"),
    _verl("critic.cliprange_value", "train.critic.value_clip"),
    _verl("rollout.val_kwargs.n actor_rollout_ref.rollout.val_kwargs.n", "eval.num_samples"),
    _verl("actor_rollout_ref.rollout.val_kwargs.temperature", "eval.temperature"),
    _verl("train.total_training_steps trainer.total_training_steps", "train.steps"),
    _verl("trainer.test_freq", "eval.every"),
    _verl("trainer.save_freq", "checkpoint.every"),
    _verl("trainer.max_actor_ckpt_to_keep", "checkpoint.keep"),
    _verl("trainer.experiment_name", "name"),
    _openrlhf("rollout.n_samples_per_prompt train.n_samples_per_prompt", "rollout.num_generations"),
    _openrlhf("rollout.batch_size train.rollout_batch_size", "train.prompts_per_step"),
    _openrlhf("data.max_len", "rollout.max_total_tokens"),
    _openrlhf("algo.kl.init_coef train.init_kl_coef train.kl.init_coef", "train.kl.coef", implies=_REWARD_KL),
    _openrlhf("algo.kl.estimator", "train.kl.kind"),
    _openrlhf("algo.kl.use_loss", "train.kl.place", values={"true": "loss", "false": "reward"}),
    _openrlhf("actor.eps_clip train.eps_clip train.loss.eps_clip", _CLIP, also=_BOTH_CLIPS),
    _openrlhf(
        "actor.eps_clip_low_high train.eps_clip_low_high train.loss.eps_clip_low_high",
        "train.loss.clip_low train.loss.clip_high",
    ),
    _openrlhf("actor.dual_clip", "train.loss.dual_clip"),
    _openrlhf("actor.policy_loss_type", "train.loss.kind"),
    _openrlhf("actor.loss_agg_mode", "train.loss.aggregation", values=_AGGREGATIONS),
    _openrlhf("actor.entropy_coef", "train.entropy_coef"),
    _openrlhf("actor.adam.lr train.actor_learning_rate", "train.learning_rate"),
    _openrlhf("actor.adam.betas", "train.adam_betas"),
    _openrlhf("actor.adam.weight_decay", "train.weight_decay"),
    _openrlhf("actor.lr_scheduler", "train.lr_schedule"),
    _openrlhf("actor.min_lr_ratio", "train.min_lr_ratio"),
    _openrlhf("actor.max_norm", "train.max_grad_norm"),
    _openrlhf("train.max_epochs", "train.epochs"),
    _openrlhf(
        "algo.advantage.estimator train.advantage_estimator", "train.algorithm.kind", values={"group_norm": "grpo"}
    ),
    _openrlhf("algo.advantage.gamma", "train.algorithm.gamma"),
    _openrlhf("algo.advantage.lambd", "train.algorithm.lam"),
    _openrlhf("critic.adam.lr train.critic_learning_rate", "train.critic.learning_rate"),
    _openrlhf("critic.value_clip", "train.critic.value_clip"),
    _openrlhf("actor.model_name_or_path model.pretrain", "model.path"),
    _openrlhf("data.prompt_dataset", "data.train.path"),
    _openrlhf("data.prompt_split", "data.train.split"),
    _openrlhf("data.input_key data.train.input_key", "data.train.prompt"),
    _openrlhf("data.label_key data.train.label_key", "data.train.answer"),
    _openrlhf("eval.dataset", "data.eval.path"),
    _openrlhf("eval.split", "data.eval.split"),
    _openrlhf("data.eval.input_key", "data.eval.prompt"),
    _openrlhf("data.eval.label_key", "data.eval.answer"),
    _openrlhf("eval.steps", "eval.every"),
    _openrlhf("eval.n_samples_per_prompt", "eval.num_samples"),
    _openrlhf("ckpt.save_steps", "checkpoint.every"),
    _openrlhf("ckpt.max_num", "checkpoint.keep"),
    _openrlhf("train.seed", "seed"),
)
"""Every accepted name."""

NEAR_MISSES: Mapping[str, str] = {
    "max_completion_length": "it counts tool results of all turns too. Write rollout.max_new_tokens for one turn, "
    "rollout.max_total_tokens for the whole trajectory with its prompt.",
    "response_length": "it counts tool results of all turns too. Write rollout.max_new_tokens for one turn, "
    "rollout.max_total_tokens for the whole trajectory with its prompt.",
    "max_prompt_length": "prompts have no budget of their own. Write rollout.max_total_tokens, which counts them.",
    "batch_size": "libraries count prompts, trajectories or devices by it. Write train.prompts_per_step, and "
    "train.micro_batch_tokens for memory.",
    "train_batch_size": "libraries count prompts, trajectories or devices by it. Write train.prompts_per_step, and "
    "train.mini_batches for the updates of a step.",
    "ppo_mini_batch_size": "a step is divided by number, not by size. Write train.mini_batches: prompts per step / "
    "mini-batch size.",
    "per_device_train_batch_size": "it depends on the devices. Write train.prompts_per_step, and "
    "train.micro_batch_tokens for the memory of one pass.",
    "gradient_accumulation_steps": "micro-batches are cut by tokens. Write train.micro_batch_tokens.",
    "max_steps": "it counts optimiser updates. Write train.steps, which counts collections, and train.mini_batches.",
    "lr_warmup_steps": "it counts steps where ours counts optimiser updates. Write train.warmup_steps.",
    "num_train_epochs": "runs are measured in steps. Write train.steps: rows / prompts_per_step for one epoch.",
    "num_episodes": "runs are measured in steps. Write train.steps: rows / prompts_per_step for one epoch.",
    "loss_type": "it names two settings. Write train.loss.kind (cispo, sapo), or for others train.loss.aggregation: "
    "grpo is seq_mean_token_mean, dapo is token_mean, dr_grpo is constant_length with a length.",
    "multi_objective_aggregation": "normalize_then_sum is an estimator. Write train.algorithm: gdpo.",
    "scale_rewards": "it is part of the estimator. Write train.algorithm: grpo, or dr_grpo for none.",
    "vllm_importance_sampling_mode": "it names two settings. Write train.loss.correction: {level: token}, or "
    "seq_product for sequence_*, with mode: clip for *_truncate and mask for *_mask.",
    "ref_model_sync_steps": "it counts optimiser updates. Write train.kl.sync_every, which counts steps.",
    "sync_ref_model": "a number of steps turns it on. Write train.kl.sync_every.",
    **dict.fromkeys(
        ("best", "best_metric_key", "load_best_model_at_end", "metric_for_best_model"),
        "no key chooses the best checkpoint: that of the evaluation with the highest held-out success always stays "
        "beside the newest checkpoint.keep. Remove it.",
    ),
    **dict.fromkeys(
        ("load_in_4bit", "load_in_8bit"),
        "weights stay in 16 or 32 bits: OpenRLHF sends them to vLLM as the trainer holds them, and vLLM takes none of "
        "4 or 8 bits. Write model.lora without it.",
    ),
    "max_tool_calling_iterations": "it leaves the answer out. Write rollout.max_turns, which is one more.",
}
"""Names that look like ours and mean something else, by their last part, with what to write."""


def names_below(path: Sequence[str | int]) -> list[str]:
    """Accepted keys of the mapping at a path, beside its own."""
    prefix = tuple(map(str, path))
    parts = [tuple(name.split(".")) for alias in ALIASES for name in alias.names]
    found = [name[len(prefix)] for name in parts if len(name) == len(prefix) + 1 and name[: len(prefix)] == prefix]
    return list(dict.fromkeys(found))


def foreign_names(key: str) -> list[str]:
    """Our names for what other libraries call `key` within a section."""
    found = [alias.canonical[0] for alias in ALIASES for name in alias.names if name.split(".")[1:] == [key]]
    return list(dict.fromkeys(found))


def sections() -> frozenset[str]:
    """First parts of all accepted names."""
    return frozenset(name.partition(".")[0] for alias in ALIASES for name in alias.names)


# Values under another library's names, moved to where the spec has them; `rlf.spec.aliases` has the names.
#
# Invariant: a value keeps its place and the path under which it was said, so that faults name what the user wrote.

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A value and the canonical path it goes to."""

    path: Path
    node: Node
    weak: bool = False
    """Whether it stands back for what the same layer says at that path."""


def canonical_names(root: Node, faults: list[Fault]) -> Node:
    """One layer with every value under its canonical name. Two names that disagree are a fault."""
    rest, moves = take_aliases(root, faults)
    for move in sorted(moves, key=lambda move: move.weak):
        rest = _put_move(rest, move, faults)
    return rest


def take_aliases(root: Node, faults: list[Fault]) -> tuple[Node, list[Move]]:
    """The layer without the values under other names, and the keys that those belong to."""
    moves: list[Move] = []
    for alias, path in _PATHS:
        node, depth = find(root, path)
        if depth < len(path) or node is root:
            continue
        root = without(root, path)
        if node.value is not None:  # null is how those libraries leave a setting out
            moves += _make_moves(alias, node, faults)
    return _without_foreign_sections(root, faults), moves


def aliased(path: Sequence[str]) -> tuple[Path, ...]:
    """The canonical paths of an accepted name; none for any other path."""
    for alias, name in _PATHS:
        if name == tuple(path):
            return tuple(tuple(target.split(".")) for target in (*alias.canonical, *alias.also))
    return ()


_PATHS = tuple((alias, tuple(name.split("."))) for alias in ALIASES for name in alias.names)
_SECTIONS = sections() - set(RunSpec.model_fields)
"""Sections that only other libraries have."""


def _make_moves(alias: Alias, node: Node, faults: list[Fault]) -> Iterator[Move]:
    paths = [tuple(target.split(".")) for target in alias.canonical]
    if len(paths) == 1:
        value = replace(node, value=alias.values.get(_value_word(node), node.value))
        yield Move(paths[0], value)
        yield from (Move(tuple(target.split(".")), value, weak=True) for target in alias.also)
    elif len(node.items) == len(paths):
        yield from (Move(path, item) for path, item in zip(paths, node.items, strict=True))
    else:
        words = ", ".join(path[-1] for path in paths)
        faults.append(node.fault(f"got {show(plain(node))}; expected a list [{words}]. Write e.g. `[0.2, 0.28]`."))
    yield from (Move(tuple(key.split(".")), wrap(value, node), weak=True) for key, value in alias.implies.items())


def _value_word(node: Node) -> str:
    value = node.value
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else ""


def _put_move(root: Node, move: Move, faults: list[Fault]) -> Node:
    there, depth = find(root, move.path)
    if depth < len(move.path) and isinstance(there.value, dict):
        return _with_child(root, move.path, move.node)
    if not move.weak and plain(there) != plain(move.node):
        faults.append(_disagreement_fault(move, there))
    return root


def _disagreement_fault(move: Move, there: Node) -> Fault:
    name = dotted(move.path)
    both = name if there.path == move.path else f"{dotted(there.path)}, which is {name} too,"
    message = (
        f"got {_show_node(move.node)}, but {both} says {_show_node(there)} at {there.place}; one value has one name."
    )
    return move.node.fault(f"{message} Remove one of them.")


def _show_node(node: Node) -> str:
    return show(plain(node))


def _with_child(node: Node, path: Sequence[str], child: Node, done: Path = ()) -> Node:
    if not path:
        return child
    empty = replace(child, value={}, path=(*done, path[0]))
    below = _with_child(node.mapping.get(path[0], empty), path[1:], child, (*done, path[0]))
    return replace(node, value={**node.mapping, path[0]: below})


def without(node: Node, path: KeyPath) -> Node:
    """The tree without the value at a path, and without the mappings that this leaves empty."""
    key, rest = path[0], path[1:]
    assert isinstance(key, str), f"a name with an index: {path}"
    entries = dict(node.mapping)
    child = without(entries[key], rest) if rest else None
    if child is None or not child.mapping:
        del entries[key]
    else:
        entries[key] = child
    return replace(node, value=entries)


def _without_foreign_sections(root: Node, faults: list[Fault]) -> Node:
    """Removes other libraries' sections; each key that they still hold is reported, not the section."""
    foreign = [key for key in root.mapping if key in _SECTIONS and isinstance(root.mapping[key].value, dict)]
    for section in foreign:
        for path, node in walk(root.mapping[section], (section,)):
            if not node.mapping:
                faults.append(node.fault(unknown_key(path), at_key=True))
    return replace(root, value={key: child for key, child in root.mapping.items() if key not in foreign})


def unknown_key(path: KeyPath, known: Sequence[str] = ()) -> str:
    """The sentence for a key of a spec that nothing reads, with the nearest of our names and the accepted ones."""
    key = str(path[-1])
    if key in NEAR_MISSES:
        return f"unknown key {key!r}: {NEAR_MISSES[key]}"
    return unknown(key, known, names_below(path[:-1]))


# `mcpServers` as other programs write it, in rlf's words: variables, and keys that mean nothing here.

SERVERS = "mcpServers"
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ELSEWHERE = frozenset(
    {"alwaysAllow", "autoApprove", "description", "disabled", "icon", "isActive", "name", "sse_read_timeout", "timeout"}
)
"""Keys of Claude, Cursor, Cline, Qwen-Agent and RL-Factory that say nothing about how a server is reached."""


def with_variables(item: Node) -> Node:
    """`${NAME}` and `${NAME:-default}` within `mcpServers` as `${oc.env:NAME}`; any other item as it is."""
    return edit(item, (SERVERS,), lambda servers: edit_leaves(servers, _with_our_variables))


def each_server(item: Node) -> Iterator[Node]:
    """An item with `mcpServers` as one with `mcp` for every server that is not disabled."""
    rest = {key: child for key, child in item.mapping.items() if key != SERVERS}
    for server in item.mapping[SERVERS].mapping.values():
        if not is_disabled(server):
            settings = {key: child for key, child in server.mapping.items() if key not in _ELSEWHERE}
            yield replace(item, value={**rest, "mcp": replace(server, value=settings) if server.mapping else server})


def is_disabled(server: Node) -> bool:
    """Whether a server is written down and not used."""
    disabled = server.get("disabled")
    return disabled is not None and disabled.value is True


def _with_our_variables(_: KeyPath, node: Node) -> Node:
    return replace_text(node, _VARIABLE, _in_our_words)


def _in_our_words(match: re.Match[str]) -> str:
    name, default = match.groups()
    if default is None:
        return f"${{oc.env:{name}}}"
    quoted = default.replace("\\", "\\\\").replace("'", "\\'")
    return f"${{oc.env:{name},'{quoted}'}}"
