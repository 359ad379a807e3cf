"""Adds the costs of calls and judges, by name, and the turns inside of agents' calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_UNITS = ("prompt_tokens", "completion_tokens", "cost_usd")


def upgrade() -> None:
    """Adds the table and the column. What is known of calls and judges is summed up: those of failed calls is not."""
    op.add_column("tool_calls", sa.Column("inner", sa.Text(), nullable=True))
    op.create_table(
        "costs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_costs_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "phase", "kind", "name", name="pk_costs"),
    )
    sums: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for *key, usage in _known_usages(op.get_bind()):
        total = sums.setdefault((key[0], key[1], key[2], key[3]), {})
        for unit, number in usage.items():
            total[unit] = total.get(unit, 0.0) + number
    for (run_id, phase, kind, name), total in sums.items():
        row = {"run_id": run_id, "phase": phase, "kind": kind, "name": name, "usage": json.dumps(total)}
        op.execute(sa.text("INSERT INTO costs VALUES (:run_id, :phase, :kind, :name, :usage)").bindparams(**row))


def _known_usages(connection: sa.Connection) -> Iterator[tuple[str, str, str, str, dict[str, float]]]:
    """Run, phase, kind, name and usage of each call and each score that has some."""
    of = "FROM {} c JOIN trajectories t ON t.id = c.trajectory_ref WHERE c.usage IS NOT NULL"
    calls = "SELECT t.run_id, t.phase, c.name, c.usage, c.cached " + of.format("tool_calls")
    for run_id, phase, name, usage, cached in connection.execute(sa.text(calls)):
        found = {} if cached else _pick_units(json.loads(usage), _UNITS)
        if found:
            yield run_id, phase, "tool", name, found
    scores = "SELECT t.run_id, t.phase, c.term, c.usage " + of.format("scores")
    for run_id, phase, term, usage in connection.execute(sa.text(scores)):
        found = _pick_units(json.loads(usage), ("num_tokens", "cost_usd"))
        if found:
            yield run_id, phase, "judge", term, found


def _pick_units(usage: dict[str, Any], units: tuple[str, ...]) -> dict[str, float]:
    return {unit: float(usage[unit]) for unit in units if usage.get(unit)}
