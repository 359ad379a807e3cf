"""Keeping the lineage small and sound: thinning by rule, dropping what nothing names, and looking for damage.

Thinning takes the bulk of training trajectories away (tokens, calls, scores, failures) and leaves their rows, sums and
metrics, so that every step and report stays; evaluations are never thinned.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, delete, func, select, text
from sqlalchemy.exc import DatabaseError

from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.blobs import is_whole, present
from rlf.lineage.inner import inner_blobs
from rlf.lineage.lease import has_owner
from rlf.lineage.payload import decode
from rlf.lineage.records import IMPORTING, INTERRUPTED, TRAIN
from rlf.lineage.run import check_stopped
from rlf.lineage.soundness import find_fault
from rlf.lineage.store import Store

_BATCH = 500
_KEEP = re.compile(r"(?P<rule>last|every):(?P<number>[1-9][0-9]*)|(?P<word>none|failed)")
KEEP_FORM = "`last:N` steps, `every:N` steps, `failed` (success below 1, or unscorable), or `none`"


@dataclass(frozen=True, slots=True)
class Keep:
    """Rules for the training trajectories that keep their bulk: those that any rule names."""

    last: int = 0
    """The newest so many steps."""
    every: int | None = None
    """Steps whose number this divides."""
    failed: bool = False
    """Trajectories whose success is below 1 or that could not be scored."""


def parse_keep(words: Sequence[str]) -> Keep:
    """Parses retention rules. Raises RlfError for an unknown one."""
    keep = Keep()
    for word in words:
        match = _KEEP.fullmatch(word)
        if match is None:
            raise RlfError(f"--keep: got {word!r}; expected {KEEP_FORM}. Write e.g. `--keep last:5 --keep failed`.")
        if match["rule"] == "last":
            keep = replace(keep, last=int(match["number"]))
        elif match["rule"] == "every":
            keep = replace(keep, every=int(match["number"]))
        elif match["word"] == "failed":
            keep = replace(keep, failed=True)
    return keep


@dataclass(frozen=True, slots=True)
class Freed:
    """Counts of what was removed."""

    num_trajectories: int
    """That lost their bulk."""
    num_blobs: int
    size_bytes: int
    """Of those blobs, as stored."""
    is_compact: bool
    """Whether the room went back to the disk; not while a run is running."""


def thin(store: Store, run_id: str, keep: Keep) -> int:
    """Thins a stopped run's training trajectories; returns how many.

    Raises:
        RlfError: the run is still running.
    """
    with store.read() as connection:
        check_stopped(store, connection, run_id)
        refs = list(
            connection.execute(
                select(tables.trajectories.c.id).where(*_conditions_of_thinned(connection, run_id, keep))
            ).scalars()
        )
    for start in range(0, len(refs), _BATCH):
        with store.write() as connection:  # a batch at a time: others write in between
            check_stopped(store, connection, run_id)
            for table in tables.OF_TRAJECTORY:
                connection.execute(delete(table).where(table.c.trajectory_ref.in_(refs[start : start + _BATCH])))
    if refs:
        store.drop_index()
    return len(refs)


def _conditions_of_thinned(connection: Connection, run_id: str, keep: Keep) -> Iterator[ColumnElement[bool]]:
    columns = tables.trajectories.c
    here = (columns.run_id == run_id, columns.phase == TRAIN)
    yield from here
    yield select(tables.payloads.c.trajectory_ref).where(tables.payloads.c.trajectory_ref == columns.id).exists()
    newest = connection.execute(select(func.max(columns.step)).where(*here)).scalar() or 0
    yield columns.step <= newest - keep.last
    if keep.every is not None:
        yield columns.step % keep.every != 0
    if keep.failed:
        yield columns.success >= 1.0


def drop_unnamed_blobs(store: Store) -> Freed:
    """Deletes incomplete imports and the contents that no row names any more.

    The room goes back to the disk when nothing runs: to copy the file anew would keep a run's writer waiting for long.
    """
    with store.read() as connection:
        cut_off = _cut_imports(store, connection)
        some = bool(cut_off) or bool(_measure_unnamed(connection))
    unnamed: dict[str, int] = {}
    if some:
        with store.write() as connection:
            connection.execute(delete(tables.runs).where(tables.runs.c.id.in_(cut_off)))
            unnamed = _measure_unnamed(connection)
            names = list(unnamed)
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                connection.execute(delete(tables.blobs).where(tables.blobs.c.sha256.in_(batch)))
    if cut_off:
        store.drop_index()
    with store.read() as connection:
        is_used = any(has_owner(row, store.lease_folder) for row in connection.execute(select(tables.runs)))
    if not is_used:
        store.compact()
    return Freed(0, len(unnamed), sum(unnamed.values()), is_compact=not is_used)


def _measure_unnamed(connection: Connection) -> dict[str, int]:
    """Sizes of the contents that no row refers to, by name."""
    named = _read_named(connection)
    sizes = select(tables.blobs.c.sha256, func.length(tables.blobs.c.data).label("size"))
    return {row.sha256: row.size for row in connection.execute(sizes) if row.sha256 not in named}


def _cut_imports(store: Store, connection: Connection) -> list[str]:
    """Runs whose import ended before all of them was there."""
    rows = connection.execute(select(tables.runs).where(tables.runs.c.status == IMPORTING))
    return [row.id for row in rows if not has_owner(row, store.lease_folder)]


def _read_named(connection: Connection) -> set[str]:
    """Every content that a row refers to."""
    calls = tables.tool_calls.c
    sources = (tables.runs.c.patch_sha256, tables.files.c.text_sha256, tables.changes.c.text_sha256)
    columns = (tables.trajectories.c.task_sha256, calls.text_sha256, calls.original_sha256, *sources)
    named: set[str] = set()
    for column in columns:
        named.update(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())
    for images in connection.execute(select(calls.images).where(calls.images.is_not(None))).scalars():
        named.update(name for _, name in json.loads(images))
    for inner in connection.execute(select(calls.inner).where(calls.inner.is_not(None))).scalars():
        named.update(inner_blobs(inner))
    return named


def find_damage(store: Store) -> Iterator[str]:
    """Faults of the database, in words; nothing where all is well. Reads all of it once."""
    with store.read() as connection:
        for look in (_check_database, _check_rows, _check_contents, _check_payloads, _check_sums):
            yield from _run_look(look, connection)
        for run_id in _cut_imports(store, connection):
            yield f"run {run_id}: its import was interrupted. Import it again, or free the space with `rlf runs gc`"


def _run_look(look: Callable[[Connection], Iterator[str]], connection: Connection) -> Iterator[str]:
    """Findings of one check, or that it could not finish; the others continue."""
    try:
        yield from look(connection)
    except (DatabaseError, sqlite3.DatabaseError, ValueError) as error:
        words = error.orig if isinstance(error, DatabaseError) else error
        yield f"the file: {look.__name__.removeprefix('_')} cannot be read to the end: {words}"


def _check_rows(connection: Connection) -> Iterator[str]:
    """Rows that do not hold what their table says; contents and payloads are read by looks of their own."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        return
    for table in tables.metadata.sorted_tables:
        if table not in (tables.blobs, tables.payloads):
            columns = [column.name for column in table.columns]
            names = ", ".join(f'"{name}"' for name in columns)
            for row in driver.execute(f'SELECT {names} FROM "{table.name}"'):
                fault = find_fault(table, dict(zip(columns, row, strict=True)))
                if fault is not None:
                    yield f"table {table.name}: a row is damaged: {fault}"


def _check_database(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for line in connection.execute(text("PRAGMA integrity_check")).scalars():
            if line != "ok":
                yield f"the file: {line}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"table {row[0]}: row {row[1]} belongs to a row of {row[2]} that is missing"


def _check_contents(connection: Connection) -> Iterator[str]:
    for row in connection.execute(select(tables.blobs)).yield_per(_BATCH):
        if not is_whole(row.sha256, row.data):
            yield f"blob {row.sha256[:12]}: its content does not match its hash"
    named = _read_named(connection) - _cut_originals(connection)
    for name in sorted(named - present(connection, named)):
        yield f"blob {name[:12]}: a row names it, but it is missing"


def _cut_originals(connection: Connection) -> set[str]:
    """Hashes of results that were too large to keep: names without a content."""
    column = tables.tool_calls.c.original_sha256
    return set(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())


def _check_payloads(connection: Connection) -> Iterator[str]:
    trajectories, payloads = tables.trajectories.c, tables.payloads.c
    query = select(trajectories.trajectory_id, trajectories.run_id, trajectories.num_tokens, payloads.data)
    joined = query.join(tables.payloads, payloads.trajectory_ref == trajectories.id)
    for row in connection.execute(joined).yield_per(_BATCH):
        try:
            whole = len(decode(row.data)["tokens"]) == row.num_tokens
        except Exception:  # noqa: BLE001 - damage shows in any way
            whole = False
        if not whole:
            yield f"run {row.run_id}: trajectory {row.trajectory_id}: its tokens cannot be read"


def _check_sums(connection: Connection) -> Iterator[str]:
    trajectories, sums = tables.trajectories.c, tables.collections.c
    unfinished = select(tables.runs.c.id).where(tables.runs.c.status == IMPORTING)
    counted = (
        select(trajectories.run_id, trajectories.phase, trajectories.step, func.count().label("num"))
        .where(trajectories.phase != INTERRUPTED, trajectories.run_id.not_in(unfinished))
        .group_by(trajectories.run_id, trajectories.phase, trajectories.step)
        .subquery()
    )
    place = (sums.run_id == counted.c.run_id) & (sums.phase == counted.c.phase) & (sums.step == counted.c.step)
    query = select(counted, sums.num_trajectories).outerjoin(tables.collections, place)
    for row in connection.execute(query.where(counted.c.num != func.coalesce(sums.num_trajectories, -1))):
        num_trajectories = row.num_trajectories
        yield f"run {row.run_id}: {row.phase} step {row.step} has {row.num} trajectories and says {num_trajectories}"
