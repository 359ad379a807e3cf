"""Paths that start at the database's folder, texts of source files, accepted changes, dropped checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds columns and a table; rewrites the paths of runs and checkpoints that lie below the database's folder."""
    _add_columns()
    _create_changes()
    _rewrite_paths()
    _mark_dropped()


def _add_columns() -> None:
    added: dict[str, list[sa.Column[Any]]] = {
        "runs": [
            sa.Column("parent_step", sa.Integer(), nullable=True),
            sa.Column("home", sa.Text(), nullable=True),
            sa.Column("cwd", sa.Text(), nullable=True),
        ],
        "files": [sa.Column("text_sha256", sa.String(), nullable=True)],
        "checkpoints": [sa.Column("dropped", sa.Float(), nullable=True)],
    }
    for table, columns in added.items():
        for column in columns:
            op.add_column(table, column)


def _create_changes() -> None:
    op.create_table(
        "changes",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("old_sha256", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("text_sha256", sa.String(), nullable=True),
        sa.Column("accepted", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_changes_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "step", "role", "path", name="pk_changes"),
    )


def _rewrite_paths() -> None:
    connection = op.get_bind()
    base = _find_base(connection)
    for run_id, folder in connection.execute(sa.text("SELECT id, folder FROM runs")).all():
        if Path(folder).is_absolute():
            _rewrite_run(connection, run_id, Path(folder), base)


def _rewrite_run(connection: sa.Connection, run_id: str, folder: Path, base: Path | None) -> None:
    """One run: its checkpoints lay in its folder, named from the folder that the run was started in."""
    now = _from_base(folder, base)
    query = sa.text("SELECT step, path FROM checkpoints WHERE run_id = :id")
    cwd = None
    for step, path in connection.execute(query, {"id": run_id}).all():
        below, own = _split_stored_path(Path(path), folder, run_id)
        if below is not None:
            new = {"id": run_id, "step": step, "path": f"{now}/{below}"}
            connection.execute(sa.text("UPDATE checkpoints SET path = :path WHERE run_id = :id AND step = :step"), new)
        cwd = cwd or own
    changed = {"id": run_id, "folder": now, "home": str(folder.parent), "cwd": cwd}
    connection.execute(sa.text("UPDATE runs SET folder = :folder, home = :home, cwd = :cwd WHERE id = :id"), changed)


def _split_stored_path(path: Path, folder: Path, run_id: str) -> tuple[str | None, str | None]:
    """A checkpoint's path from the run's folder on, and the folder that a relative one started at."""
    if path.is_absolute():
        return (path.relative_to(folder).as_posix(), None) if path.is_relative_to(folder) else (None, None)
    if run_id not in path.parts:
        return None, None
    place = path.parts.index(run_id)
    above, below = path.parts[: place + 1], path.parts[place + 1 :]
    started = str(Path(*folder.parts[: -len(above)])) if folder.parts[-len(above) :] == above else None
    return "/".join(below), started


def _find_base(connection: sa.Connection) -> Path | None:
    if connection.dialect.name != "sqlite":
        return None
    file = next(row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[1] == "main")
    return Path(file).parent.resolve()


def _from_base(folder: Path, base: Path | None) -> str:
    if base is None:
        return str(folder)
    if folder.is_relative_to(base):
        return folder.relative_to(base).as_posix()
    moved = (base / folder.name).is_dir() or not folder.is_dir()
    return folder.name if moved else str(folder)


def _mark_dropped() -> None:
    """Marks the checkpoints that were deleted as newer ones came: all but the newest `checkpoint.keep`."""
    connection = op.get_bind()
    for run_id, plan in connection.execute(sa.text("SELECT id, plan FROM runs")).all():
        keep = json.loads(plan).get("spec", {}).get("checkpoint", {}).get("keep")
        query = sa.text("SELECT step FROM checkpoints WHERE run_id = :id ORDER BY step")
        steps = connection.execute(query, {"id": run_id}).scalars().all()
        for step in steps[:-keep] if keep else ():
            mark = sa.text("UPDATE checkpoints SET dropped = saved WHERE run_id = :id AND step = :step")
            connection.execute(mark, {"id": run_id, "step": step})
