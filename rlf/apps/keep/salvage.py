"""Reading a damaged SQLite lineage row by row, and saving what is readable into a new one.

SQLite stops at the first page that it cannot read. Here each table is read by its keys, so that the pages behind a
damaged one are found again. A row is saved when it is sound by itself and what it belongs to was saved too.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, select

from rlf.apps.keep.archive import copy_database, is_readable
from rlf.apps.keep.damage import find_fault
from rlf.core import RlfError, RunError
from rlf.core.files import published, scratch
from rlf.lineage import tables
from rlf.lineage.chain import LinkKind, link_hash
from rlf.lineage.migrate import VERSION_TABLE, foreign_words
from rlf.lineage.read_only import names_of_tables
from rlf.lineage.store import open_store

_HEADER = 100
"""Bytes at the beginning of a SQLite file."""
_EMPTY_PAGE = bytes((0x0D, 0, 0, 0, 0, 0x10, 0, 0))
"""The head of a page of 4,096 bytes of a table without rows."""
_CLOSE = 2_000
"""Keys that are tried one by one behind a place that cannot be read; then the steps double."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Readable rows of a table."""

    table: str
    num_rows: int
    """Sound ones; of a salvage, those that were saved."""
    num_damaged: int
    """Read, yet not sound, or of a run or trajectory that is lost."""
    num_gaps: int
    """Places where pages could not be read: how many rows were there is not known."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """Result of salvaging a damaged lineage."""

    source: Path
    target: Path
    tables: tuple[ReadTable, ...]
    run_ids: tuple[str, ...]
    """Runs that were saved, whole or in part."""
    num_thinned: int
    """Trajectories that lost a part, and so keep their row alone, as after `rlf runs gc`."""


def read_tables(path: Path) -> list[ReadTable]:
    """The readable rows of a lineage. Raises RunError where nothing is."""
    with _opened_copy(path) as database:
        return [_count_rows(_Rows(database, table)) for table in tables.metadata.sorted_tables]


def salvage(path: Path, target: Path) -> Salvage:
    """Saves what is readable of a lineage into a new database, which appears whole or not at all.

    Raises:
        RlfError: there is no such file, or the target exists.
        RunError: nothing is readable.
    """
    if not path.is_file():
        raise RlfError(f"{path}: there is no such file. Name a lineage's database, or a runs folder with `--runs`.")
    with published(target) as temporary, _opened_copy(path) as source:
        open_store(temporary).close()
        with closing(sqlite3.connect(temporary, isolation_level=None)) as saved:
            saved.row_factory = sqlite3.Row
            saved.execute("PRAGMA foreign_keys = ON")
            saved.execute("BEGIN")
            read = tuple(_save_rows(_Rows(source, table), saved) for table in tables.metadata.sorted_tables)
            num_thinned = _thin_trajectories(saved, [row["id"] for row in saved.execute(_LOST_A_PART)])
            saved.execute("COMMIT")
            num_thinned += _thin_trajectories(saved, _find_unreadable(temporary))
            saved.execute("BEGIN")
            _add_up(saved)
            run_ids = tuple(row["id"] for row in saved.execute("SELECT id FROM runs ORDER BY started"))
            _write_note(saved, run_ids, path, read)
            saved.execute("COMMIT")
            saved.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Salvage(path, target, read, run_ids, num_thinned)


@contextmanager
def _opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a database, so that the damaged one stays as it is, with a header that SQLite can read."""
    with scratch("rlf-salvage") as folder:
        copy = copy_database(path, str(folder))
        _refuse_foreign(path, copy)
        new = folder / "new.db"
        open_store(new).close()
        for repair in (_renew_header, _renew_schema):
            if not _lists_tables(copy):
                repair(copy, new)
        if not _lists_tables(copy):
            raise RunError(f"{path}: nothing is readable, not even its list of tables. Restore a copy of the file.")
        with closing(sqlite3.connect(copy)) as database:
            database.row_factory = sqlite3.Row
            yield database


def _refuse_foreign(path: Path, copy: Path) -> None:
    """Raises RlfError where the list of tables can be read and has none of a lineage."""
    try:
        names = names_of_tables(copy)
    except sqlite3.DatabaseError:
        return
    if names and names.isdisjoint([VERSION_TABLE, *tables.metadata.tables]):
        raise RlfError(foreign_words(str(path), names))


def _lists_tables(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as database:
            return any(row == ("runs",) for row in database.execute("SELECT name FROM sqlite_master"))
    except sqlite3.DatabaseError:
        return False


def _renew_header(path: Path, new: Path) -> None:
    """Writes the header of a new lineage over a damaged one: they differ in counters alone, which are left open."""
    header = bytearray(new.read_bytes()[:_HEADER])
    header[28:40] = bytes(12)  # the number of pages, which is then the file's, and the list of free pages
    with path.open("r+b") as file:
        file.write(header)


def _renew_schema(path: Path, new: Path) -> None:
    """Writes the list of tables of a new lineage in place of a lost one, without those that a cut took away.

    A lineage that this schema was made for has its tables at the same pages; of any other, no row is found sound.
    """
    with closing(sqlite3.connect(new)) as database:
        size = database.execute("PRAGMA page_size").fetchone()[0]
        query = (
            "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE rootpage <= ?"
            " AND (type = 'table' OR sql IS NULL)"  # other indexes may lie elsewhere, and no row is read by one
        )
        listed = database.execute(query, [path.stat().st_size // size]).fetchall()
    _renew_header(path, new)
    with path.open("r+b") as file:
        file.seek(_HEADER)
        file.write(_EMPTY_PAGE)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", listed)
        database.commit()


class _Rows:
    """The rows of a table by their keys, over the places that cannot be read."""

    def __init__(self, database: sqlite3.Connection, table: Table) -> None:
        self.table = table
        self.num_gaps = 0
        self._database = database
        self._key = "trajectory_ref" if table is tables.scores else "rowid"
        """`scores` has no rowid."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        last = -1
        most = self._last_key()
        while last < most:
            try:
                for row in self._read_from(last + 1):
                    last = row["_key"]
                    yield {name: row[name] for name in row.keys() if name != "_key"}  # noqa: SIM118 - a Row is no dict
                return
            except sqlite3.DatabaseError:
                self.num_gaps += 1
                last = self._find_readable(last, most)

    def _read_from(self, key: int) -> Iterator[sqlite3.Row]:
        query = f'SELECT {self._key} AS _key, * FROM "{self.table.name}" WHERE {self._key} >= ? ORDER BY {self._key}'
        return self._database.execute(query, [key])

    def _find_readable(self, last: int, most: int) -> int:
        """The key before the next one that can be read."""
        distance = 1
        while last + 1 + distance <= most:
            try:
                next(self._read_from(last + 1 + distance), None)
                return last + distance
            except sqlite3.DatabaseError:
                distance += 1 if distance < _CLOSE else distance
        return most

    def _last_key(self) -> int:
        """The highest key; where the last page cannot be read, one that is surely higher."""
        try:
            found = self._database.execute(f'SELECT max({self._key}) FROM "{self.table.name}"').fetchone()[0]
        except sqlite3.DatabaseError:
            return 1 << 40
        return -1 if found is None else int(found)


def _count_rows(rows: _Rows) -> ReadTable:
    sound = [find_fault(rows.table, row) is None for row in rows]
    return ReadTable(rows.table.name, sum(sound), len(sound) - sum(sound), rows.num_gaps)


def _save_rows(rows: _Rows, saved: sqlite3.Connection) -> ReadTable:
    table, num_saved, num_damaged = rows.table, 0, 0
    for row in rows:
        known = {name: value for name, value in row.items() if name in table.columns}
        if find_fault(table, known) is None and _insert_row(saved, table, known):
            num_saved += 1
        else:
            num_damaged += 1
    return ReadTable(table.name, num_saved, num_damaged, rows.num_gaps)


def _insert_row(saved: sqlite3.Connection, table: Table, row: dict[str, Any]) -> bool:
    names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    try:
        saved.execute(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', list(row.values()))
    except sqlite3.IntegrityError:
        return False
    return True


_LOST_A_PART = """
    SELECT id FROM trajectories AS t WHERE
        num_calls != (SELECT count(*) FROM tool_calls WHERE trajectory_ref = t.id)
        OR task_sha256 NOT IN (SELECT sha256 FROM blobs)
        OR EXISTS (
            SELECT 1 FROM tool_calls WHERE trajectory_ref = t.id AND text_sha256 NOT IN (SELECT sha256 FROM blobs)
        )
        OR NOT EXISTS (SELECT 1 FROM payloads WHERE trajectory_ref = t.id)
"""


def _find_unreadable(path: Path) -> list[int]:
    """Trajectories whose rows are sound one by one and cannot be read together."""
    with open_store(path) as store, store.read() as connection:
        refs = list(connection.execute(select(tables.trajectories.c.id)).scalars())
        return [ref for ref in refs if not is_readable(connection, ref)]


def _thin_trajectories(saved: sqlite3.Connection, refs: list[int]) -> int:
    """Takes what is left of trajectories that lost a part away, so that none passes for whole; how many had some."""
    num_thinned = 0
    for ref in refs:
        found = [
            saved.execute(f"DELETE FROM {part} WHERE trajectory_ref = ?", [ref]).rowcount
            for part in tables.OF_TRAJECTORY
        ]
        num_thinned += any(found)
    return num_thinned


def _add_up(saved: sqlite3.Connection) -> None:
    """Makes the sums those of the trajectories that are there."""
    saved.execute("""
        INSERT OR REPLACE INTO collections (run_id, phase, step, num_trajectories, num_tokens, num_sampled, num_calls)
        SELECT run_id, phase, step, count(*), sum(num_tokens), sum(num_sampled), sum(num_calls)
        FROM trajectories WHERE phase != 'interrupted' GROUP BY run_id, phase, step
    """)


def _write_note(saved: sqlite3.Connection, run_ids: tuple[str, ...], path: Path, read: tuple[ReadTable, ...]) -> None:
    lost = [
        f"{item.table}: {item.num_damaged} damaged rows, {item.num_gaps} unreadable places"
        for item in read
        if item.num_damaged or item.num_gaps
    ]
    text = f"salvaged from {path.absolute()}; lost in the whole lineage: {'; '.join(lost) or 'nothing that was found'}"
    for run_id in run_ids:
        saved.execute("INSERT INTO notes (run_id, time, text) VALUES (?, ?, ?)", [run_id, time.time(), text])
        query = "SELECT number, sha256 FROM links WHERE run_id = ? ORDER BY number DESC LIMIT 1"
        number, before = saved.execute(query, [run_id]).fetchone() or (0, "")
        content = (number + 1, LinkKind.SALVAGED, "{}", b"")
        saved.execute("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)", [run_id, *content, link_hash(before, *content)])
