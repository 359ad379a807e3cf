"""Chains. Runs that are there have been written without one: what they hold by now is in no link."""

import sqlalchemy as sa
from alembic import op

from rlf.lineage.chain import LinkKind, link_hash

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Makes the table, with a first link of each run that says so."""
    links = op.create_table(
        "links",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("digests", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_links_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_links"),
    )
    first = {"number": 1, "kind": LinkKind.OLDER, "place": "{}", "digests": b""}
    first["sha256"] = link_hash("", 1, LinkKind.OLDER, "{}", b"")
    ids = op.get_bind().execute(sa.text("SELECT id FROM runs")).scalars()
    op.bulk_insert(links, [{"run_id": run_id, **first} for run_id in ids])
