"""A database."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from rlf.types import ToolCall

from ._subject import Subject

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


@contextmanager
def sqlite():
    with tempfile.TemporaryDirectory() as folder:
        seed = Path(folder) / "seed.sql"
        seed.write_text("CREATE TABLE notes (number INTEGER PRIMARY KEY);")
        env = {
            "kind": "sql",
            "database": str(seed),
            "statements": {
                "note": {"description": "Note.", "sql": "INSERT INTO notes VALUES (3)"},
                "count": {"description": "Count.", "sql": ENDLESS},
                "drop": {"description": "Drop.", "sql": "DROP TABLE IF EXISTS notes"},
                "look": {"description": "Look.", "sql": "SELECT * FROM missing WHERE 1 = 0"},
            },
            "scores": {"noted": {"assert": "SELECT count(*) = 1 FROM notes WHERE number = :answer"}},
        }
        yield Subject(
            env,
            solve=[ToolCall("note", {})],
            score="noted",
            hang=[ToolCall("count", {})],
            breaks=[ToolCall("look", {})],
            says="no such table: missing",
        )


SUBJECTS = {"sqlite": sqlite}
