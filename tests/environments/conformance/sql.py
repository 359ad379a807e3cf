"""A database: a copy of a SQLite seed, a schema and a database of PostgreSQL."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from rlf.types import ToolCall
from tests.postgres import postgres_server

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


def postgres(*, is_template):
    @contextmanager
    def made():
        with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
            seed = Path(folder) / "seed.sql"
            seed.write_text("CREATE TABLE notes (number INTEGER PRIMARY KEY);")
            begin = {"server": server, "database": str(seed)}
            if is_template:
                run(server, "CREATE DATABASE template_of_worlds")
                run(server.replace("/postgres?", "/template_of_worlds?"), seed.read_text())
                begin = {"server": server, "template": "template_of_worlds"}
            env = begin | {
                "kind": "sql",
                "limits": {"max_concurrency": 40},
                "statements": {
                    "note": {"description": "Note.", "sql": "INSERT INTO notes VALUES (3)"},
                    "wait": {"description": "Wait.", "sql": "SELECT pg_sleep(20)"},
                    "leave": {"description": "Leave.", "sql": "SELECT pg_terminate_backend(pg_backend_pid())"},
                },
                "scores": {"noted": {"assert": "SELECT (count(*) = 1)::int FROM notes WHERE number = :answer"}},
            }
            yield Subject(
                env,
                solve=[ToolCall("note", {})],
                score="noted",
                hang=[ToolCall("wait", {})],
                breaks=[ToolCall("leave", {})],
                says="terminating connection",
            )
            assert left_over(server) == []

    return made


def run(server, sql):
    with create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
        connection.exec_driver_sql(sql)


def left_over(server):
    """Schemas and databases of worlds."""
    listed = "SELECT nspname FROM pg_namespace UNION SELECT datname FROM pg_database"
    with create_engine(server, poolclass=NullPool).connect() as connection:
        return [name for (name,) in connection.exec_driver_sql(listed) if name.startswith("rlf_world")]


SUBJECTS = {
    "sqlite": sqlite,
    "postgres_schema": postgres(is_template=False),
    "postgres_template": postgres(is_template=True),
}
