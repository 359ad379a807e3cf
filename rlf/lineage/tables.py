"""The tables of the lineage. Migrations bring older ones to them; a test holds the two equal.

A trajectory hangs on its run by (run_id, phase, step, k), so that recording a step again replaces it. What belongs to
a trajectory goes with it (ON DELETE CASCADE). Payloads stand apart so that scanning trajectories reads no tokens, and
sums over them are kept as they are written, so that a report scans none. Long contents are blobs that rows name by
sha256, without a foreign key: many rows share one, and `rlf runs gc` drops those that none names any more.
JSON is kept as text: the same bytes on every database. Paths of what lies below a SQLite file's folder start at that
folder, so that the folder can be moved or copied. Tables and columns stand in the order in which databases have them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _run_key(*, primary_key: bool = True) -> Column[str]:
    return Column("run_id", String, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary_key, nullable=False)


def _trajectory_key() -> Column[int]:
    owner = ForeignKey("trajectories.id", ondelete="CASCADE")
    return Column("trajectory_ref", Integer, owner, primary_key=True, autoincrement=False)


def _number() -> Column[int]:
    return Column("id", Integer, primary_key=True)


def _keys(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, primary_key=True, autoincrement=False) for name in names]


def _values(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


_LATE = {"is_late": True}
"""Of an index that came with a later revision: `rlf.lineage.migrate` makes it behind all tables."""
FAILED = "coalesce(success, 0.0) < 1.0"
"""Of a trajectory that did not succeed, or could not be scored; in these very words, so that its index serves."""
CALL_FAILED = "outcome <> 'ok'"
CALL_OF_AGENT = "inner IS NOT NULL"
"""Of a call in which an agent worked, with calls of its own."""


def _where(condition: str) -> dict[str, Any]:
    """An index of the rows for which a condition holds."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


runs = Table(
    "runs",
    metadata,
    *_keys(String, "id"),
    *_values(Text, "name", "status"),
    *_values(Float, "started"),
    *_optional(Float, "finished"),
    *_values(Text, "engine"),
    *_values(BigInteger, "seed"),
    *_optional(String, "parent_id", "parent_kind"),  # no foreign key: the parent may be gone, or in another database
    *_values(Text, "plan", "plan_hash", "code_version", "host", "packages", "command", "folder"),
    *_optional(Text, "error"),
    *_values(Integer, "last_step", "pid"),
    *_values(Text, "node", "boot"),
    *_values(BigInteger, "pid_ticks"),
    *_optional(String, "patch_sha256"),
    *_optional(Integer, "parent_step"),
    *_optional(Text, "home", "cwd"),
    *_optional(String, "owner"),
    *_optional(Float, "heartbeat", "idle_s"),
    Index(None, "started"),
)

files = Table(
    "files",
    metadata,
    _run_key(),
    *_keys(String, "role", "path"),
    *_values(Text, "sha256"),
    *_optional(String, "text_sha256"),
)

steps = Table(
    "steps", metadata, _run_key(), *_keys(Integer, "step"), *_values(Text, "metrics"), *_values(Float, "finished")
)

evaluations = Table(
    "evaluations",
    metadata,
    _run_key(),
    *_keys(Integer, "step"),
    *_keys(String, "mode"),
    *_values(Text, "metrics"),
    *_values(Float, "finished"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _run_key(),
    *_keys(Integer, "step"),
    *_values(Text, "path", "sha256"),
    *_values(Float, "saved"),
    *_optional(Float, "dropped"),
)

events = Table(
    "events",
    metadata,
    _number(),
    _run_key(primary_key=False),
    *_values(Float, "time"),
    *_values(Text, "level", "text", "data"),
    Index(None, "run_id", "id"),
)

trajectories = Table(
    "trajectories",
    metadata,
    _number(),
    _run_key(primary_key=False),
    *_values(String, "phase"),
    *_values(Integer, "step", "k"),
    *_values(Text, "trajectory_id", "task_id"),
    *_values(Integer, "sample_index"),
    *_optional(Text, "kind"),
    *_values(Text, "stop"),
    *_optional(Text, "error", "answer"),
    *_values(Text, "gold"),
    *_optional(Float, "reward", "success", "advantage"),
    *_values(Integer, "num_tokens", "num_sampled", "num_turns", "num_calls"),
    *_values(Float, "duration_s"),
    *_optional(String, "task_sha256"),
    UniqueConstraint("run_id", "phase", "step", "k"),
    Index(None, "run_id", "reward", info=_LATE),
    Index(None, "run_id", "advantage", info=_LATE),
    Index(None, "run_id", "task_id", "step", info=_LATE),
    Index("ix_trajectories_failed", "run_id", "phase", "step", "k", info=_LATE, **_where(FAILED)),
)

payloads = Table("payloads", metadata, _trajectory_key(), *_values(LargeBinary, "data"))

tool_calls = Table(
    "tool_calls",
    metadata,
    _trajectory_key(),
    *_keys(Integer, "turn", "position"),
    *_values(Text, "name", "arguments", "outcome", "text", "attempts"),
    *_values(Float, "queue_s", "run_s"),
    *_values(Boolean, "cached", "truncated"),
    *_values(BigInteger, "size_bytes"),
    *_values(Text, "isolation"),
    *_optional(String, "text_sha256", "original_sha256"),
    *_optional(Boolean, "coerced"),
    *_optional(Text, "usage", "structured", "images", "inner"),
    Index("ix_tool_calls_failed", "name", "outcome", info=_LATE, **_where(CALL_FAILED)),
    Index("ix_tool_calls_inner", "trajectory_ref", info=_LATE, **_where(CALL_OF_AGENT)),
)

scores = Table(
    "scores",
    metadata,
    _trajectory_key(),
    *_keys(Integer, "position"),
    *_values(Text, "term"),
    *_optional(Float, "value"),
    *_values(Float, "weight"),
    *_values(Text, "reason"),
    *_values(Float, "elapsed_s"),
    *_optional(String, "state"),
    *_optional(Text, "turn_values", "usage"),
    sqlite_with_rowid=False,
)

parse_failures = Table(
    "parse_failures",
    metadata,
    _trajectory_key(),
    *_keys(Integer, "turn", "position"),
    *_values(Text, "kind", "message", "raw"),
    *_values(Integer, "raw_start"),
    *_values(Boolean, "structural"),
)

blobs = Table(
    "blobs", metadata, *_keys(String, "sha256"), *_values(BigInteger, "size_bytes"), *_values(LargeBinary, "data")
)

tags = Table("tags", metadata, _run_key(), *_keys(String, "tag"))

notes = Table(
    "notes",
    metadata,
    _number(),
    _run_key(primary_key=False),
    *_values(Float, "time"),
    *_values(Text, "text"),
    Index(None, "run_id"),
)

exports = Table(
    "exports",
    metadata,
    _run_key(),
    *_keys(String, "path"),
    *_values(Text, "kind"),
    *_values(Integer, "step"),
    *_values(Text, "sha256"),
    *_values(Float, "made"),
)

collections = Table(
    "collections",
    metadata,
    _run_key(),
    *_keys(String, "phase"),
    *_keys(Integer, "step"),
    *_values(Integer, "num_trajectories"),
    *_values(BigInteger, "num_tokens", "num_sampled"),
    *_values(Integer, "num_calls"),
)

tool_totals = Table(
    "tool_totals",
    metadata,
    _run_key(),
    *_keys(String, "phase"),
    *_keys(Integer, "step"),
    *_keys(String, "name", "outcome"),
    *_values(Integer, "num_calls", "num_cached", "num_truncated"),
    *_values(Float, "run_s", "max_run_s", "queue_s"),
)

changes = Table(
    "changes",
    metadata,
    _run_key(),
    *_keys(Integer, "step"),
    *_keys(String, "role", "path"),
    *_values(Text, "old_sha256", "sha256"),
    *_optional(String, "text_sha256"),
    *_values(Float, "accepted"),
)

costs = Table("costs", metadata, _run_key(), *_keys(String, "phase", "kind", "name"), *_values(Text, "usage"))

OF_TRAJECTORY = (payloads, tool_calls, scores, parse_failures)
"""What hangs on a trajectory."""
OF_RUN = (
    *(files, changes, tags, notes, exports, steps, evaluations),
    *(collections, tool_totals, costs, checkpoints, events),
)
"""What hangs on a run, but for its trajectories."""
