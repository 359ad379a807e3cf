"""`kind: sql`: a SQLite file, at the level that runs on every machine."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from rlf.types import Outcome

from ._subject import Subject

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@asynccontextmanager
async def _sqlite() -> AsyncIterator[Subject]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "data.sqlite")
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE t (x)")
        yield Subject(
            {"kind": "sql", "url": str(file), "sandbox": {"level": "process", "allow_unsafe": True}},
            argument="query",
            say=lambda word: f"SELECT '{word}'",
            hang=_ENDLESS,
            failures={Outcome.TOOL_ERROR: lambda word: f'SELECT "{word}" FROM nothing'},
        )


SUBJECTS = {"sqlite": _sqlite}
