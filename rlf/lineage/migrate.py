"""Bringing a database to this rlf's schema, forward only."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    column,
    func,
    inspect,
    select,
    table,
)
from sqlalchemy.schema import CreateTable

from rlf.core import RlfError
from rlf.lineage.tables import metadata

HEAD = "0008"
"""The newest revision in migrations/versions; known here so that opening an up-to-date database loads no alembic."""
VERSION_TABLE = "rlf_version"
"""Not alembic's default name: a team's database may hold other programs' tables too."""
_LOCK = int.from_bytes(b"rlf")
"""The advisory lock of PostgreSQL, whose transactions hold none from their beginning."""


def is_current(connection: Connection) -> bool:
    """Whether the database has this rlf's schema."""
    return _read_revision(connection) == HEAD


def upgrade(connection: Connection, place: str) -> None:
    """Applies the missing revisions inside the caller's transaction, which holds the write lock: one process does it.

    Raises:
        RlfError: The database was written by a newer rlf, or its tables belong to another program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    revision = _read_revision(connection)
    if revision is None:
        _check_unused(connection, place)
        _create_tables(connection)
    elif revision != HEAD:
        _apply_migrations(connection, place, revision)


def _create_tables(connection: Connection) -> None:
    """Makes the tables of a new database."""
    key = PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), nullable=False), key)
    version.create(connection)
    for each in metadata.tables.values():
        create_table(each, connection)
    for index in sorted(_late_indexes(), key=lambda index: str(index.name)):
        _create_index(index, connection)
    connection.execute(version.insert().values(version_num=HEAD))


def create_table(table: Table, connection: Connection) -> None:
    """Makes a table and its indexes without the late ones."""
    connection.execute(CreateTable(table))
    for index in table.indexes - _late_indexes():
        _create_index(index, connection)


def _create_index(index: Index, connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
    index.create(connection)


def _late_indexes() -> set[Index]:
    """Indexes that came with a later revision. They are made behind all tables, so that these begin at the same pages
    in every new lineage: `rlf.apps.keep.salvage` finds them there where the list of tables is lost."""
    return {index for each in metadata.tables.values() for index in each.indexes if index.info.get("is_late")}


def _read_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()


def foreign_words(place: str, names: Collection[str]) -> str:
    """The message for a database of another program."""
    return (
        f"{place}: the database belongs to another program: it holds {', '.join(sorted(names)[:3])} and no "
        f"{VERSION_TABLE}. Nothing in it was changed. Move it away, or name another runs folder or database."
    )


def _check_unused(connection: Connection, place: str) -> None:
    """A file is a lineage or empty; a server's database may hold tables of others, beside which ours are made."""
    names = set(inspect(connection).get_table_names())
    if names and connection.dialect.name == "sqlite":
        raise RlfError(foreign_words(place, names))
    clash = sorted(names & set(metadata.tables))
    if clash:
        raise RlfError(f"{place}: table {clash[0]!r} exists, but rlf did not make it. Name a database of rlf's own.")


def _apply_migrations(connection: Connection, place: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known:
        raise RlfError(f"{place}: schema {revision} is newer than this rlf knows ({HEAD}). Upgrade rlf to open it.")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
