"""`env: {kind: sql}`: a database per trajectory, with declared queries and statements as tools."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.core.hashing import hash_bytes, hash_json
from rlf.core.models import StrictModel
from rlf.environments.kind import EnvSpec, WorldMaker
from rlf.environments.world import Step, World
from rlf.tools.failure import ToolFailure, describe
from rlf.tools.limits import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.types import Outcome, Task, ToolCall, ToolDescription

T = TypeVar("T")
_MAX_ROWS_SHOWN = 2000
"""Rows of a table that a state shows one by one; a larger table is shown by its hash."""
_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock."""


class SqlStatement(StrictModel):
    """A tool: one SQL statement, whose `:name`s are the call's arguments."""

    description: str = Field(min_length=1)
    sql: str = Field(min_length=1)
    """What runs: the rows of a query are the result, as JSON; of another statement how many rows it changed."""
    parameters: Mapping[str, dict[str, Any]] = {}
    """JSON Schema of each argument; all are required but those with a `default`."""
    otherwise: str | None = None
    """What the model reads where a statement changes nothing, or a query finds nothing, as a refusal; `{name}` is an
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
        """The arguments as SQLite takes them."""
        defaults = {name: schema.get("default") for name, schema in self.parameters.items()}
        return _bindable(defaults | dict(arguments))


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
            raise PydanticCustomError("sql_score", "{reason}", {"reason": words})
        return self


class SqlEnv(EnvSpec):
    """A SQLite database of its own for each trajectory, a copy in memory of a seed file that nothing writes to.

    Tools are declared statements, which take arguments by name and can do nothing else. Scores are assertions over the
    final state, or its equality with the state after the row's own calls.
    """

    FILES: ClassVar[tuple[str, ...]] = ("database",)

    kind: Literal["sql"] = "sql"
    database: str
    """The seed: a SQLite file, relative to the file that says so, or a script `*.sql` that makes one."""
    setup: tuple[str, ...] = ()
    """Statements that run at a reset; `:name`s are the columns of the row."""
    statements: Mapping[str, SqlStatement] = {}
    """The tools by name."""
    scores: Mapping[str, SqlScore] = Field(min_length=1)
    """By name."""

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Those that are declared."""
        return tuple(self.scores)

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The declared statements."""
        return [ToolDescription(name, one.description, one.input_schema) for name, one in self.statements.items()]

    def static_complaints(self) -> list[str]:
        """Loads the seed, and has SQLite read every statement."""
        try:
            seed = read_seed(self.database)
        except (OSError, sqlite3.Error) as fault:
            return [f"database: {self.database} cannot be read: {describe(fault)}"]
        with closing(_open(seed)) as connection:
            return list(self._find_misfits(connection))

    def _find_misfits(self, connection: sqlite3.Connection) -> Iterator[str]:
        for name, one in self.statements.items():
            try:
                connection.execute(f"EXPLAIN {one.sql}", dict.fromkeys(one.parameters))
            except sqlite3.Error as fault:
                yield f"statements.{name}: {fault}"
        for name, score in self.scores.items():
            for table in score.tables or ():
                if table not in tables_of(connection):
                    yield f"scores.{name}: there is no table {table!r} (there are: {', '.join(tables_of(connection))})"

    def source_hash(self) -> str:
        """Covers the seed, the statements and the scores."""
        said = self.model_dump(mode="json", include={"setup", "statements", "scores"}, by_alias=True)
        return hash_json([hash_bytes(read_seed(self.database)), said])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WorldMaker]:
        """Reads the seed once; worlds share its bytes and a pool of threads."""
        threads = ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)
        try:
            yield _Maker(self, await asyncio.to_thread(read_seed, self.database), threads)
        finally:
            threads.close()


def read_seed(database: str) -> bytes:
    """A seed as the bytes of a SQLite file. Raises OSError or sqlite3.Error."""
    file = Path(database)
    with closing(sqlite3.connect(":memory:")) as connection:
        if file.suffix == ".sql":
            connection.executescript(file.read_text(encoding="utf-8"))
        else:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source:
                source.backup(connection)
        return connection.serialize()


def tables_of(connection: sqlite3.Connection) -> list[str]:
    """The names of the tables, sorted."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return sorted(name for (name,) in found)


def rows_of(connection: sqlite3.Connection, table: str) -> list[list[Any]]:
    """All rows of a table in an order that their content decides."""
    found = [[_plain(value) for value in row] for row in connection.execute(f'SELECT * FROM "{table}"')]
    return sorted(found, key=lambda row: json.dumps(row, ensure_ascii=False))


def _open(seed: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    connection.deserialize(seed)
    return connection


def _bindable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as SQLite takes them: lists and mappings as JSON."""
    plain = (str, int, float, bytes, type(None))
    return {name: value if isinstance(value, plain) else json.dumps(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    return f"sha256:{hash_bytes(value)}" if isinstance(value, bytes) else value


class _Maker:
    """Makes copies of one seed."""

    def __init__(self, spec: SqlEnv, seed: bytes, threads: ThreadPool) -> None:
        self.spec, self.seed, self._threads = spec, seed, threads

    async def make(self) -> World:
        """A world over a copy of the seed."""
        return _SqlWorld(self)

    async def run(self, work: Callable[[], T]) -> T:
        """What work gives, on a thread."""
        return await self._threads.run(work)


class _SqlWorld(World):
    """One database."""

    shows_state = True

    def __init__(self, maker: _Maker) -> None:
        self._maker, self._spec = maker, maker.spec
        self._connection: sqlite3.Connection | None = None
        self._columns: dict[str, Any] = {}
        self._shown: tuple[int, dict[str, Any]] | None = None
        """The last state that was shown, and the number of changes until then."""

    async def reset(self, task: Task, seed: int) -> None:
        self._columns = dict(task.columns)
        self._connection = await self._maker.run(self._started)

    def _started(self) -> sqlite3.Connection:
        connection = _open(self._maker.seed)
        for statement in self._spec.setup:
            connection.execute(statement, _bindable(self._columns))
        return connection

    async def call(self, call: ToolCall) -> Step:
        return Step(await self._maker.run(lambda: self._called(self._open_one, call)))

    def _called(self, connection: sqlite3.Connection, call: ToolCall) -> Any:
        """What a call gives. Raises ToolFailure where the database refuses it, or it does nothing."""
        statement = self._spec.statements[call.name]
        try:
            with _limited(connection, self._spec.limits.step_s):
                cursor = connection.execute(statement.sql, statement.bound(call.arguments))
                names = [column[0] for column in cursor.description or ()]
                rows = [dict(zip(names, map(_plain, row), strict=True)) for row in cursor]
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as fault:
            raise ToolFailure(Outcome.TOOL_ERROR, str(fault)) from fault
        if statement.otherwise is not None and not (rows if names else cursor.rowcount > 0):
            words = statement.otherwise
            for name, value in call.arguments.items():
                words = words.replace(f"{{{name}}}", str(value))
            raise ToolFailure(Outcome.TOOL_ERROR, words)
        return rows if names else {"changed": max(cursor.rowcount, 0)}

    async def score(self) -> Mapping[str, float]:
        return await self._maker.run(lambda: {name: self._scored(score) for name, score in self._spec.scores.items()})

    def _scored(self, score: SqlScore) -> float:
        if score.assertion is not None:
            row = self._open_one.execute(score.assertion, _bindable(self._columns)).fetchone()
            if row is None or row[0] is None:
                return 0.0
            return float(row[0])
        assert score.after is not None, "a score of neither form"
        with closing(self._started()) as goal:
            for action in self._columns[score.after] or ():
                if isinstance(action, str):
                    goal.execute(action, _bindable(self._columns))
                else:
                    self._called(goal, ToolCall(action["name"], action.get("arguments", {})))
            tables = score.tables or tables_of(goal)
            return float(
                (score.tables is not None or tables == tables_of(self._open_one))
                and all(rows_of(goal, table) == rows_of(self._open_one, table) for table in tables)
            )

    async def state(self) -> dict[str, Any]:
        changes = self._open_one.total_changes
        if self._shown is None or self._shown[0] != changes:
            self._shown = changes, await self._maker.run(lambda: _state(self._open_one))
        return self._shown[1]

    async def snapshot(self) -> tuple[bytes, dict[str, Any]]:
        return self._open_one.serialize(), self._columns

    async def restore(self, snapshot: tuple[bytes, dict[str, Any]]) -> None:
        seed, self._columns = snapshot
        self._connection, self._shown = _open(seed), None

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()
            self._connection.close()

    @property
    def _open_one(self) -> sqlite3.Connection:
        assert self._connection is not None, "a database before its reset"
        return self._connection


def _state(connection: sqlite3.Connection) -> dict[str, Any]:
    """Every table by its rows; one with many rows by their hash."""
    tables = {table: rows_of(connection, table) for table in tables_of(connection)}
    return {table: rows if len(rows) <= _MAX_ROWS_SHOWN else hash_json(rows) for table, rows in tables.items()}


@contextmanager
def _limited(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    """Has SQLite give up when the time of a step is over."""
    end = monotonic() + limit_s
    connection.set_progress_handler(lambda: monotonic() > end, _STEPS_PER_LOOK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
