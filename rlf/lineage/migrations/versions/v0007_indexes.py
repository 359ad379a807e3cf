"""Indexes for pages: the worst and the best of a run, one question through it, what failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_FAILED = "coalesce(success, 0.0) < 1.0"
_CALL_FAILED = "outcome <> 'ok'"


def upgrade() -> None:
    """Makes the indexes; no row changes."""
    for columns in (["run_id", "reward"], ["run_id", "advantage"], ["run_id", "task_id", "step"]):
        op.create_index(f"ix_trajectories_{'_'.join(columns)}", "trajectories", columns)
    _create_index("ix_trajectories_failed", "trajectories", ["run_id", "phase", "step", "k"], _FAILED)
    _create_index("ix_tool_calls_failed", "tool_calls", ["name", "outcome"], _CALL_FAILED)


def _create_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
