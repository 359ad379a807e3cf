"""Many rows in one statement, without SQLAlchemy's work for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Insert

_MANY = 32
"""Rows from which on compiling a statement again costs less than SQLAlchemy's work for each row."""
_BATCH = 500
"""Fewer than the objects after which Python looks for garbage, among all that there is at last."""


def insert_rows(
    connection: Connection, statement: Insert, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Executes an insert for each row, whose values have the order of the columns and are as the driver takes them."""
    coming = iter(rows)
    first = list(islice(coming, _BATCH))
    names = None
    if len(first) >= _MANY and len(columns) > 1:
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
        names = getattr(compiled, "positiontup", None)  # None: the driver takes names
    if names is None:
        if named := [dict(zip(columns, row, strict=True)) for row in (*first, *coming)]:
            connection.execute(statement, named)
        return
    pick, text = itemgetter(*map(columns.index, names)), str(compiled)
    while first:
        connection.exec_driver_sql(text, list(map(pick, first)))
        first = list(islice(coming, _BATCH))
