"""`env: {kind: sql}`: a database per trajectory, with declared queries and statements as tools."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlf.apps.sql.databases import Database, PostgresSeed, Seed, SqliteSeed, read_sqlite, rows_of
from rlf.core import RlfError
from rlf.core.callables import about_to_run
from rlf.core.identity import hash_bytes, hash_json
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.text import describe
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, World, fill
from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription

_MAX_ROWS_SHOWN = 2000
"""Rows of a table that a state shows one by one; a larger table is shown by its hash."""


class SqlStatement(StrictModel):
    """A tool: one SQL statement, whose `:name`s are the call's arguments."""

    description: str = Field(min_length=1)
    sql: str = Field(min_length=1)
    """The statement: the rows of a query are the result, as JSON; of another one how many rows it changed."""
    parameters: Mapping[str, dict[str, Any]] = {}
    """JSON Schema of each argument; all are required but those with a `default`."""
    otherwise: str | None = None
    """The refusal that the model reads where a statement changes nothing, or a query finds nothing; `{name}` is an
    argument."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """Of the tool's arguments."""
        needed = [name for name, schema in self.parameters.items() if "default" not in schema]
        return {
            "type": "object",
            "properties": dict(self.parameters),
            "required": needed,
            "additionalProperties": False,
        }

    def bound(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with defaults."""
        return {name: schema.get("default") for name, schema in self.parameters.items()} | dict(arguments)


class SqlScore(StrictModel):
    """A score of the final state."""

    assertion: str | None = Field(None, alias="assert")
    """A query whose first value is the score; `:name`s are the columns of the row."""
    after: str | None = None
    """Column of the row that holds what leads to the goal: a list of calls (`name`, `arguments`) or of statements. The
    score is 1 where the final state equals that of the seed after them, and 0 otherwise."""
    tables: tuple[str, ...] | None = None
    """With `after`: the tables that have to be equal; None: all."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.assertion is None) is (self.after is None):
            words = "a score has either `assert` or `after`; write one of them"
            raise wrong_value(words)
        return self


class SqlEnv(EnvSpec):
    """A database of its own for each trajectory: a copy in memory of a SQLite seed, or a part of a PostgreSQL server.

    Tools are declared statements, which take arguments by name and can do nothing else. Scores are assertions over the
    final state, or its equality with the state after the row's own calls. With `server` and a script as `database` each
    trajectory has a schema of its own, with `server` and `template` a database of its own; it is dropped at the end,
    or, where a run was killed, when the next one begins.
    """

    FILES: ClassVar[tuple[str, ...]] = ("database",)

    kind: Literal["sql"] = "sql"
    database: str | None = None
    """The seed: a SQLite file, relative to the file that says so, or a script `*.sql` that makes one."""
    server: str | None = Field(None, pattern=r"^postgresql(\+psycopg)?://")
    """PostgreSQL's URL; None: SQLite. Its role needs the right to create schemas, or databases with `template`."""
    template: str | None = None
    """A database of `server` that is copied for each trajectory, in place of a script; nobody may be connected to
    it."""
    setup: tuple[str, ...] = ()
    """Statements that run at a reset; `:name`s are the columns of the row."""
    statements: Mapping[str, SqlStatement] = {}
    """The tools by name."""
    scores: Mapping[str, SqlScore] = Field(min_length=1)
    """By name."""

    @model_validator(mode="after")
    def _has_one_seed(self) -> Self:
        words = None
        if (self.database is None) is (self.template is None):
            words = "a world starts from a `database` or a `template`; write one of them"
        elif self.template is not None and self.server is None:
            words = "a `template` is a database of PostgreSQL; write `server` too"
        elif self.server is not None and self.database is not None and not self.database.endswith(".sql"):
            words = "a schema of `server` is made by a script `*.sql`; write one, or `template`"
        if words:
            raise wrong_value(words)
        return self

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Those that are declared."""
        return tuple(self.scores)

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The declared statements."""
        return [ToolDescription(name, one.description, one.input_schema) for name, one in self.statements.items()]

    def static_complaints(self) -> list[str]:
        """Loads a SQLite seed, and has SQLite read every statement; of PostgreSQL nothing."""
        return self._try_seed() if self.server is None else []

    def complaints(self) -> list[str]:
        """The same for PostgreSQL, in a part of the server that is dropped again."""
        return self._try_seed() if self.server is not None else []

    def _try_seed(self) -> list[str]:
        try:
            with closing(self._open_seed()) as seed, closing(seed.make()) as database:
                return [*self._find_crowd(seed), *self._find_misfits(database)]
        except (OSError, sqlite3.Error) as fault:
            return [f"database: {self.database} cannot be read: {describe(fault)}"]
        except RlfError:
            raise
        except Exception as fault:  # noqa: BLE001 - SQLAlchemy's own, which is not imported for SQLite
            return [f"{self.template or self.database} cannot make a world: {describe(fault)}"]

    def _open_seed(self) -> Seed:
        if self.server is None:
            assert self.database is not None, "neither a server nor a database"
            return SqliteSeed(read_sqlite(self.database))
        about_to_run(f"connect to PostgreSQL at {self.server.rpartition('@')[2]}")
        script = None if self.database is None else Path(self.database)
        return PostgresSeed(self.server, script, self.template, self.limits.step_s)

    def _find_crowd(self, seed: Seed) -> Iterator[str]:
        if not isinstance(seed, PostgresSeed):
            return
        each = 2 if any(score.after is not None for score in self.scores.values()) else 1
        most = seed.num_connections // each
        if most < self.limits.max_concurrency:
            words = f"the server has {seed.num_connections} connections for worlds, and each world takes {each}"
            yield f"limits.max_concurrency is {self.limits.max_concurrency}: {words}; write at most {most}"

    def _find_misfits(self, database: Database) -> Iterator[str]:
        for name, one in self.statements.items():
            if fault := database.find_misfit(one.sql, list(one.parameters)):
                yield f"statements.{name}: {fault}"
        tables = database.tables()
        for name, score in self.scores.items():
            for table in score.tables or ():
                if table not in tables:
                    yield f"scores.{name}: there is no table {table!r} (there are: {', '.join(tables)})"

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Those that hold what leads to a goal."""
        return sorted({score.after for score in self.scores.values() if score.after is not None} - {*columns})

    def source_hash(self) -> str:
        """Covers the seed, the statements and the scores; of a template the name alone."""
        said = self.model_dump(mode="json", include={"setup", "statements", "scores"}, by_alias=True)
        if self.server is None:
            assert self.database is not None, "neither a server nor a database"
            return hash_json([hash_bytes(read_sqlite(self.database)), said])
        seed = self.template if self.database is None else hash_bytes(Path(self.database).read_bytes())
        return hash_json(["postgresql", seed, said])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Reads the seed once, or connects; worlds share that and a pool of threads. Raises RlfError."""
        seed = await asyncio.to_thread(self._open_seed)
        try:
            with closing(ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)) as threads:

                async def make() -> World:
                    return _SqlWorld(self, seed, threads)

                yield make
        finally:
            await asyncio.to_thread(seed.close)


class _SqlWorld(World):
    """One database."""

    shows_state = True

    def __init__(self, spec: SqlEnv, seed: Seed, threads: ThreadPool) -> None:
        self._spec, self._seed, self._threads = spec, seed, threads
        self.begins_by_copy = bool(spec.setup)  # else a reset is a copy itself
        self._database: Database | None = None
        self._is_closed = False
        self._columns: dict[str, Any] = {}
        self._shown: tuple[int, dict[str, Any]] | None = None
        """The last state that was shown, and the database's version then."""

    async def reset(self, task: Task, seed: int) -> None:
        self._columns = dict(task.columns)
        await self._threads.run(self._begin_world)

    def _begin_world(self) -> None:
        database = self._make_database()
        if self._is_closed:  # nobody waits for this thread any more
            database.close()
        else:
            self._database = database

    def _make_database(self) -> Database:
        database = self._seed.make()
        try:
            for statement in self._spec.setup:
                database.execute(statement, self._columns)
        except BaseException:
            database.close()
            raise
        return database

    async def call(self, call: ToolCall) -> Step:
        return Step(await self._threads.run(lambda: self._run_statement(self._open_one, call)))

    def _run_statement(self, database: Database, call: ToolCall) -> Any:
        """Runs a call. Raises ToolFailure where the database refuses it, or it does nothing."""
        statement = self._spec.statements[call.name]
        bound = statement.bound(call.arguments)
        names, rows, changed = database.execute(statement.sql, bound, self._spec.limits.step_s)
        if statement.otherwise is not None and not (rows if names else changed):
            raise ToolFailure(Outcome.TOOL_ERROR, str(fill(statement.otherwise, call.arguments)))
        return [dict(zip(names, row, strict=True)) for row in rows] if names else {"changed": changed}

    async def score(self) -> Mapping[str, float]:
        return await self._threads.run(
            lambda: {name: self._compute_score(score) for name, score in self._spec.scores.items()}
        )

    def _compute_score(self, score: SqlScore) -> float:
        if score.assertion is not None:
            rows = self._open_one.execute(score.assertion, self._columns).rows
            return float(rows[0][0]) if rows and rows[0][0] is not None else 0.0
        assert score.after is not None, "a score without `assert` and `after`"
        with closing(self._make_database()) as goal:
            for action in self._columns[score.after] or ():
                if isinstance(action, str):
                    goal.execute(action, self._columns)
                else:
                    self._run_statement(goal, ToolCall(action["name"], action.get("arguments", {})))
            tables = score.tables or goal.tables()
            return float(
                (score.tables is not None or tables == self._open_one.tables())
                and all(rows_of(goal, table) == rows_of(self._open_one, table) for table in tables)
            )

    async def state(self) -> dict[str, Any]:
        version = self._open_one.version
        if self._shown is None or self._shown[0] != version:
            self._shown = version, await self._threads.run(lambda: _read_state(self._open_one))
        return self._shown[1]

    async def snapshot(self) -> tuple[bytes, dict[str, Any]] | None:
        content = self._open_one.serialize()
        return None if content is None else (content, self._columns)

    async def restore(self, snapshot: tuple[bytes, dict[str, Any]]) -> None:
        content, self._columns = snapshot
        self._database, self._shown = SqliteSeed(content).make(), None

    async def close(self) -> None:
        self._is_closed = True
        if self._database is not None:
            self._database.interrupt()
            await self._threads.run(self._database.close)

    @property
    def _open_one(self) -> Database:
        assert self._database is not None, "a database before its reset"
        return self._database


def _read_state(database: Database) -> dict[str, Any]:
    """Every table by its rows; one with many rows by their hash."""
    tables = {table: rows_of(database, table) for table in database.tables()}
    return {table: rows if len(rows) <= _MAX_ROWS_SHOWN else hash_json(rows) for table, rows in tables.items()}
