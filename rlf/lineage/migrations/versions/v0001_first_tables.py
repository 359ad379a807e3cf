"""The first tables: runs and files, their progress, and trajectories with what belongs to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Builds every table, parents first."""
    _runs()
    _progress()
    _trajectories()
    _parts_of_trajectories()


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("parent_kind", sa.String(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("packages", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), nullable=False),
        sa.Column("pid_ticks", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_started", "runs", ["started"], unique=False)
    op.create_table(
        "files",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_files_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "role", "path", name="pk_files"),
    )


def _progress() -> None:
    op.create_table(
        "steps",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_steps_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", name="pk_steps"),
    )
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_evaluations_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", "mode", name="pk_evaluations"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("saved", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_checkpoints_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", name="pk_checkpoints"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_run_id_id", "events", ["run_id", "id"], unique=False)


def _trajectories() -> None:
    op.create_table(
        "trajectories",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("sample_index", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("stop", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("gold", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("success", sa.Float(), nullable=True),
        sa.Column("advantage", sa.Float(), nullable=True),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("num_sampled", sa.Integer(), nullable=False),
        sa.Column("num_turns", sa.Integer(), nullable=False),
        sa.Column("num_calls", sa.Integer(), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_trajectories_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_trajectories"),
        sa.UniqueConstraint("run_id", "phase", "step", "k", name="uq_trajectories_run_id_phase_step_k"),
    )
    op.create_table(
        "payloads",
        sa.Column("trajectory_ref", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory_ref"], ["trajectories.id"], name="fk_payloads_trajectory_ref", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trajectory_ref", name="pk_payloads"),
    )


def _parts_of_trajectories() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("trajectory_ref", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.Column("queue_s", sa.Float(), nullable=False),
        sa.Column("run_s", sa.Float(), nullable=False),
        sa.Column("cached", sa.Boolean(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("isolation", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory_ref"], ["trajectories.id"], name="fk_tool_calls_trajectory_ref", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trajectory_ref", "turn", "position", name="pk_tool_calls"),
    )
    op.create_table(
        "scores",
        sa.Column("trajectory_ref", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("elapsed_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory_ref"], ["trajectories.id"], name="fk_scores_trajectory_ref", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trajectory_ref", "position", name="pk_scores"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "parse_failures",
        sa.Column("trajectory_ref", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("raw_start", sa.Integer(), nullable=False),
        sa.Column("structural", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory_ref"], ["trajectories.id"], name="fk_parse_failures_trajectory_ref", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trajectory_ref", "turn", "position", name="pk_parse_failures"),
    )
