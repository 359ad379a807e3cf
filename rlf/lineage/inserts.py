"""Many rows in one statement, without SQLAlchemy's work for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Insert

_MANY = 32
"""Rows from which on compiling a statement again costs less than SQLAlchemy's work for each row."""
_BATCH = 500
"""Fewer than the objects after which Python looks for garbage, among all that there is at last."""


def insert_rows(connection: Connection, statement: Insert, rows: Sequence[dict[str, Any]]) -> None:
    """Executes an insert for each row; all rows have the same keys, and values that the driver takes as they are."""
    if len(rows) >= _MANY:
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(rows[0]))
        names: Sequence[str] | None = getattr(compiled, "positiontup", None)  # None: the driver takes names
        if names is not None and len(names) > 1:
            pick, text = itemgetter(*names), str(compiled)
            for start in range(0, len(rows), _BATCH):
                connection.exec_driver_sql(text, [pick(row) for row in rows[start : start + _BATCH]])
            return
    if rows:
        connection.execute(statement, rows)
