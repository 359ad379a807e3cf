"""Kinds of reward terms, and the terms of a file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlf.api.rewards.scoring import RewardFile
from rlf.core.errors import RlfError
from rlf.rewards import RULES, TERM_KINDS, Rule, Term
from rlf.spec.meaning.facts import KeyFact, key_facts


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """A declared term. Its other keys may hold credentials."""

    file: Path
    name: str
    kind: str
    """Its kind; of a rule, the rule."""
    weight: str
    gate: str
    required: bool | float
    stage: str
    num_tests: int
    text: str = field(metadata={"json": None})
    """What it is, in a sentence."""


@dataclass(frozen=True, slots=True)
class RewardKind:
    """A kind, or a rule."""

    name: str
    text: str
    is_rule: bool = field(metadata={"json": None})


@dataclass(frozen=True, slots=True)
class ShownReward:
    """A kind or a rule with its own keys."""

    name: str
    text: str
    keys: tuple[KeyFact, ...]


def describe_terms(files: Sequence[RewardFile]) -> list[RewardTerm]:
    """The terms of files."""
    return [_describe_term(file.file, term) for file in files for term in file.terms]


def list_kinds() -> list[RewardKind]:
    """Every kind but `rule`, then every rule."""
    return [
        RewardKind(name, _first_line(model), "rule" in model.model_fields) for name, model in _find_models().items()
    ]


def describe_kind(name: str) -> ShownReward:
    """Describes a kind or a rule, and its keys. Raises RlfError where there is none."""
    models = _find_models()
    if name not in models:
        raise RlfError(f"no kind and no rule {name!r} (known: {', '.join(models)}). Name one of these.")
    model = models[name]
    base = Rule if issubclass(model, Rule) else Term
    facts = [fact for fact in key_facts(model) if fact.name not in base.model_fields]
    return ShownReward(name, inspect.cleandoc(model.__doc__ or ""), tuple(facts))


def _find_models() -> dict[str, type[Term]]:
    kinds = {name: TERM_KINDS.get(name) for name in TERM_KINDS.names() if name != "rule"}
    return {**kinds, **{name: RULES.get(name) for name in RULES.names()}}


def _describe_term(file: Path, term: Term) -> RewardTerm:
    kind = str(getattr(term, "rule", term.kind))
    facts = (kind, _show_weight(term), _show_gate(term), term.required, term.stage, len(term.tests))
    return RewardTerm(file, term.name, *facts, _first_line(type(term)))


def _show_weight(term: Term) -> str:
    first, later = term.weight_at(1), term.weight_at(10**9)
    return f"{first:g}" if first == later else f"{first:g} to {later:g}"


def _show_gate(term: Term) -> str:
    required = [] if term.required is False else ["required"]
    gate = [] if term.when is None else [f"when {term.when.term}"]
    return ", ".join([*gate, *required])


def _first_line(model: type[Term]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]
