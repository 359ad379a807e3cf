"""Bringing a database to this rlf's schema, forward only."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
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

FIRST = "0008"
"""The oldest revision that is read. Those before it were never released."""
HEAD = "0009"
"""The newest revision in migrations/versions; known here so that opening an up-to-date database loads no alembic."""
LAST_EXPORTER = "2ca147a2"
"""The last commit that reads what was written before the first version: older schemas, and older forms in rows."""
_MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "rlf_version"
"""Not alembic's default name: a team's database may hold other programs' tables too."""
_LOCK = int.from_bytes(b"rlf")
"""The advisory lock of PostgreSQL, whose transactions hold none from their beginning."""


def is_current(connection: Connection, place: str) -> bool:
    """Whether the database has this rlf's schema.

    Raises:
        RlfError: it has one that this rlf cannot read: of a checkout before the first version, or of a newer rlf.
    """
    revision = _read_revision(connection)
    if revision is not None and revision < FIRST:  # revisions are numbers of four digits, so that texts compare
        raise RlfError(
            f"{place}: schema {revision} is of a checkout before the first version of rlf, which this one does not "
            f"read. With commit {LAST_EXPORTER} write its runs by `rlf runs export RUN... --out FILE`, then take them "
            "over here by `rlf runs import FILE`. Nothing in it was changed."
        )
    if revision is not None and revision > HEAD:
        raise RlfError(f"{place}: schema {revision} is newer than this rlf knows ({HEAD}). Upgrade rlf to open it.")
    return revision == HEAD


def upgrade(connection: Connection, place: str) -> None:
    """Applies the missing revisions inside the caller's transaction, which holds the write lock: one process does it.

    Raises:
        RlfError: This rlf cannot read the database's schema, or its tables belong to another program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    if is_current(connection, place):  # asked again under the lock: another process may have been first
        return
    if _read_revision(connection) is None:
        _check_unused(connection, place)
        _create_tables(connection)
    else:
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _create_tables(connection: Connection) -> None:
    """Makes the tables of a new database."""
    key = PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), nullable=False), key)
    version.create(connection)
    for each in metadata.tables.values():
        connection.execute(CreateTable(each))
    # Behind all tables, which so begin at the same pages whatever indexes a later version adds: what salvages a lineage
    # without its list of tables finds them there. In one order, since a set has none.
    indexes = {str(index.name): index for each in metadata.tables.values() for index in each.indexes}
    for _, index in sorted(indexes.items()):
        if connection.dialect.name == "postgresql":
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]
        index.create(connection)
    connection.execute(version.insert().values(version_num=HEAD))


def _read_revision(connection: Connection) -> str | None:
    if connection.dialect.name == "sqlite":  # in its own words: SQLAlchemy's would be compiled for each store
        if connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).first() is None:
            return None
        return connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
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
