"""Differences between arms by cause, each with every arm's value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlf.lineage.records import Change, RunRecord
from rlf.reports.compare.arms import Arm

_LABELS = ("name", "report_to", "lineage")
"""Keys of a spec that name and describe a run and do not change what it does."""
_MACHINE = ("name", "system", "python", "cpus", "device", "threads")
_OF_THE_MODEL = {"tokenizer": "tokenizer of ", "template": "chat template of "}
_NAMED_LISTS = ("tools", "rewards")


class Cause(StrEnum):
    """Where a difference lies."""

    PLAN = "plan"
    """A value of the spec."""
    FILE = "file"
    """The content of a tool's, reward's or template's file."""
    DATA = "data"
    """The content of a dataset."""
    MODEL = "model"
    """The content of the starting model, its tokenizer and its chat template."""
    CODE = "code"
    """rlf's own version."""
    CHANGE = "change"
    """An input that was accepted as changed when a run was resumed."""
    PACKAGE = "package"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in all arms."""

    cause: Cause
    what: str
    """Dotted key, file, package or fact."""
    values: tuple[str | None, ...]
    """By arm; None where an arm has no such thing."""


def differences(arms: Sequence[Arm]) -> list[Difference]:
    """Everything that differs between the first runs of the arms. Seeds count where each arm is one run."""
    members = [arm.members[0] for arm in arms]
    with_seed = all(len(arm.members) == 1 for arm in arms)
    facts = [
        dict([*_list_facts(member.run.record, with_seed=with_seed), *_list_changes(member.changes)])
        for member in members
    ]
    keys = list(dict.fromkeys(key for found in facts for key in found))
    rows = [(key, tuple(found.get(key) for found in facts)) for key in keys]
    return [Difference(cause, what, values) for (cause, what), values in rows if len(set(values)) > 1]


def _list_facts(record: RunRecord, *, with_seed: bool) -> Iterator[tuple[tuple[Cause, str], str]]:
    spec = {key: value for key, value in record.plan.get("spec", {}).items() if key not in _LABELS}
    if not with_seed:
        spec.pop("seed", None)
    for key, value in flatten(spec):
        yield (Cause.PLAN, key), value
    causes = {"data": Cause.DATA} | dict.fromkeys(("model", *_OF_THE_MODEL), Cause.MODEL)
    for file in record.files:
        if file.role != "spec":  # what its text says is in the plan
            what = f"{_OF_THE_MODEL.get(file.role, '')}{file.path}"
            yield (causes.get(file.role, Cause.FILE), what), file.sha256[:12]
    yield (Cause.CODE, "rlf"), record.code_version
    for name, version in record.packages.items():
        if name != "rlf":
            yield (Cause.PACKAGE, name), version
    for name in _MACHINE:
        yield (Cause.MACHINE, name), str(record.host.get(name))


def _list_changes(changes: Sequence[Change]) -> Iterator[tuple[tuple[Cause, str], str]]:
    for change in changes:
        yield (Cause.CHANGE, f"{change.role} {change.path} after step {change.step}"), change.sha256[:12] or "absent"


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a spec by dotted key, as JSON; tools and reward terms are named, so that their order does not count."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from flatten(
                _name_items(child) if key in _NAMED_LISTS else child, f"{path}.{key}" if path else str(key)
            )
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _name_items(items: Any) -> Any:
    if isinstance(items, list) and items and all(isinstance(item, Mapping) and "name" in item for item in items):
        return {item["name"]: {key: value for key, value in item.items() if key != "name"} for item in items}
    return items
