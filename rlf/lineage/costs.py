"""Costs of tools and judges of a run, by name: counted as it is recorded, and never taken back.

A step that is done again after a stop is paid for again, and a trajectory that was cut off or thinned has cost what it
has cost. So these sums stand by themselves; rows of steps come and go.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.records import INTERRUPTED
from rlf.types import Scored
from rlf.types.score import usage_by_name

OTHER = "other"
_UNITS = ("requests", "requests_without_usage", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd")
"""Of tools, those that say what was spent; a tool of an agent is counted in the agent's."""

Spent = Mapping[tuple[str, str], Mapping[str, float]]
"""Usage by kind and name."""


def spent_by(trajectories: Sequence[Scored], redactor: Redactor, *, is_played: bool = False) -> Spent:
    """Cost of trajectories. A result from a cache or a recording costs nothing.

    Args:
        is_played: whether all results of tools come from a recording.
    """
    sums: dict[tuple[str, str], Counter[str]] = {}
    for (kind, name), usage in usage_by_name(trajectories, is_played=is_played).items():
        if known := usage if kind == "judge" else {unit: usage[unit] for unit in _UNITS if unit in usage}:
            sums.setdefault((kind, redactor.text(name)), Counter()).update(known)
    return sums


def add_costs(connection: Connection, run_id: str, phase: str, spent: Spent) -> None:
    """Adds to what a run has spent in a phase."""
    table = tables.costs
    for (kind, name), usage in spent.items():
        key = {"run_id": run_id, "phase": phase, "kind": kind, "name": name}
        known = connection.execute(select(table.c.usage).filter_by(**key)).scalar()
        total = Counter(json.loads(known or "{}"))
        total.update(usage)
        connection.execute(delete(table).filter_by(**key))
        connection.execute(insert(table), key | {"usage": json.dumps(dict(total))})


def unrecorded_before(connection: Connection, run_id: str) -> dict[str, float]:
    """Costs of requests of a run's earlier processes that no trajectory has."""
    known = connection.execute(select(tables.costs.c.usage).filter_by(**_read_unrecorded(run_id))).scalar()
    return dict(json.loads(known or "{}"))


def keep_unrecorded(
    connection: Connection, run_id: str, before: Mapping[str, float], usage: Mapping[str, float]
) -> None:
    """Replaces the recorded cost of a run's requests that no trajectory has, over all its processes."""
    key, total = _read_unrecorded(run_id), Counter(dict(before))
    total.update(usage)
    connection.execute(delete(tables.costs).filter_by(**key))
    if total:
        connection.execute(insert(tables.costs), key | {"usage": json.dumps(dict(total))})


def _read_unrecorded(run_id: str) -> dict[str, str]:
    return {"run_id": run_id, "phase": INTERRUPTED, "kind": OTHER, "name": "in no trajectory"}
