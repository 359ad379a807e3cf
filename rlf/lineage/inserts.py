"""Many rows in one statement, without SQLAlchemy's work for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Insert

_MANY = 32
"""Rows from which on compiling a statement anew costs less than SQLAlchemy's work for each row."""


def insert_rows(connection: Connection, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
    """Executes an insert for each row; all rows have the same keys, and values that the driver takes as they are."""
    if len(rows) >= _MANY:
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(rows[0]))
        names: Sequence[str] | None = getattr(compiled, "positiontup", None)  # None: the driver takes names
        if names is not None and len(names) > 1:
            pick = itemgetter(*names)
            connection.exec_driver_sql(str(compiled), [pick(row) for row in rows])
            return
    if rows:
        connection.execute(statement, rows)
