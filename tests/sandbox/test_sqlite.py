"""Queries of SQLite files: whatever only reads is answered, whatever would write is refused."""

import sqlite3
from contextlib import closing

import pytest

from rlf.apps.sql.databases import SqliteDatabase
from rlf.sandbox.guest.job import query_sqlite as query

SCHEMA = """
CREATE TABLE town (name TEXT PRIMARY KEY, people INTEGER);
INSERT INTO town VALUES ('Rimgos', 1), (CAST(x'636166e9' AS TEXT), 2);
CREATE VIRTUAL TABLE note USING fts5(title, body);
INSERT INTO note VALUES ('hello', 'big world');
CREATE VIRTUAL TABLE old USING fts4(body);
INSERT INTO old VALUES ('hello there');
CREATE VIRTUAL TABLE place USING rtree(id, low, high);
INSERT INTO place VALUES (1, 0.0, 1.0);
CREATE VIRTUAL TABLE word USING fts5vocab(note, row);
"""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "towns.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
    return path


def ask(path, sql):
    return query(str(path), sql, 100, 100_000)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT title FROM note WHERE note MATCH 'world'", [["hello"]]),
        ("SELECT snippet(note, 1, '[', ']', '', 4) FROM note('world') ORDER BY rank", [["big [world]"]]),
        ("SELECT body FROM old WHERE old MATCH 'there'", [["hello there"]]),
        ("SELECT id FROM place WHERE low <= 0.5", [[1]]),
        ("SELECT term FROM word", [["big"], ["hello"], ["world"]]),
        ("SELECT name FROM pragma_table_info('town')", [["name"], ["people"]]),
        (
            "SELECT p.name FROM sqlite_master m, pragma_table_xinfo(m.name) p WHERE m.name = 'town'",
            [["name"], ["people"]],
        ),
        ("SELECT origin FROM pragma_index_list('town')", [["pk"]]),
        ("SELECT value FROM json_each('[1, 2]')", [[1], [2]]),
    ],
)
def test_tables_of_modules_and_functions_that_describe_the_schema_are_read(database, sql, rows):
    answer = ask(database, sql)
    assert (answer["outcome"], answer.get("rows")) == ("ok", rows)


def test_a_text_that_is_not_utf_8_fails_no_other(database):
    assert ask(database, "SELECT name FROM town ORDER BY people")["rows"] == [["Rimgos"], ["caf\ufffd"]]


def test_a_world_shows_a_text_that_is_not_utf_8(database):
    with closing(SqliteDatabase(database.read_bytes())) as world:
        assert world.execute("SELECT name FROM town ORDER BY people", {}).rows == [["Rimgos"], ["caf\ufffd"]]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO town VALUES ('x', 1)",
        "INSERT INTO note VALUES ('x', 'y')",
        "INSERT INTO note(note) VALUES ('rebuild')",
        "DELETE FROM note",
        "DELETE FROM note_content",
        "UPDATE place_node SET data = x''",
        "UPDATE sqlite_master SET sql = 'x'",
        "DELETE FROM sqlite_master",
        "INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 3, 'x')",
        "PRAGMA writable_schema = ON",
        "PRAGMA page_size = 512",
        "PRAGMA user_version = 3",
        "SELECT * FROM pragma_database_list",
        "CREATE TEMP TABLE x (a)",
        "CREATE VIRTUAL TABLE temp.x USING fts5(a)",
        "CREATE VIRTUAL TABLE x USING rtree(id, a, b)",
        "DROP TABLE note",
        "ATTACH '/tmp/x.db' AS x",
        "VACUUM INTO '/tmp/x.db'",
        "SELECT load_extension('x')",
        "SELECT fts3_tokenizer('simple')",
    ],
)
def test_whatever_would_write_or_leave_the_file_is_refused(database, sql):
    before = database.read_bytes()
    assert ask(database, sql)["outcome"] == "error"
    assert database.read_bytes() == before
