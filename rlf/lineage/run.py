"""The start of a run and of its resumption: the two writes that come before any event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.blobs import Blobs, write_blobs
from rlf.lineage.process import Process, current_process, is_gone
from rlf.lineage.records import INTERRUPTED, Change, FileRecord, RunRecord
from rlf.lineage.store import Store
from rlf.types import RunStatus

_NONE: Mapping[tuple[str, str], str] = MappingProxyType({})


Texts = Mapping[tuple[str, str], str]
"""Texts of small source files by role and path."""


def start_run(store: Store, record: RunRecord, patch: str | None = None, texts: Texts = _NONE) -> None:
    """Writes a new run as running in this process, with its files.

    Args:
        patch: what the code differs by from its commit; kept, and named by the record that is read back.
        texts: what is kept of the record's files, so that a later change of them can be shown.
    """
    redactor, blobs = store.redactor, Blobs()
    patch_sha256 = None if patch is None else blobs.keep(redactor.text(patch).encode())
    files = [_file_row(file, record.id, texts, blobs, redactor) for file in record.files]
    row = {
        "id": record.id,
        "name": redactor.text(record.name),
        "status": RunStatus.RUNNING,
        "started": record.started,
        "engine": record.engine,
        "seed": record.seed,
        "parent_id": record.parent_id,
        "parent_kind": record.parent_kind,
        "parent_step": record.parent_step,
        "plan": redactor.json(record.plan),
        "plan_hash": record.plan_hash,
        "code_version": record.code_version,
        "host": redactor.json(record.host),
        "packages": redactor.json(record.packages),
        "command": redactor.text(record.command),
        "folder": redactor.text(store.relative(record.folder)),
        "home": redactor.optional(record.home),
        "cwd": redactor.optional(record.cwd),
        "patch_sha256": patch_sha256,
        "last_step": 0,
    }
    with store.write() as connection:
        write_blobs(connection, blobs.data_by_hash)
        connection.execute(insert(tables.runs), row | asdict(current_process()))
        if files:
            connection.execute(insert(tables.files), files)


def _file_row(file: FileRecord, run_id: str, texts: Texts, blobs: Blobs, redactor: Redactor) -> dict[str, Any]:
    text = texts.get((file.role, file.path))
    kept = None if text is None else blobs.keep(redactor.text(text).encode())
    return {"run_id": run_id, **asdict(file), "path": redactor.text(file.path), "text_sha256": kept}


def accept_changes(store: Store, run_id: str, changes: Sequence[Change], texts: Texts) -> None:
    """Writes down that a run continues with changed inputs. One that was changed at the same step before is replaced.

    Args:
        texts: what is kept of the changed files.
    """
    redactor, blobs, table = store.redactor, Blobs(), tables.changes
    with store.write() as connection:
        for change in changes:
            text = texts.get((change.role, change.path))
            key = {"run_id": run_id, "step": change.step, "role": change.role, "path": redactor.text(change.path)}
            row = asdict(change) | key
            row["text_sha256"] = None if text is None else blobs.keep(redactor.text(text).encode())
            earlier = connection.execute(select(table.c.old_sha256).filter_by(**key)).scalar()
            row["old_sha256"] = change.old_sha256 if earlier is None else earlier
            connection.execute(delete(table).filter_by(**key))
            if row["old_sha256"] != change.sha256:
                connection.execute(insert(table), row)
        write_blobs(connection, blobs.data_by_hash)


def begin_resume(store: Store, run_id: str, from_step: int) -> None:
    """Takes a run over from its checkpoint at `from_step`: later rows are deleted, for those steps are done again.

    Trajectories that a stop cut off stay.

    Raises:
        RlfError: There is no such run, or its process still runs.
    """
    with store.write() as connection:
        check_stopped(connection, run_id, exempt=current_process())
        again = (tables.steps, tables.evaluations, tables.checkpoints, tables.exports, tables.changes)
        for table in (*again, tables.collections, tables.tool_totals):
            connection.execute(delete(table).where(table.c.run_id == run_id, table.c.step > from_step))
        table = tables.trajectories
        left = (table.c.run_id == run_id, table.c.step > from_step, table.c.phase != INTERRUPTED)
        connection.execute(delete(table).where(*left))
        now_running = {"status": RunStatus.RUNNING, "finished": None, "error": None, "last_step": from_step}
        values = now_running | asdict(current_process())
        connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(values))


def check_stopped(connection: Connection, run_id: str, exempt: Process | None = None) -> None:
    """Raises RlfError where there is no such run, or where a process other than the exempt one still runs it."""
    row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one_or_none()
    if row is None:
        raise RlfError(f"run {run_id}: not in the lineage. `rlf runs list` shows the runs there are.")
    process = Process(row.pid, row.node, row.boot, row.pid_ticks)
    if row.status == RunStatus.RUNNING and process != exempt and not is_gone(process):
        raise RlfError(f"run {run_id}: still running as process {process.pid} on {process.node}. Stop it first.")
