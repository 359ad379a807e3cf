"""Facts of the models about every key, in words: meaning, type, unit, default and range. For documents and editors.

One source: the field, its docstring, and the docstrings of the enum members it may have.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlf.core import UnknownKind
from rlf.core.kinds import Kind
from rlf.spec.nodes import Key, Node

_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    NoneType: "`null`",
    Any: "any value",
}
_UNITS = {
    "_s": "seconds",
    "tokens": "tokens",
    "_chars": "characters",
    "steps": "steps",
    "every": "steps",
    "turns": "turns",
    "threads": "threads",
}
"""Units by the end of a key's name, which says them."""


@dataclass(frozen=True, slots=True)
class KeyFact:
    """One key of a mapping."""

    name: str
    meaning: str
    type: str
    """In words, e.g. `whole number or null`."""
    unit: str
    """Empty for what has none."""
    default: str
    """As JSON; `required` where the key must be there, empty for a mapping whose keys have their own."""
    range: str
    """E.g. `>= 1`; empty for any value of the type."""
    choices: tuple[tuple[str, str], ...]
    """Names that the value may have, with what each means."""


def key_facts(model: type[BaseModel]) -> list[KeyFact]:
    """The facts of every key of a model, in order; a key without a meaning has an empty one."""
    return [_make_fact(model, name, info) for name, info in model.model_fields.items()]


def submodels(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The keys of a model whose values are mappings with keys of their own, with their models."""
    for name, info in model.model_fields.items():
        for found in leaves(info.annotation):
            if inspect.isclass(found) and issubclass(found, BaseModel):
                yield info.alias or name, found


def leaves(annotation: Any) -> list[Any]:
    """The types that an annotation is made of, without unions, lists and mappings around them."""
    if hasattr(annotation, "__metadata__"):
        return leaves(annotation.__origin__)
    if get_origin(annotation) in (None, Literal):
        return [annotation]
    return [found for argument in get_args(annotation) if argument is not ... for found in leaves(argument)]


def meaning(model: type[BaseModel], name: str) -> str:
    """A field's docstring; without one, the first paragraph of that of its model or enum."""
    info = model.model_fields[name]
    if doc := field_doc(model, name):
        return _fold_lines(doc)
    classes = [found for found in leaves(info.annotation) if inspect.isclass(found)]
    own = [found for found in classes if issubclass(found, BaseModel | Enum) and found.__doc__]
    if own:
        return first_paragraph(own[0])
    return "Chooses the keys beside it." if is_discriminator(info) else ""


def is_discriminator(info: FieldInfo) -> bool:
    """Whether the field can have one value only: the name of the kind that it belongs to."""
    return get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1


def first_paragraph(documented: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return _fold_lines(inspect.cleandoc(documented.__doc__ or "").split("\n\n")[0])


def field_doc(model: type[BaseModel], name: str) -> str:
    """The description of a field, or the docstring under it, which is read when asked for; empty without either."""
    owner = next(found for found in model.__mro__ if name in inspect.get_annotations(found))
    return model.model_fields[name].description or attribute_docs(owner).get(name, "")


def member_docs(enum: type[Enum]) -> dict[str, str]:
    """The docstring under each member of an enum, by the member's value; empty for a member without."""
    docs = attribute_docs(enum)
    return {str(member.value): _fold_lines(docs.get(member.name, "")) for member in enum}


@cache
def attribute_docs(owner: type) -> dict[str, str]:
    """The docstring under each attribute of a class; none where its source is not at hand."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef), f"the source of {owner} is no class"
    docs: dict[str, str] = {}
    for statement, after in pairwise(body.body):
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            docs |= {name: inspect.cleandoc(text.value) for name in _name_assigned(statement)}
    return docs


def _name_assigned(statement: ast.stmt) -> list[str]:
    """Names that a statement of a class's body sets or annotates."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _make_fact(model: type[BaseModel], field: str, info: FieldInfo) -> KeyFact:
    name = info.alias or field
    kinds = [found for found in leaves(info.annotation) if inspect.isclass(found) and issubclass(found, Enum)]
    return KeyFact(
        name=name,
        meaning=meaning(model, field),
        type=_type_words(info.annotation),
        unit=_find_unit(name, info),
        default=_show_default(info),
        range=_show_range(info.metadata, info.annotation),
        choices=tuple(pair for kind in kinds for pair in member_docs(kind).items()),
    )


def _type_words(annotation: Any) -> str:
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    arguments, origin = get_args(annotation), get_origin(annotation)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_type_words, arguments)))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list) and len(arguments) == 2 and arguments[1] is ...:
        return f"list of {_plural_of(_type_words(arguments[0]))}"
    if origin in (tuple, list):
        return f"[{', '.join(map(_type_words, arguments))}]"
    if annotation in _NAMES:
        return _NAMES[annotation]
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return "mapping"


def _plural_of(words: str) -> str:
    return words if words == "text" else f"{words}s"


def _find_unit(name: str, info: FieldInfo) -> str:
    if not {int, float} & set(leaves(info.annotation)):
        return ""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def _show_default(info: FieldInfo) -> str:
    value = info.default
    if info.default_factory is not None or isinstance(value, BaseModel):
        return ""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str) and value else json.dumps(value)


def _show_range(metadata: Sequence[Any], annotation: Any) -> str:
    inner = [item for arm in get_args(annotation) for item in getattr(arm, "__metadata__", ())]
    bounds = [*metadata, *inner, *(more for item in inner if isinstance(item, FieldInfo) for more in item.metadata)]
    signs = {"ge": ">= {}", "gt": "> {}", "le": "<= {}", "lt": "< {}", "min_length": "at least {} long"}
    parts = [
        words.format(f"{bound:,}" if isinstance(bound, int) else f"{bound:g}")
        for item in bounds
        for key, words in signs.items()
        if (bound := getattr(item, key, None)) is not None
    ]
    patterns = [f"matches `{item.pattern}`" for item in bounds if getattr(item, "pattern", None)]
    return ", ".join(dict.fromkeys([*parts, *patterns]))


def _fold_lines(text: str) -> str:
    return " ".join(text.split())


# Facts of the models about the key at a path: the keys they know, a field's default. For messages only.


def known_keys(model: type[BaseModel], node: Node, path: Sequence[Key]) -> list[str]:
    """Keys that the mapping at `path` of a document may have; empty where the models do not say."""
    keys: list[str] = []
    for found in _types_at(model, node, path):
        if inspect.isclass(found) and issubclass(found, BaseModel):
            keys += [info.alias or name for name, info in found.model_fields.items()]
            keys += [base.chosen_by for base in _kind_bases(found)]
    return list(dict.fromkeys(keys))


def known_kinds(model: type[BaseModel], node: Node, path: Sequence[Key]) -> list[str]:
    """Names that the last key of `path` may have, where it is the one that chooses a model."""
    bases = [found for found in _types_at(model, node, path[:-1]) if found in _kind_bases(found)]
    return [name for base in bases if base.chosen_by == path[-1] for name in base.registry().names()]


def field_at(model: type[BaseModel], node: Node, path: Sequence[Key]) -> FieldInfo | None:
    """The field that the last key of `path` names."""
    owner, name = _find_model(model, node, path)
    return None if owner is None else owner.model_fields[name]


def doc_at(model: type[BaseModel], node: Node, path: Sequence[Key]) -> str:
    """The meaning of the last key of `path`; empty where the models do not say."""
    owner, name = _find_model(model, node, path)
    return "" if owner is None else field_doc(owner, name)


def _find_model(model: type[BaseModel], node: Node, path: Sequence[Key]) -> tuple[type[BaseModel] | None, str]:
    """The model that has the field which the last key of `path` names, and the field's name."""
    for found in _types_at(model, node, path[:-1]) if path and isinstance(path[-1], str) else ():
        name = _field_name(found, path[-1])
        if name is not None:
            return found, name
    return None, ""


def _types_at(annotation: Any, node: Node | None, path: Sequence[Key]) -> list[Any]:
    """Possible types of the value at `path` below an annotation."""
    arms = _list_arms(annotation, node)
    if not path:
        return arms
    key, rest = path[0], path[1:]
    child = node.get(key) if node is not None else None
    below = [annotation for arm in arms for annotation in _annotations_below(arm, key)]
    return [found for annotation in below for found in _types_at(annotation, child, rest)]


def _annotations_below(arm: Any, key: Key) -> list[Any]:
    if isinstance(key, int):
        return [item for item in get_args(arm) if item is not ...]
    name = _field_name(arm, key)
    return [] if name is None else [arm.model_fields[name].annotation]


def meant_kind(model: type[BaseModel], node: Node, path: Sequence[Key], name: str) -> str | None:
    """The kind that a name stands for where one is chosen: itself, or the known one that is meant; None elsewhere."""
    bases = [base for found in _types_at(model, node, path) for base in _kind_bases(found)]
    try:
        return name if bases and bases[-1].registry().get(name) else None
    except UnknownKind as fault:
        return fault.meant


def _kind_bases(found: Any) -> list[type[Kind]]:
    """The bases of kinds that a class derives from or is, the most special first."""
    return found.bases() if inspect.isclass(found) and issubclass(found, Kind) else []


def _field_name(arm: Any, key: Key) -> str | None:
    """The name of the field that a key is read into."""
    if not (inspect.isclass(arm) and issubclass(arm, BaseModel)):
        return None
    return next((name for name, info in arm.model_fields.items() if key == (info.alias or name)), None)


def _list_arms(annotation: Any, node: Node | None) -> list[Any]:
    """The annotation itself, the arms of a union, or the kind that the value names."""
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, UnionType):
        return [arm for option in get_args(annotation) for arm in _list_arms(option, node)]
    if node is None or annotation not in _kind_bases(annotation):
        return [annotation]
    name = node.get(annotation.chosen_by)
    try:
        return [annotation] if name is None else _list_arms(annotation.registry().get(str(name.value)), node)
    except UnknownKind:
        return [annotation]


# Estimators, losses and their settings as other libraries and papers name them: the table of the documentation.


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of `train`."""

    here: str
    """As a spec writes it, below `train`."""
    trl: str
    """`GRPOConfig` of TRL 1.16."""
    verl: str
    openrlhf: str
    """0.11.2; `-` where it has none."""
    paper: str
    equation: str


ROWS = (
    Row(
        "algorithm: grpo", "default", "`adv_estimator: grpo`", "`group_norm`",
        "arXiv:2402.03300", "A = (r - mean(r)) / std(r) over the group",
    ),
    Row(
        "algorithm: dr_grpo", "`scale_rewards: none`", "`norm_adv_by_std_in_grpo: false`", "`dr_grpo`",
        "arXiv:2503.20783", "A = r - mean(r)",
    ),
    Row(
        "algorithm: rloo", "`RLOOTrainer`", "`rloo`", "`rloo`",
        "arXiv:2402.14740", "A_i = r_i - mean of the others",
    ),
    Row(
        "algorithm: reinforce", "-", "`reinforce_plus_plus`", "`reinforce`",
        "arXiv:2501.03262", "A = whiten(return)",
    ),
    Row(
        "algorithm: reinforce_baseline", "-", "`reinforce_plus_plus_baseline`", "`reinforce_baseline`",
        "arXiv:2501.03262", "A = whiten(r - mean(r))",
    ),
    Row("algorithm: flash_reinforce", "-", "-", "`flash_reinforce`", "OpenRLHF", "A = r - mean(r) over the batch"),
    Row(
        "algorithm: {kind: gae, observations: bootstrap}", "-", "-", "`gae`",
        "arXiv:1506.02438", "t + 1 is the next token; V = 0 on observations",
    ),
    Row(
        "algorithm: {kind: gae, observations: skip}", "-", "`gae`", "-",
        "arXiv:1506.02438", "t + 1 is the next sampled token",
    ),
    Row("algorithm: mt_grpo", "-", "-", "-", "arXiv:2505.11821", "A_k = N(R) + c N_k(G_k) for turn k"),
    Row(
        "algorithm: gdpo", "`multi_objective_aggregation: normalize_then_sum`", "`gdpo`", "-",
        "arXiv:2601.05242", "A = S / std(S) over the batch, S = sum_k w_k N(r_k)",
    ),
    Row("algorithm: remax", "-", "`remax`", "-", "arXiv:2310.10505", "A = r - r of the greedy rollout"),
    Row("algorithm: opo", "-", "`opo`", "-", "arXiv:2505.23585", "A = r - sum(l r) / sum(l), l the length"),
    Row(
        "algorithm: gpg", "-", "`gpg`, which takes another M: rewards of 0", "-",
        "arXiv:2504.02546", "A = B / (B - M) (r - mean(r)), M of B in groups of equal rewards",
    ),
    Row(
        "algorithm: {kind: pass_at_k, k: 4}", "-", "-", "-",
        "arXiv:2508.10751", "A_i = (E[max of k with i] - E[max of k]) / std(max of k)",
    ),
    Row(
        "algorithm: grpo_passk", "-", "`grpo_passk`", "-",
        "arXiv:2503.19595", "A of the best = (first - second) / std(r), 0 of others",
    ),
    Row(
        "loss: {kind: ppo}", "default", "`loss_mode: vanilla`", "`ppo`",
        "arXiv:1707.06347, equation 7", "-min(rho A, clip(rho) A)",
    ),
    Row(
        "loss: {kind: gspo}", "`importance_sampling_level: sequence`", "`loss_mode: gspo`", "`gspo`",
        "arXiv:2507.18071", "ppo with rho = exp(mean log ratio) of the sequence",
    ),
    Row(
        "loss: {kind: cispo}", "`loss_type: cispo`, where epsilon_high is 1 + clip_high", "`loss_mode: cispo`", "-",
        "arXiv:2506.13585, equation 4", "-sg(clip(rho)) A log pi",
    ),
    Row(
        "loss: {kind: sapo}", "`loss_type: sapo`", "`loss_mode: sapo`", "-",
        "arXiv:2511.20347", "-sigmoid(tau (rho - 1)) 4 / tau A",
    ),
    Row("loss: {kind: gpg}", "-", "`loss_mode: gpg`", "-", "arXiv:2504.02546", "-A log pi"),
    Row(
        "loss: {aggregation: token_mean}", "`loss_type: dapo`", "`token-mean`", "`token-mean`",
        "arXiv:2503.14476", "sum over tokens / number of tokens",
    ),
    Row(
        "loss: {aggregation: seq_mean_token_mean}", "`loss_type: grpo`", "`seq-mean-token-mean`",
        "`seq-mean-token-mean`", "arXiv:2402.03300, equation 3", "mean over sequences of the mean over tokens",
    ),
    Row(
        "loss: {aggregation: constant_length, length: 512}", "`loss_type: dr_grpo`",
        "`seq-mean-token-sum-norm`, `loss_scale_factor`", "-",
        "arXiv:2503.20783", "mean over sequences of the sum over tokens / length",
    ),
    Row(
        "loss: {correction: {level: token, mode: clip}}", "`token_truncate`", "`rollout_is: token`",
        "level `token`, mode `clip`", "Yao et al. 2025", "w_t = clip(pi / mu)",
    ),
    Row(
        "loss: {correction: {level: seq_product, mode: clip}}", "`sequence_truncate`", "`rollout_is: sequence`", "-",
        "Yao et al. 2025", "w = clip(prod_t pi / mu)",
    ),
    Row(
        "loss: {correction: {level: seq_product, mode: mask}}", "`sequence_mask`", "-", "-",
        "Yao et al. 2025", "w = prod_t pi / mu inside the thresholds, else 0",
    ),
    Row(
        "loss: {off_policy_mask: 0.5}", "`off_policy_mask_threshold`", "-", "-",
        "arXiv:2512.02556", "0 where A < 0 and mean log(mu / pi) > delta",
    ),
    Row(
        "loss: {probability_mask: 0.3}", "-", "-", "-",
        "prime-rl's IPO, INTELLECT policy optimisation", "0 where |pi - mu| > eps",
    ),
    Row(
        "loss: {top_entropy: 0.2}", "`top_entropy_quantile`", "-", "-",
        "arXiv:2506.01939", "0 where H < its (1 - rho) quantile",
    ),
    Row(
        "mask_truncated: true", "`mask_truncated_completions`", "-", "-",
        "arXiv:2503.14476, section 3.4", "0 where the trajectory ran out of tokens",
    ),
    Row(
        "kl: {sync_every: 64, sync_mix: 0.6}", "`sync_ref_model`, `ref_model_mixup_alpha`", "-", "-",
        "arXiv:2404.09656", "ref <- alpha pi + (1 - alpha) ref",
    ),
)  # fmt: skip
"""In the order of a spec: estimators, losses, means, corrections, masks, reference."""
