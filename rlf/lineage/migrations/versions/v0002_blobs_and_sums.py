"""Blobs by content, sums by step, tags, notes and exports; more of what calls and scores say."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds tables and columns, and sums up what is there."""
    _add_columns()
    _create_blobs()
    _create_tags_and_notes()
    _create_sums()
    _fill_sums()


def _add_columns() -> None:
    added = {
        "runs": [sa.Column("patch_sha256", sa.String(), nullable=True)],
        "trajectories": [sa.Column("task_sha256", sa.String(), nullable=True)],
        "tool_calls": [
            sa.Column("text_sha256", sa.String(), nullable=True),
            sa.Column("original_sha256", sa.String(), nullable=True),
            sa.Column("coerced", sa.Boolean(), nullable=True),
            sa.Column("usage", sa.Text(), nullable=True),
            sa.Column("structured", sa.Text(), nullable=True),
            sa.Column("images", sa.Text(), nullable=True),
        ],
        "scores": [
            sa.Column("state", sa.String(), nullable=True),
            sa.Column("turn_values", sa.Text(), nullable=True),
        ],
    }
    for table, columns in added.items():
        for column in columns:
            op.add_column(table, column)


def _run_id(table: str) -> list[sa.schema.SchemaItem]:
    key = sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=f"fk_{table}_run_id", ondelete="CASCADE")
    return [sa.Column("run_id", sa.String(), nullable=False), key]


def _place_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
    ]


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_blobs"),
    )


def _create_tags_and_notes() -> None:
    op.create_table(
        "tags",
        *_run_id("tags"),
        sa.Column("tag", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "tag", name="pk_tags"),
    )
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        *_run_id("notes"),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notes"),
    )
    op.create_index("ix_notes_run_id", "notes", ["run_id"], unique=False)
    op.create_table(
        "exports",
        *_run_id("exports"),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("made", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "path", name="pk_exports"),
    )


def _create_sums() -> None:
    op.create_table(
        "collections",
        *_run_id("collections"),
        *_place_columns(),
        sa.Column("num_trajectories", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.BigInteger(), nullable=False),
        sa.Column("num_sampled", sa.BigInteger(), nullable=False),
        sa.Column("num_calls", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "phase", "step", name="pk_collections"),
    )
    op.create_table(
        "tool_totals",
        *_run_id("tool_totals"),
        *_place_columns(),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("num_calls", sa.Integer(), nullable=False),
        sa.Column("num_cached", sa.Integer(), nullable=False),
        sa.Column("num_truncated", sa.Integer(), nullable=False),
        sa.Column("run_s", sa.Float(), nullable=False),
        sa.Column("max_run_s", sa.Float(), nullable=False),
        sa.Column("queue_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "phase", "step", "name", "outcome", name="pk_tool_totals"),
    )


def _fill_sums() -> None:
    op.execute(
        "INSERT INTO collections SELECT run_id, phase, step, count(*), sum(num_tokens), sum(num_sampled), "
        "sum(num_calls) FROM trajectories GROUP BY run_id, phase, step"
    )
    op.execute(
        "INSERT INTO tool_totals SELECT t.run_id, t.phase, t.step, c.name, c.outcome, count(*), "
        "sum(CASE WHEN c.cached THEN 1 ELSE 0 END), sum(CASE WHEN c.truncated THEN 1 ELSE 0 END), "
        "sum(c.run_s), max(c.run_s), sum(c.queue_s) "
        "FROM tool_calls c JOIN trajectories t ON t.id = c.trajectory_ref "
        "GROUP BY t.run_id, t.phase, t.step, c.name, c.outcome"
    )
