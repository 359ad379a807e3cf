"""Adds the usage of judges for each score."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the column; it is unknown for existing scores."""
    op.add_column("scores", sa.Column("usage", sa.Text(), nullable=True))
