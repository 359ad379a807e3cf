"""The plans of runs: their values by key, where two differ, and what each value of a key came to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import select

from rlf.core.errors import RlfError
from rlf.core.registry import nearest
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, HIDDEN, SWEEP, Run
from rlf.runs.planning import leaves

_MAX_RUNS = 200
"""Newest runs of a spec that are compared."""
_MAX_PLANS = 1_000
"""Plans whose values are kept, by their text."""
_NOT_TRAINED = frozenset({EVALUATION, SWEEP})
_FREE = frozenset({"seed", "name"})
"""Keys that two runs may differ in, and still be taken for a pair of another key."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A key whose values differ; None where a plan has no such key."""

    key: str
    before: Any
    now: Any


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Runs with one value of a key."""

    value: Any
    runs: tuple[str, ...]
    """Ids, newest first."""
    success: float | None
    """Mean of their latest held-out success; None where none was evaluated."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two runs that differ in one key, seeds aside."""

    before: str
    """A run's id."""
    now: str
    value_before: Any
    value_now: Any
    success_before: float
    success_now: float


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Results of a spec's runs with other values of a key."""

    spec: str
    key: str
    values: tuple[KeyValue, ...]
    pairs: tuple[KeyPair, ...]
    """Runs that differ in nothing else; without any, what the values show may have other causes."""


def plan_leaves(run: Run) -> dict[str, Any]:
    """The values of a run's plan by key."""
    return leaves(run.record.plan.get("spec", {}))


@dataclass(frozen=True, slots=True)
class PlanValues:
    """The values of a plan by key, and each as text, for values are compared and some cannot be hashed."""

    values: dict[str, Any]
    texts: dict[str, str]
    items: frozenset[tuple[str, str]]
    """The texts of what is set."""


@lru_cache(_MAX_PLANS)
def _read_leaves(plan: str) -> PlanValues:
    values = leaves(json.loads(plan).get("spec", {}))
    texts = {key: repr(value) for key, value in values.items()}
    return PlanValues(values, texts, frozenset((key, texts[key]) for key, value in values.items() if value is not None))


def find_plan_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[PlanChange, ...]:
    """Keys whose values differ, in the order of the first plan."""
    keys = dict.fromkeys([*before, *now])
    return tuple(PlanChange(key, before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key))


def last_run(runs_folder: Path, spec: str) -> Run | None:
    """The newest run of a spec in a folder."""
    from rlf.runs.place import open_reader  # loads the database's library

    if not (runs_folder / "rlf.db").is_file():
        return None
    with open_reader(runs_folder) as reader:
        return next(iter(reader.list_runs(_find_runs(reader, spec, 1))), None)


def varied_keys(plans: Mapping[str, PlanValues]) -> dict[str, int]:
    """Keys that runs have several values of, with the number of these."""
    seen: dict[str, set[str]] = {}
    for plan in plans.values():
        for key, text in plan.texts.items():
            seen.setdefault(key, set()).add(text)
    return {key: len(values) for key, values in seen.items() if len(values) > 1}


def read_key(reader: Reader, plans: Mapping[str, PlanValues], spec: str, key: str) -> KeyRuns:
    """The results of a key's values. Raises RlfError if no run of the spec has the key."""
    known = list(dict.fromkeys(name for plan in plans.values() for name in plan.values))
    if key not in known:
        raise RlfError(f"key: got {key[:80]!r}; no run of {spec[:80]!r} has it{nearest(key, known) or '.'}")
    found = reader.latest_evaluations(list(plans))
    success = {run_id: one.metrics["success"] for run_id, one in found.items() if "success" in one.metrics}
    by_value: dict[str, list[str]] = {}
    for run_id, plan in plans.items():
        by_value.setdefault(plan.texts.get(key, ""), []).append(run_id)
    values = list[KeyValue]()
    for ids in by_value.values():
        known_success = [success[one] for one in ids if one in success]
        mean = fmean(known_success) if known_success else None
        values.append(KeyValue(plans[ids[0]].values.get(key), tuple(ids), mean))
    return KeyRuns(spec, key, tuple(values), tuple(_find_pairs(plans, success, key)))


def _find_pairs(plans: Mapping[str, PlanValues], success: Mapping[str, float], key: str) -> list[KeyPair]:
    """Each run beside the newest earlier one that differs in this key alone."""
    alike: dict[frozenset[tuple[str, str]], list[str]] = {}
    pairs = list[KeyPair]()
    for now in reversed([one for one in plans if one in success]):
        plan = plans[now]
        others = alike.setdefault(plan.items - {(free, plan.texts.get(free, "")) for free in (key, *_FREE)}, [])
        before = next((one for one in reversed(others) if plans[one].values.get(key) != plan.values.get(key)), None)
        if before is not None:
            values = plans[before].values.get(key), plan.values.get(key)
            pairs.append(KeyPair(before, now, *values, success[before], success[now]))
        others.append(now)
    return pairs[::-1]


def _find_runs(reader: Reader, spec: str, limit: int) -> list[str]:
    ids = [line.id for line in reader.run_lines(name=spec) if line.engine not in _NOT_TRAINED]
    return ids[:limit]


def read_plans(reader: Reader, spec: str) -> dict[str, PlanValues]:
    """The newest runs of a spec with their plans, newest first."""
    return parse_plans(reader, _find_runs(reader, spec, _MAX_RUNS))


def parse_plans(reader: Reader, ids: Sequence[str]) -> dict[str, PlanValues]:
    """The plans of runs by id, in their order."""
    columns = tables.runs.c
    query = select(columns.id, columns.plan).where(columns.status.not_in(HIDDEN), columns.id.in_(ids))
    with reader.store.read() as connection:
        texts = {row.id: row.plan for row in connection.execute(query)}
    return {run_id: _read_leaves(texts[run_id]) for run_id in ids if run_id in texts}
