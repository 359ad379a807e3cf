"""The tables of the lineage. Migrations bring those of earlier versions to them.

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


def _trajectory_column() -> Column[int]:
    owner = ForeignKey("trajectories.id", ondelete="CASCADE")
    return Column("trajectory_ref", Integer, owner, primary_key=True, autoincrement=False)


def _number_column() -> Column[int]:
    return Column("id", Integer, primary_key=True)


def _key_columns(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, primary_key=True, autoincrement=False) for name in names]


def _value_columns(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _optional_columns(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


FAILED = "coalesce(success, 0.0) < 1.0"
"""Of a trajectory that did not succeed, or could not be scored; in these very words, so that its index serves."""
CALL_FAILED = "outcome <> 'ok'"
CALL_OF_AGENT = '"inner" IS NOT NULL'
"""Of a call in which an agent worked, with calls of its own."""


def _index_where(condition: str) -> dict[str, Any]:
    """An index of the rows for which a condition holds; `rlf.lineage.migrate` copies it for PostgreSQL."""
    return {"sqlite_where": text(condition)}


runs = Table(
    "runs",
    metadata,
    *_key_columns(String, "id"),
    *_value_columns(Text, "name", "status"),
    *_value_columns(Float, "started"),
    *_optional_columns(Float, "finished"),
    *_value_columns(Text, "engine"),
    *_value_columns(BigInteger, "seed"),
    *_optional_columns(
        String, "parent_id", "parent_kind"
    ),  # no foreign key: the parent may be gone, or in another database
    *_value_columns(Text, "plan", "plan_hash", "code_version", "host", "packages", "command", "folder"),
    *_optional_columns(Text, "error"),
    *_value_columns(Integer, "last_step", "pid"),
    *_value_columns(Text, "node", "boot"),
    *_value_columns(BigInteger, "pid_ticks"),
    *_optional_columns(String, "patch_sha256"),
    *_optional_columns(Integer, "parent_step"),
    *_optional_columns(Text, "home", "cwd"),
    *_optional_columns(String, "owner"),
    *_optional_columns(Float, "heartbeat", "idle_s"),
    Index(None, "started"),
)

files = Table(
    "files",
    metadata,
    _run_key(),
    *_key_columns(String, "role", "path"),
    *_value_columns(Text, "sha256"),
    *_optional_columns(String, "text_sha256"),
)

steps = Table(
    "steps",
    metadata,
    _run_key(),
    *_key_columns(Integer, "step"),
    *_value_columns(Text, "metrics"),
    *_value_columns(Float, "finished"),
)

evaluations = Table(
    "evaluations",
    metadata,
    _run_key(),
    *_key_columns(Integer, "step"),
    *_key_columns(String, "mode"),
    *_value_columns(Text, "metrics"),
    *_value_columns(Float, "finished"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _run_key(),
    *_key_columns(Integer, "step"),
    *_value_columns(Text, "path", "sha256"),
    *_value_columns(Float, "saved"),
    *_optional_columns(Float, "dropped"),
)

events = Table(
    "events",
    metadata,
    _number_column(),
    _run_key(primary_key=False),
    *_value_columns(Float, "time"),
    *_value_columns(Text, "level", "text", "data"),
    Index(None, "run_id", "id"),
)

trajectories = Table(
    "trajectories",
    metadata,
    _number_column(),
    _run_key(primary_key=False),
    *_value_columns(String, "phase"),
    *_value_columns(Integer, "step", "k"),
    *_value_columns(Text, "trajectory_id", "task_id"),
    *_value_columns(Integer, "sample_index"),
    *_optional_columns(Text, "kind"),
    *_value_columns(Text, "stop"),
    *_optional_columns(Text, "error", "answer"),
    *_value_columns(Text, "gold"),
    *_optional_columns(Float, "reward", "success", "advantage"),
    *_value_columns(Integer, "num_tokens", "num_sampled", "num_turns", "num_calls"),
    *_value_columns(Float, "duration_s"),
    *_optional_columns(String, "task_sha256"),
    UniqueConstraint("run_id", "phase", "step", "k"),
    Index(None, "run_id", "reward"),
    Index(None, "run_id", "advantage"),
    Index(None, "run_id", "task_id", "step"),
    Index("ix_trajectories_failed", "run_id", "phase", "step", "k", **_index_where(FAILED)),
)

payloads = Table("payloads", metadata, _trajectory_column(), *_value_columns(LargeBinary, "data"))

tool_calls = Table(
    "tool_calls",
    metadata,
    _trajectory_column(),
    *_key_columns(Integer, "turn", "position"),
    *_value_columns(Text, "name", "arguments", "outcome", "text", "attempts"),
    *_value_columns(Float, "queue_s", "run_s"),
    *_value_columns(Boolean, "cached", "truncated"),
    *_value_columns(BigInteger, "size_bytes"),
    *_value_columns(Text, "isolation"),
    *_optional_columns(String, "text_sha256", "original_sha256"),
    *_optional_columns(Boolean, "coerced"),
    *_optional_columns(Text, "usage", "structured", "images", "inner"),
    Index("ix_tool_calls_failed", "name", "outcome", **_index_where(CALL_FAILED)),
    Index("ix_tool_calls_inner", "trajectory_ref", **_index_where(CALL_OF_AGENT)),
)

scores = Table(
    "scores",
    metadata,
    _trajectory_column(),
    *_key_columns(Integer, "position"),
    *_value_columns(Text, "term"),
    *_optional_columns(Float, "value"),
    *_value_columns(Float, "weight"),
    *_value_columns(Text, "reason"),
    *_value_columns(Float, "elapsed_s"),
    *_optional_columns(String, "state"),
    *_optional_columns(Text, "turn_values", "usage"),
    sqlite_with_rowid=False,
)

parse_failures = Table(
    "parse_failures",
    metadata,
    _trajectory_column(),
    *_key_columns(Integer, "turn", "position"),
    *_value_columns(Text, "kind", "message", "raw"),
    *_value_columns(Integer, "raw_start"),
    *_value_columns(Boolean, "structural"),
)

blobs = Table(
    "blobs",
    metadata,
    *_key_columns(String, "sha256"),
    *_value_columns(BigInteger, "size_bytes"),
    *_value_columns(LargeBinary, "data"),
)

tags = Table("tags", metadata, _run_key(), *_key_columns(String, "tag"))

notes = Table(
    "notes",
    metadata,
    _number_column(),
    _run_key(primary_key=False),
    *_value_columns(Float, "time"),
    *_value_columns(Text, "text"),
    Index(None, "run_id"),
)

exports = Table(
    "exports",
    metadata,
    _run_key(),
    *_key_columns(String, "path"),
    *_value_columns(Text, "kind"),
    *_value_columns(Integer, "step"),
    *_value_columns(Text, "sha256"),
    *_value_columns(Float, "made"),
)

collections = Table(
    "collections",
    metadata,
    _run_key(),
    *_key_columns(String, "phase"),
    *_key_columns(Integer, "step"),
    *_value_columns(Integer, "num_trajectories"),
    *_value_columns(BigInteger, "num_tokens", "num_sampled"),
    *_value_columns(Integer, "num_calls"),
)

tool_totals = Table(
    "tool_totals",
    metadata,
    _run_key(),
    *_key_columns(String, "phase"),
    *_key_columns(Integer, "step"),
    *_key_columns(String, "name", "outcome"),
    *_value_columns(Integer, "num_calls", "num_cached", "num_truncated"),
    *_value_columns(Float, "run_s", "max_run_s", "queue_s"),
)

changes = Table(
    "changes",
    metadata,
    _run_key(),
    *_key_columns(Integer, "step"),
    *_key_columns(String, "role", "path"),
    *_value_columns(Text, "old_sha256", "sha256"),
    *_optional_columns(String, "text_sha256"),
    *_value_columns(Float, "accepted"),
)

costs = Table(
    "costs", metadata, _run_key(), *_key_columns(String, "phase", "kind", "name"), *_value_columns(Text, "usage")
)

links = Table(
    "links",
    metadata,
    _run_key(),
    *_key_columns(Integer, "number"),
    *_value_columns(Text, "kind", "place"),
    *_value_columns(LargeBinary, "digests"),
    *_value_columns(String, "sha256"),
)

OF_TRAJECTORY = (payloads, tool_calls, scores, parse_failures)
"""What hangs on a trajectory."""
OF_RUN = (
    *(files, changes, tags, notes, exports, steps, evaluations),
    *(collections, tool_totals, costs, checkpoints, events, links),
)
"""What hangs on a run, but for its trajectories."""
