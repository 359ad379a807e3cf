"""The tables of the lineage. Migrations build them; a test holds the two equal.

A trajectory hangs on its run by (run_id, phase, step, k), so that recording a step again replaces it. What belongs to
a trajectory goes with it (ON DELETE CASCADE). Payloads stand apart so that scanning trajectories reads no tokens, and
sums over them are kept as they are written, so that a report scans none. Long contents are blobs that rows name by
sha256, without a foreign key: many rows share one, and `rlf runs gc` drops those that none names any more.
JSON is kept as text: the same bytes on every database. Paths of what lies below a SQLite file's folder start at that
folder, so that the folder can be moved or copied.
"""

from __future__ import annotations

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


def _key(name: str) -> Column[int]:
    return Column(name, Integer, primary_key=True, autoincrement=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _number(name: str) -> Column[float]:
    return Column(name, Float, nullable=False)


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    _text("name"),
    _text("status"),
    _number("started"),
    Column("finished", Float),
    _text("engine"),
    Column("seed", BigInteger, nullable=False),
    Column("parent_id", String),  # No foreign key: the parent may have been removed or live in another database.
    Column("parent_kind", String),
    Column("parent_step", Integer),
    _text("plan"),
    _text("plan_hash"),
    _text("code_version"),
    _text("host"),
    _text("packages"),
    _text("command"),
    _text("folder"),
    Column("home", Text),
    Column("cwd", Text),
    Column("error", Text),
    Column("patch_sha256", String),
    _count("last_step"),
    _count("pid"),
    _text("node"),
    _text("boot"),
    Column("pid_ticks", BigInteger, nullable=False),
    Column("owner", String),
    Column("heartbeat", Float),
    Column("idle_s", Float),
    Index(None, "started"),
)

files = Table(
    "files",
    metadata,
    _run_key(),
    Column("role", String, primary_key=True),
    Column("path", String, primary_key=True),
    _text("sha256"),
    Column("text_sha256", String),
)

changes = Table(
    "changes",
    metadata,
    _run_key(),
    _key("step"),
    Column("role", String, primary_key=True),
    Column("path", String, primary_key=True),
    _text("old_sha256"),
    _text("sha256"),
    Column("text_sha256", String),
    _number("accepted"),
)

tags = Table("tags", metadata, _run_key(), Column("tag", String, primary_key=True))

notes = Table(
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_key(primary_key=False),
    _number("time"),
    _text("text"),
    Index(None, "run_id"),
)

exports = Table(
    "exports",
    metadata,
    _run_key(),
    Column("path", String, primary_key=True),
    _text("kind"),
    _count("step"),
    _text("sha256"),
    _number("made"),
)

steps = Table("steps", metadata, _run_key(), _key("step"), _text("metrics"), _number("finished"))

evaluations = Table(
    "evaluations",
    metadata,
    _run_key(),
    _key("step"),
    Column("mode", String, primary_key=True),
    _text("metrics"),
    _number("finished"),
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_key(primary_key=False),
    Column("phase", String, nullable=False),
    _count("step"),
    _count("k"),
    _text("trajectory_id"),
    _text("task_id"),
    _count("sample_index"),
    Column("kind", Text),
    _text("stop"),
    Column("error", Text),
    Column("answer", Text),
    _text("gold"),
    Column("reward", Float),
    Column("success", Float),
    Column("advantage", Float),
    _count("num_tokens"),
    _count("num_sampled"),
    _count("num_turns"),
    _count("num_calls"),
    _number("duration_s"),
    Column("task_sha256", String),
    UniqueConstraint("run_id", "phase", "step", "k"),
)

collections = Table(
    "collections",
    metadata,
    _run_key(),
    Column("phase", String, primary_key=True),
    _key("step"),
    _count("num_trajectories"),
    Column("num_tokens", BigInteger, nullable=False),
    Column("num_sampled", BigInteger, nullable=False),
    _count("num_calls"),
)

tool_totals = Table(
    "tool_totals",
    metadata,
    _run_key(),
    Column("phase", String, primary_key=True),
    _key("step"),
    Column("name", String, primary_key=True),
    Column("outcome", String, primary_key=True),
    _count("num_calls"),
    _count("num_cached"),
    _count("num_truncated"),
    _number("run_s"),
    _number("max_run_s"),
    _number("queue_s"),
)

costs = Table(
    "costs",
    metadata,
    _run_key(),
    Column("phase", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    _text("usage"),
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", String, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

payloads = Table("payloads", metadata, _trajectory_key(), Column("data", LargeBinary, nullable=False))

tool_calls = Table(
    "tool_calls",
    metadata,
    _trajectory_key(),
    _key("turn"),
    _key("position"),
    _text("name"),
    _text("arguments"),
    _text("outcome"),
    _text("text"),
    _text("attempts"),
    _number("queue_s"),
    _number("run_s"),
    Column("cached", Boolean, nullable=False),
    Column("truncated", Boolean, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    _text("isolation"),
    Column("text_sha256", String),
    Column("original_sha256", String),
    Column("coerced", Boolean),
    Column("usage", Text),
    Column("structured", Text),
    Column("images", Text),
    Column("inner", Text),
)

scores = Table(
    "scores",
    metadata,
    _trajectory_key(),
    _key("position"),
    _text("term"),
    Column("value", Float),
    _number("weight"),
    _text("reason"),
    _number("elapsed_s"),
    Column("state", String),
    Column("turn_values", Text),
    Column("usage", Text),
    sqlite_with_rowid=False,
)

parse_failures = Table(
    "parse_failures",
    metadata,
    _trajectory_key(),
    _key("turn"),
    _key("position"),
    _text("kind"),
    _text("message"),
    _text("raw"),
    _count("raw_start"),
    Column("structural", Boolean, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _run_key(),
    _key("step"),
    _text("path"),
    _text("sha256"),
    _number("saved"),
    Column("dropped", Float),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_key(primary_key=False),
    _number("time"),
    _text("level"),
    _text("text"),
    _text("data"),
    Index(None, "run_id", "id"),
)
