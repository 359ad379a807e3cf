"""Archives: what `rlf runs export` writes and `rlf runs import` reads, a lineage of its own with a manifest in it.

The manifest holds the number of rows of every table and a hash of them. It is written first without its content and
filled in at the end, so that a cut-off archive is known for one even where somebody renames its temporary file.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from rlf import __version__
from rlf.apps.keep.card import CONTROL
from rlf.apps.keep.export import PROOF, PROOF_LINEAGE, find_licence
from rlf.apps.keep.upkeep import drop_unnamed_blobs
from rlf.core import RlfError, RunError
from rlf.core.files import check_run_id, published
from rlf.core.identity import hash_path
from rlf.lineage import tables
from rlf.lineage.blobs import copy_blobs
from rlf.lineage.lease import Lease, describe_owner, has_owner
from rlf.lineage.read_only import connect_read_only
from rlf.lineage.reader import Reader
from rlf.lineage.records import EVALUATION, HIDDEN, IMPORTING, Run
from rlf.lineage.store import Store, insert_rows, open_store
from rlf.lineage.tables import metadata
from rlf.lineage.upkeep import Keep, thin
from rlf.lineage.values import blob_names, read_wholes
from rlf.types import RunStatus

# Runs from one lineage to another: export, import and merge are the same copy between two databases.

_BATCH = 1000
"""Trajectories in one transaction."""
_PAUSE_S = 0.05
"""Between two transactions: a writer that waits for the lock looks ten times a second."""


def copy_run(source: Store, target: Store, run_id: str) -> bool:
    """Copies one run with all that belongs to it; False where the target has it already.

    The target's lock is held for a batch at a time, so that what runs there can write in between; the run is shown once
    all of it is there. What a copy that was cut off has left is replaced. Checkpoints and exports stay where they are:
    their rows name path and hash.

    Raises:
        RlfError: the target has another run of that id, or it is not the name of a folder.
    """
    check_run_id(run_id)
    placed = _Placed(source, target)
    with source.read() as reading:
        row = dict(reading.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one()._mapping)
        lease = _insert_run(target, placed.row(row, "folder"))
        if lease is None:
            return False
        try:
            _copy_trajectories(reading, target, lease)
            with target.write() as writing:
                lease.check(writing)
                copy_blobs(reading, writing, _source_texts(reading, row))
                for table in tables.OF_RUN:
                    _copy_rows(reading, writing, table, run_id, placed)
                shown = {name: row[name] for name in ("status", *lease.columns())}
                writing.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(shown))
            lease.is_over = True
        finally:
            lease.release()
    return True


def _insert_run(target: Store, row: dict[str, Any]) -> Lease | None:
    """Writes a run's own row, which nothing shows yet; None where the target has the run."""
    runs, run_id = tables.runs, row["id"]
    with target.write() as writing:
        there = writing.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
        if there is not None and there.status not in HIDDEN:
            if (there.plan_hash, there.last_step) != (row["plan_hash"], row["last_step"]):
                raise RlfError(
                    f"run {there.id}: {target.place} has another state of it, at step {there.last_step} instead of "
                    f"{row['last_step']}. Remove that run first with `rlf runs rm {there.id}`."
                )
            return None
        if there is not None and has_owner(there, target.lease_folder):
            raise RlfError(
                f"run {run_id}: {describe_owner(there)}, is importing or removing it. Wait for that, then try again."
            )
        writing.execute(delete(runs).where(runs.c.id == run_id))
        lease = Lease(run_id, target.lease_folder)
        writing.execute(insert(runs), row | lease.columns() | {"status": IMPORTING})
    return lease


class _Placed:
    """Rows as the target stores them: paths that start at the source's folder are named from the target's."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target

    def row(self, row: dict[str, Any], column: str = "path") -> dict[str, Any]:
        return row | {column: self._target.relative(self._source.absolute(row[column]))}


def _source_texts(reading: Connection, run: dict[str, Any]) -> set[str]:
    """Names of the patch and the texts of source files that a run's rows refer to."""
    found = {run["patch_sha256"]}
    for table in (tables.files, tables.changes):
        found.update(reading.execute(select(table.c.text_sha256).where(table.c.run_id == run["id"])).scalars())
    return found - {None}


def _copy_rows(reading: Connection, writing: Connection, table: Table, run_id: str, placed: _Placed) -> None:
    rows = [dict(row._mapping) for row in reading.execute(select(table).where(table.c.run_id == run_id))]
    if table in (tables.checkpoints, tables.exports):
        rows = [placed.row(row) for row in rows]
    if rows:
        writing.execute(insert(table), [_without_number(table, row) for row in rows])


def _copy_trajectories(reading: Connection, target: Store, lease: Lease) -> None:
    columns = tables.trajectories.c
    mine = select(columns.id).where(columns.run_id == lease.run_id).order_by(columns.id)
    ids = list(reading.execute(mine).scalars())
    for start in range(0, len(ids), _BATCH):
        with target.write() as writing:
            lease.beat(writing)
            _copy_batch(reading, writing, ids[start : start + _BATCH])
        time.sleep(_PAUSE_S)


def _copy_batch(reading: Connection, writing: Connection, ids: Sequence[int]) -> None:
    table = tables.trajectories
    place = (table.c.phase, table.c.step, table.c.k)
    rows = reading.execute(select(table).where(table.c.id.in_(ids))).all()
    new_rows = [_without_number(table, dict(row._mapping)) for row in rows]
    stored = writing.execute(insert(table).returning(table.c.id, *place), new_rows).all()
    new_by_place = {(row.phase, row.step, row.k): row.id for row in stored}
    new_by_old = {row.id: new_by_place[row.phase, row.step, row.k] for row in rows}
    queries = {part: select(part).where(part.c.trajectory_ref.in_(ids)) for part in tables.OF_TRAJECTORY}
    parts = {part: reading.execute(query).all() for part, query in queries.items()}
    copy_blobs(reading, writing, blob_names(rows, parts[tables.tool_calls]))
    for part, found in parts.items():
        rows_of_part = ((new_by_old[row[0]], *row[1:]) for row in found)
        insert_rows(writing, insert(part), [column.name for column in part.c], rows_of_part)


def _without_number(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The row without a number that each database gives for itself."""
    return {name: value for name, value in row.items() if name != "id"} if table is not tables.runs else row


logger = logging.getLogger(__name__)

_TABLE = "rlf_archive"


def write_archive(source: Store, run_ids: Sequence[str], path: Path, keep: Keep | None = None) -> None:
    """Writes runs to a new file, which appears whole or not at all.

    Args:
        keep: which training trajectories stay whole; None: all do.

    Raises:
        RlfError: the path exists already.
    """
    with published(path) as temporary:
        with open_store(temporary) as target:
            with target.write() as connection:
                connection.exec_driver_sql(f"CREATE TABLE {_TABLE} (manifest TEXT)")
                connection.exec_driver_sql(f"INSERT INTO {_TABLE} VALUES (NULL)")
            for run_id in run_ids:
                copy_run(source, target, run_id)
                if keep is not None:
                    thin(target, run_id, keep)
            if keep is not None:
                drop_unnamed_blobs(target)
        with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
            tables = {name: _count_rows(database, name) for name in sorted(metadata.tables)}
            query = "SELECT sha256 FROM links WHERE run_id = ? ORDER BY number DESC LIMIT 1"
            heads = {run_id: str(database.execute(query, [run_id]).fetchone()[0]) for run_id in run_ids}
            manifest = {"rlf": __version__, "run_ids": list(run_ids), "heads": heads, "tables": tables}
            database.execute(f"UPDATE {_TABLE} SET manifest = ?", [json.dumps(manifest)])


def _count_rows(database: sqlite3.Connection, table: str) -> dict[str, Any]:
    """Number of the rows of a table, and the hash of all their values in the table's own order."""
    digest, number = sha256(), 0
    for row in database.execute(f'SELECT * FROM "{table}"'):
        number += 1
        for value in row:
            data = value if isinstance(value, bytes) else repr(value).encode()
            digest.update(f"{type(value).__name__} {len(data)} ".encode())
            digest.update(data)
    return {"num_rows": number, "sha256": digest.hexdigest()}


@contextmanager
def open_archive(where: str) -> Iterator[Store]:
    """The lineage to import from: an archive, checked against its manifest, or any other lineage. It is not changed.

    A file without a manifest is taken with a warning: whether it is complete is not known.

    Raises:
        RlfError: there is none, or its writing was cut off.
        RunError: it is damaged.
    """
    if "://" in where:
        with open_store(where, create=False) as store:
            yield store
        return
    path = Path(where)
    if path.is_dir():
        raise RlfError(f"{path}: is a folder; expected a file that `rlf runs export` wrote, or a runs folder's rlf.db.")
    if path.is_file():
        _check_manifest(path)
    with open_store(path, create=False, read_only=True) as store:
        yield store


def _check_manifest(path: Path) -> None:
    manifest = _read_manifest(path)
    if manifest is None:
        logger.warning(
            "%s: has no manifest, as any lineage that `rlf runs export` did not write. Whether it is complete is not "
            "known.",
            path,
        )
        return
    try:
        with closing(connect_read_only(path)) as database:
            wrong = [_find_difference(database, name, rows) for name, rows in manifest["tables"].items()]
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _report_damage(path, f"it cannot be read to its end ({error})") from error
    found = [words for words in wrong if words is not None]
    if found:
        raise _report_damage(path, "; ".join(found))


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of an archive; None where it has none."""
    try:
        with closing(connect_read_only(path)) as database:
            if (_TABLE,) not in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                return None
            rows = database.execute(f"SELECT manifest FROM {_TABLE}").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of a name in its list of tables
        raise _report_damage(path, f"it cannot be read as a SQLite database ({error})") from error
    if len(rows) != 1 or rows[0][0] is None:
        raise RlfError(f"{path}: the archive is incomplete: its writing was interrupted. Export again.")
    try:
        manifest: dict[str, Any] = json.loads(rows[0][0])
    except ValueError as error:
        raise _report_damage(path, "its manifest is not JSON") from error
    return manifest


def _find_difference(database: sqlite3.Connection, name: str, expected: dict[str, Any]) -> str | None:
    if name not in metadata.tables:
        return None  # of a newer rlf, whose schema is refused below
    found = _count_rows(database, name)
    if found["num_rows"] != expected["num_rows"]:
        return f"table {name} has {found['num_rows']} rows of {expected['num_rows']}"
    return None if found == expected else f"the contents of table {name} changed after writing"


def _report_damage(path: Path, what: str) -> RunError:
    return RunError(
        f"{path}: the archive is damaged: {what}. Nothing was imported. Copy or export it again; `rlf runs salvage` "
        "saves what is readable."
    )


# What `rlf verify` holds a model's card against: the lineage of its run, and the hashes of all files of the folder.


def write_proof(reader: Reader, run: Run, step: int, folder: Path) -> None:
    """Adds the proof of a model's card to its folder. Of the training only rows stay; evaluations are whole.

    Args:
        step: updates that the model has seen.
    """
    if run.status is RunStatus.RUNNING:
        logger.warning(
            "run %s is still running: its model has no proof. Export it again when it has ended.", run.record.id
        )
        return
    write_archive(reader.store, _find_spoken_of(reader, run, step), folder / PROOF_LINEAGE, Keep())
    files = {
        path.relative_to(folder).as_posix(): hash_path(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    head = reader.link(run.record.id)
    proof = {
        "rlf": __version__,
        "head": None if head is None else head.sha256,
        "licence": find_licence(str(run.record.plan["spec"]["model"]["path"])),
        "files": files,
    }
    (folder / PROOF).write_text(json.dumps(proof, indent=1) + "\n", encoding="utf-8")


def _find_spoken_of(reader: Reader, run: Run, step: int) -> list[str]:
    """The runs that a card may speak of: its own, evaluations of its model, and controls."""
    run_id, tags = run.record.id, reader.tags()
    stopped = [each.record for each in reader.list_runs() if each.status is not RunStatus.RUNNING]
    of_model = [
        record.id
        for record in stopped
        if record.engine == EVALUATION and (record.parent_id, record.parent_step) == (run_id, step)
    ]
    controls = [record.id for record in stopped if CONTROL in tags.get(record.id, ())]
    return list(dict.fromkeys([run_id, *of_model, *controls]))


def copy_database(path: Path, folder: str) -> Path:
    """A copy of a database in a folder, with what its `-wal` file holds; the original stays as it is."""
    copy = Path(folder) / "rlf.db"
    for suffix in ("", "-wal"):
        part = path.with_name(path.name + suffix)
        if part.is_file():
            shutil.copyfile(part, copy.with_name(copy.name + suffix))
    return copy


def is_readable(connection: Connection, ref: int) -> bool:
    """Whether a trajectory of a lineage that was damaged can be read, or was thinned."""
    row = connection.execute(select(tables.trajectories).where(tables.trajectories.c.id == ref)).one()
    try:
        (stored,) = read_wholes(connection, [row])
    except Exception:  # noqa: BLE001 - damage shows in any way
        return False
    return stored is None or len(stored.scored.trajectory.tokens) == row.num_tokens
