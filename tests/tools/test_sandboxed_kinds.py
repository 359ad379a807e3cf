"""`kind: code` and `kind: sql`, called as a model's calls would be."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from rlf.core.identity import hash_path
from rlf.sandbox import LevelChoice, Sandbox
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall

from ..postgres import postgres_server

UNSAFE = {"level": LevelChoice.PROCESS.value, "allow_unsafe": True}
"""So that these tests run on every machine; levels are tested with the sandbox."""


def declared(kind, argument, folder=None, limits=None, **target):
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    values = {"name": kind, "description": "d", "inputSchema": schema, "target": {"kind": kind, **target}}
    return ToolDeclaration.model_validate({**values, "limits": limits or {}}, context={"folder": folder})


def answers(declaration, *texts, trajectory_ids=None):
    """The results of calls, one after the other."""
    [argument] = declaration.input_schema["properties"]

    async def main():
        async with Executor([declaration]) as executor:
            results = []
            for number, text in enumerate(texts):
                trajectory_id = trajectory_ids[number] if trajectory_ids else "t"
                results.append(
                    await executor.invoke(ToolCall(declaration.name, {argument: text}), trajectory_id=trajectory_id)
                )
            await executor.end_trajectory("t")
            return results

    return asyncio.run(main())


def code(**target):
    return declared("code", "code", sandbox=UNSAFE, **target)


def test_code_shows_output_and_the_last_value_and_says_where_it_ran():
    [result] = answers(code(), "print('a')\n6 * 7")
    assert (result.outcome, result.text, result.isolation) == (Outcome.OK, "a\n42", "process")
    assert result.structured == {"outcome": "ok", "stdout": "a\n", "stderr": "", "value": "42", "error": None}
    assert result.usage["cpu_s"] > 0


def test_a_program_that_raises_is_reported_its_error_before_its_output():
    [result] = answers(code(), "print('before')\n1 / 0")
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.text.startswith("error: Traceback") and "ZeroDivisionError: division by zero" in result.text
    assert result.text.endswith("output:\nbefore\n")


def test_a_program_without_output_is_answered():
    [result] = answers(code(), "x = 1")
    assert result.text == "The program ran; it printed nothing."


def test_names_stay_within_a_trajectory_only_with_session():
    assert [result.text for result in answers(code(session=True), "x = 1", "x + 1")][1] == "2"
    assert answers(code(session=True), "x = 1", "x + 1", trajectory_ids=["t", "u"])[1].outcome is Outcome.TOOL_ERROR
    assert answers(code(), "x = 1", "x + 1")[1].outcome is Outcome.TOOL_ERROR


def test_a_program_that_hangs_ends_at_the_tools_deadline_with_what_it_wrote():
    declaration = declared("code", "code", sandbox=UNSAFE, limits={"timeout_s": 4})
    [result] = answers(declaration, "print('begun', flush=True)\nwhile True: pass")
    assert result.outcome is Outcome.TIMEOUT and "begun" in result.text


def test_a_sandbox_that_fails_is_infrastructures_fault(monkeypatch):
    async def lost(self, request, *, session=None):
        from rlf.sandbox import Execution
        from rlf.sandbox import SandboxOutcome as SandboxOutcome

        return Execution(SandboxOutcome.INFRA, error="gone")

    monkeypatch.setattr(Sandbox, "run", lost)
    [result] = answers(code(), "1")
    assert result.outcome is Outcome.INFRA and result.outcome.is_infrastructure


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({}, "no property 'code'"),
        ({"properties": {"code": {"type": "integer"}}, "required": ["code"]}, "write `type: string`"),
        ({"properties": {"code": {"type": "string"}}}, r"write `required: \[code\]`"),
    ],
)
def test_a_schema_without_the_program_is_complained_of(schema, complaint):
    import re

    [said] = code().target.complaints({"type": "object", **schema})
    assert re.search(complaint, said)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "towns.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE town (name TEXT, people INTEGER)")
        connection.executemany("INSERT INTO town VALUES (?, ?)", [("A", 3), ("B", None), ("C", 5)])
        connection.commit()
    return path


def sql(folder, url="towns.sqlite", **target):
    return declared("sql", "query", folder=folder, url=url, sandbox=UNSAFE, **target)


def test_a_query_is_answered_with_a_table(database):
    results = answers(sql(database.parent), "SELECT * FROM town", "SELECT name FROM town WHERE people > 9")
    assert [result.text for result in results] == ["name | people\nA | 3\nB | NULL\nC | 5", "name\n(no rows)"]
    rows = [["A", 3], ["B", None], ["C", 5]]
    assert results[0].structured == {"columns": ["name", "people"], "rows": rows, "truncated": False}
    assert json.loads(json.dumps(results[0].structured)) == results[0].structured


def test_rows_beyond_the_limit_are_said_to_be_left_out(database):
    [result] = answers(sql(database.parent, max_rows=2), "SELECT name FROM town")
    assert result.text == "name\nA\nB\n(more rows are left out)"


def test_writing_is_refused_and_the_model_told(database):
    before = database.read_bytes()
    [result] = answers(sql(database.parent), "UPDATE town SET people = 0")
    assert result.outcome is Outcome.TOOL_ERROR and "may only be read" in result.text
    assert database.read_bytes() == before


def test_a_database_that_is_being_written_is_read_as_it_was_when_the_run_began(database):
    writer = sqlite3.connect(database)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO town VALUES ('D', 7)")
    writer.commit()
    [result] = answers(sql(database.parent), "SELECT count(*) FROM town")
    writer.close()
    assert result.text == "count(*)\n4"


def test_its_answers_are_those_of_the_files_content(database):
    before = sql(database.parent).target.source_hash()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM town")
        connection.commit()
    assert sql(database.parent).target.source_hash() != before


def test_a_missing_file_and_another_database_are_faults(tmp_path):
    [said] = sql(tmp_path).target.complaints(sql(tmp_path).input_schema)
    assert said.startswith(f"no such file {tmp_path / 'towns.sqlite'}")
    with pytest.raises(ValueError, match="expected a SQLite file"):
        sql(tmp_path, url="mysql://host/x")
    with pytest.raises(ValueError, match="models only read databases"):
        sql(tmp_path, read_only=False)
    with pytest.raises(ValueError, match="unknown builtin"):
        sql(tmp_path, url="builtin:no-such")


@pytest.fixture(scope="module")
def server():
    with postgres_server() as url:
        yield url


def test_postgresql_is_read_in_a_transaction_that_nothing_makes_writable(server):
    queries = (
        "SELECT 1 AS one, 'x' AS text, NULL AS none",
        "CREATE TABLE t (x int)",
        "SELECT 1; COMMIT; CREATE TABLE t (x int)",
        "SET TRANSACTION READ WRITE",
        "DO $$ BEGIN SET TRANSACTION READ WRITE; CREATE TABLE t (x int); END $$",
        "SELECT count(*) FROM pg_tables WHERE tablename = 't'",
        "SELECT generate_series(1, 1000000000) AS x",
    )
    good, *refused, count, many = answers(declared("sql", "query", url=server, max_rows=2), *queries)
    assert (good.text, good.isolation) == ("one | text | none\n1 | x | NULL", "process")
    assert [result.outcome for result in refused] == [Outcome.TOOL_ERROR] * 4
    assert count.text == "count\n0"
    assert many.text == "x\n1\n2\n(more rows are left out)"


def test_a_long_query_ends_at_its_time_and_a_dead_server_is_infrastructures_fault(server):
    declaration = declared("sql", "query", url=server, limits={"timeout_s": 1.5})
    [slow] = answers(declaration, "SELECT pg_sleep(60)")
    assert slow.outcome is Outcome.TIMEOUT
    [dead] = answers(declared("sql", "query", url="postgresql://x@127.0.0.1:9/x"), "SELECT 1")
    assert dead.outcome is Outcome.INFRA


def test_rows_that_only_a_journal_holds_make_another_source(tmp_path):
    file = tmp_path / "written.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (x INTEGER)")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        target = declared("sql", "query", url=str(file)).target
        hashes = [target.source_hash()]
        for number in range(2):
            writer.execute("INSERT INTO t VALUES (?)", (number,))
            hashes.append(target.source_hash())
    assert len(set(hashes)) == 3


def test_a_transaction_that_ends_while_its_journal_is_read_is_no_failure(tmp_path, monkeypatch):
    file = tmp_path / "written.sqlite"
    file.write_bytes(b"")
    target = declared("sql", "query", url=str(file)).target
    before = target.source_hash()
    (tmp_path / "written.sqlite-journal").write_text("x")

    def end_and_hash(path):
        if path.name.endswith("-journal"):
            path.unlink()
        return hash_path(path)

    monkeypatch.setattr("rlf.apps.sql.tool.hash_path", end_and_hash)
    assert target.source_hash() == before
