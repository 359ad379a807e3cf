"""Keys and values of overrides, for shells and editors to complete. Loads no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rlf.algo import ESTIMATORS, Estimator
from rlf.chat import FORMATS
from rlf.spec.aliases import foreign_names
from rlf.spec.engines import ENGINES, EngineSpec
from rlf.spec.facts import key_facts, submodels
from rlf.spec.models import RunSpec
from rlf.trackers import TRACKERS


def override_keys() -> list[str]:
    """Dotted keys of a spec, kinds' own left out."""
    return list(_iterate_keys(RunSpec, ""))


def find_keys(word: str) -> list[str]:
    """The whole keys that a word alone may stand for: the shortest that end with it, else those that other libraries
    call so."""
    found = [key for key in override_keys() if key.rpartition(".")[2] == word]
    depth = min((key.count(".") for key in found), default=0)
    return [key for key in found if key.count(".") == depth] or foreign_names(word)


def _iterate_keys(model: Any, prefix: str) -> Iterator[str]:
    below = {name: found for name, found in submodels(model) if found.model_fields}
    lists = {"tools", "rewards", "report_to"}
    for name, info in model.model_fields.items():
        key = info.alias or name
        if key in below and key not in lists and below[key] not in (Estimator, EngineSpec):
            yield from _iterate_keys(below[key], f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def override_values(incomplete: str) -> list[str]:
    """Values of an override that has a few: names of kinds and of choices, `true` and `false`."""
    text, _, begun = incomplete.partition("=")
    *path, last = text.lstrip("+~").split(".")
    model: Any = RunSpec
    for name in path:
        model = None if model is None else dict(submodels(model)).get(name)
    if model is None:
        return []
    fact = next((fact for fact in key_facts(model) if fact.name == last), None)
    registry = _REGISTRIES.get(".".join([*path, last]))
    named = [] if registry is None else registry.names()
    known = named or ([] if fact is None else re.findall(r"`(\w+)`", fact.type))
    known = ["auto", *known] if registry is FORMATS else known
    return [f"{text}={value}" for value in known if value.startswith(begun)]


_REGISTRIES: dict[str, Any] = {
    "train.algorithm": ESTIMATORS,
    "engine": ENGINES,
    "chat.format": FORMATS,
    "report_to": TRACKERS,
}
