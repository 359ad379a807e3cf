"""Big contents, each kept once: compressed with zstd, named by the sha256 of what they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import zstandard
from sqlalchemy import Connection, Insert, Row, insert, select
from sqlalchemy.dialects import sqlite

from rlf.core import RunError
from rlf.lineage import tables
from rlf.lineage.store import insert_rows

MIN_BYTES = 256
"""Shorter texts stay in their rows: a reference would save nothing."""
_LEVEL = 3
_BATCH = 500
"""Names in one question; databases bound the parameters of a statement."""


class Content(NamedTuple):
    """A content that is compressed already."""

    size_bytes: int
    """Before."""
    data: bytes

    @classmethod
    def of(cls, content: bytes) -> Content:
        """Compresses a content."""
        return cls(len(content), compress(content))


class Blobs:
    """Contents that rows refer to and that are written with them."""

    def __init__(self) -> None:
        self.data_by_hash: dict[str, bytes | Content] = {}

    def keep(self, content: bytes) -> str:
        """Adds a content; returns its name."""
        name = sha256(content).hexdigest()
        self.data_by_hash.setdefault(name, content)
        return name

    def keep_long(self, text: str) -> tuple[str, str | None]:
        """A short text for its row, or the name of a long one; the other of the two is empty."""
        content = text.encode()
        return (text, None) if len(content) < MIN_BYTES else ("", self.keep(content))

    def compressed(self) -> dict[str, Content]:
        """Everything that was taken."""
        return {name: _compressed(content) for name, content in self.data_by_hash.items()}


def _compressed(content: bytes | Content) -> Content:
    return content if isinstance(content, Content) else Content.of(content)


def write_blobs(connection: Connection, data_by_hash: Mapping[str, bytes | Content]) -> None:
    """Writes the contents that are not there yet."""
    statement = _insert_unless_there(connection)
    asked = set(data_by_hash)
    if type(statement) is not Insert:  # the database itself leaves out those that are compressed already
        asked = {name for name, content in data_by_hash.items() if not isinstance(content, Content)}
    missing = sorted(data_by_hash.keys() - present(connection, asked))
    rows = ((name, *_compressed(data_by_hash[name])) for name in missing)
    insert_rows(connection, statement, ("sha256", "size_bytes", "data"), rows)


def present(connection: Connection, names: Collection[str]) -> set[str]:
    """Those of the names that have a content."""
    return {row.sha256 for row in _select_named(connection, names, tables.blobs.c.sha256)}


def read_blobs(connection: Connection, names: Collection[str]) -> dict[str, bytes]:
    """Contents by name, those that are there.

    Raises:
        RunError: a content is damaged: it does not match its hash.
    """
    return {row.sha256: _read_whole_blob(row.sha256, row.data) for row in _select_named(connection, names)}


def copy_blobs(reading: Connection, writing: Connection, names: Collection[str]) -> None:
    """Writes the contents that are not there yet, from another database, as they are stored there.

    Raises:
        RunError: a content is damaged.
    """
    rows = [dict(row._mapping) for row in _select_named(reading, set(names) - present(writing, names))]
    for row in rows:
        if not is_whole(row["sha256"], row["data"]):
            text = "damaged in the source; `rlf runs verify` lists all damage. Copy it again."
            raise RunError(f"blob {row['sha256'][:12]}: {text}")
    if rows:
        writing.execute(_insert_unless_there(writing), rows)


def is_whole(name: str, data: bytes) -> bool:
    """Whether a stored content has the hash of its name."""
    return _decompress_content(name, data) is not None


def _decompress_content(name: str, data: bytes) -> bytes | None:
    """A stored content; None where it does not match its hash."""
    try:
        content = decompress(data)
    except zstandard.ZstdError:
        return None
    return content if sha256(content).hexdigest() == name else None


def _read_whole_blob(name: str, data: bytes) -> bytes:
    content = _decompress_content(name, data)
    if content is None:
        raise RunError(
            f"the content {name[:12]} in the lineage is damaged: it does not match its hash. `rlf runs verify` names "
            "all that is damaged, and `rlf runs salvage` saves the rest."
        )
    return content


def _select_named(connection: Connection, names: Collection[str], *columns: Any) -> Iterator[Row[Any]]:
    """Rows of the contents that have one of the names."""
    asked = sorted(set(names))
    for start in range(0, len(asked), _BATCH):
        query = select(*(columns or (tables.blobs,))).where(tables.blobs.c.sha256.in_(asked[start : start + _BATCH]))
        yield from connection.execute(query)


def compress(content: bytes) -> bytes:
    """The content as it is stored."""
    return zstandard.compress(content, _LEVEL)


def decompress(data: bytes) -> bytes:
    """The content again. Raises zstandard.ZstdError where the bytes are damaged."""
    return zstandard.decompress(data)


def _insert_unless_there(connection: Connection) -> Insert:
    """An insert that lets another process's same content stand, where the database can say so."""
    match connection.dialect.name:
        case "sqlite":
            return sqlite.insert(tables.blobs).on_conflict_do_nothing()
        case "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(tables.blobs).on_conflict_do_nothing()
    return insert(tables.blobs)
