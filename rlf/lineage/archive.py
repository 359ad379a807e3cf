"""Archives: what `rlf runs export` writes and `rlf runs import` reads, a lineage of its own with a manifest in it.

The manifest holds the number of rows of every table and a hash of them. It is written first without its content and
filled in at the end, so that a cut-off archive is known for one even where somebody renames its temporary file.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlf import __version__
from rlf.core import RlfError, RunError
from rlf.core.files import published
from rlf.lineage.read_only import connect_read_only, copy_database
from rlf.lineage.store import OldSchema, Store, open_store
from rlf.lineage.tables import metadata
from rlf.lineage.transfer import copy_run

logger = logging.getLogger(__name__)

_TABLE = "rlf_archive"


def write_archive(source: Store, run_ids: Sequence[str], path: Path) -> None:
    """Writes runs to a new file, which appears whole or not at all.

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
        _write_manifest(temporary, run_ids)


def _write_manifest(path: Path, run_ids: Sequence[str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
        tables = {name: _count_rows(database, name) for name in sorted(metadata.tables)}
        manifest = {"rlf": __version__, "run_ids": list(run_ids), "tables": tables}
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
    try:
        store = open_store(path, create=False, read_only=True)
    except OldSchema:
        with _migrated_copy(path) as store:
            yield store
        return
    with store:
        yield store


@contextmanager
def _migrated_copy(path: Path) -> Iterator[Store]:
    """An archive of an older rlf, brought up to date in a copy."""
    with tempfile.TemporaryDirectory(prefix="rlf-archive-") as folder:
        copy = copy_database(path, folder)
        with open_store(copy, create=False) as store:
            store.base = path.parent.resolve()
            yield store


def _check_manifest(path: Path) -> None:
    manifest = _read_manifest(path)
    if manifest is None:
        logger.warning(
            "%s: has no manifest; archives of older versions of rlf and runs folders have none. Whether it is "
            "complete is not known.",
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
