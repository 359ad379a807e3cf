"""Who owns a running run, its last heartbeat, and how long a resumed run lay dead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds the columns. A run that says running keeps no owner; its last step stands for a heartbeat."""
    op.add_column("runs", sa.Column("owner", sa.String(), nullable=True))
    op.add_column("runs", sa.Column("heartbeat", sa.Float(), nullable=True))
    op.add_column("runs", sa.Column("idle_s", sa.Float(), nullable=True))
    op.execute(
        "UPDATE runs SET heartbeat = (SELECT max(finished) FROM steps WHERE steps.run_id = runs.id) "
        "WHERE status = 'running'"
    )
