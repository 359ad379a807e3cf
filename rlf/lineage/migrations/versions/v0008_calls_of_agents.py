"""An index of the calls in which an agent worked: looking for calls reads those and no others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INSIDE = sa.text('"inner" IS NOT NULL')  # a keyword of PostgreSQL


def upgrade() -> None:
    """Makes the index; no row changes."""
    op.create_index(
        "ix_tool_calls_inner", "tool_calls", ["trajectory_ref"], sqlite_where=_INSIDE, postgresql_where=_INSIDE
    )
