"""`target: {kind: sql}`: a database that the model reads with SQL."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import RlfError
from rlf.core.files import scratch
from rlf.core.identity import hash_json, hash_path
from rlf.core.kinds import wrong_value
from rlf.core.redact import clean
from rlf.sandbox import Execution, LevelChoice, QueryRows, Sandbox, SandboxOutcome, SandboxSpec, SqlRequest
from rlf.tools.kind import CallContext, Limits, ToolKind, ToolRuntime
from rlf.tools.sandboxed import argument_complaints, error_of, refuse_failures, usage_of, within_time
from rlf.types import ToolOutput

_SQLITE = "sqlite:///"
_SCHEME = re.compile(r"[a-z][a-z0-9+]*://")
# SQLAlchemy's name with its driver is accepted, since people copy it from RLF_DB.
_POSTGRES = re.compile(r"postgresql(\+psycopg)?://")


def _resolve_url(url: str, info: ValidationInfo) -> str:
    """A SQLite file's path, made absolute against the folder of the file that says so; PostgreSQL's URL as it is."""
    place = url.removeprefix(_SQLITE)
    if _POSTGRES.match(place):
        return place
    if _SCHEME.match(place):
        raise wrong_value("expected a SQLite file, `builtin:` and a name, or a URL that begins with `postgresql://`")
    if place.startswith(BUILTIN):
        try:
            return str(builtin_path(place.removeprefix(BUILTIN)))
        except RlfError as fault:
            raise wrong_value(str(fault)) from fault
    folder: Path | None = (info.context or {}).get("folder")
    return os.path.normpath((folder or Path()) / place)  # as files of a spec are named, so that hashes find it


class SqlTool(ToolKind):
    """A SQLite file, read in the sandbox, or a PostgreSQL database, read in a transaction that cannot write."""

    kind: Literal["sql"] = "sql"
    is_local = True
    url: Annotated[str, AfterValidator(_resolve_url)] = Field(min_length=1)
    """A SQLite file, relative to the file that says so, `builtin:` and a name, or PostgreSQL's SQLAlchemy URL.
    Its role should be one that may only read."""
    argument: str = Field(default="query", min_length=1)
    """The argument that holds the statement."""
    read_only: bool = True
    """Statements only read; there is no other way, and `false` is a fault."""
    max_rows: int = Field(default=50, ge=1)
    """Rows that are shown; the model sees that there are more."""
    max_bytes: int = Field(default=20_000, ge=100)
    """Size of all values that are shown."""
    sandbox: SandboxSpec = SandboxSpec()

    @field_validator("read_only")
    @classmethod
    def _only_reads(cls, read_only: bool) -> bool:
        if not read_only:
            raise wrong_value("models only read databases; remove `read_only: false`")
        return read_only

    @field_validator("sandbox")
    @classmethod
    def _is_here(cls, sandbox: SandboxSpec) -> SandboxSpec:
        if sandbox.level is LevelChoice.REMOTE:
            raise wrong_value("level `remote` runs no SQL; remove `level` and `url`")
        if sandbox.packages:
            raise wrong_value("SQL takes no `packages`; remove them")
        return sandbox

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return None if _POSTGRES.match(self.url) else Path(self.url)

    @property
    def data_files(self) -> Sequence[str]:
        """The SQLite file."""
        return () if self.file is None else (str(self.file),)

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """The statement must be an argument, and the file be there."""
        found = argument_complaints(self.argument, input_schema)
        if self.file is not None and not self.file.is_file():
            found.append(f"no such file {self.file}; correct `url`")
        return found

    def source_hash(self) -> str:
        """Covers a SQLite file's content, its journals included; of PostgreSQL the place alone."""
        if self.file is not None:
            journals = list[str]()
            for journal in _find_journals(self.file):
                with suppress(FileNotFoundError):  # its transaction has ended meanwhile
                    journals.append(hash_path(journal))
            return hash_json([hash_path(self.file), self.max_rows, self.max_bytes, *journals])
        place = self.url.rpartition("@")[2]
        return hash_json([place, self.max_rows, self.max_bytes])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts the sandbox of a SQLite file, or the reader of a PostgreSQL database. Raises RlfError."""
        runtime = SqlRuntime(self)
        await (runtime.open_file(self.file) if self.file is not None else runtime.open_postgres())
        return runtime


class SqlRuntime(ToolRuntime):
    """Runs statements. A call that is given up is killed."""

    def __init__(self, tool: SqlTool) -> None:
        self._tool = tool
        self._run: Callable[[SqlRequest], Awaitable[Execution]]

    async def open_file(self, file: Path) -> None:
        """Starts the sandbox of a SQLite file, or of a copy where somebody writes to it."""
        async with AsyncExitStack() as stack:
            if _find_journals(file):
                file = await asyncio.to_thread(_copy_database, file, stack.enter_context(scratch("rlf-sql")))
            sandbox = await stack.enter_async_context(Sandbox(self._tool.sandbox, databases=[file]))
            self.isolation, self._run = sandbox.level.value, partial(sandbox.sql, file)
            self.held.push_async_exit(stack.pop_all())

    async def open_postgres(self) -> None:
        """Starts the reader of a database."""
        from rlf.apps.sql.databases import PostgresReader

        reader = await self.held.enter_async_context(PostgresReader(self._tool.url, self._tool.sandbox.limits))
        self.isolation, self._run = reader.level.value, reader.sql

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one statement. Raises ToolFailure for a time that was up, and where sandbox or database failed."""
        tool, limits = self._tool, within_time(self._tool.sandbox.limits, context)
        execution = await self._run(SqlRequest(arguments[tool.argument], tool.max_rows, tool.max_bytes, limits))
        refuse_failures(execution)
        usage, table = usage_of(execution), execution.table
        if execution.outcome is not SandboxOutcome.OK or table is None:
            return ToolOutput(clean(error_of(execution)), is_error=True, usage=usage)
        rows = [list(row) for row in table.rows]
        structured = {"columns": list(table.columns), "rows": rows, "truncated": table.truncated}
        return ToolOutput(clean(_as_text(table)), structured=structured, usage=usage)


def _as_text(table: QueryRows) -> str:
    """One row a line, cells between bars, the columns' names first."""
    cells = [
        ["NULL" if value is None else " ".join(str(value).split("\n")) for value in line]
        for line in (table.columns, *table.rows)
    ]
    text = "\n".join(map(" | ".join, cells))
    if table.truncated:
        return f"{text}\n(more rows are left out)"
    return text if table.rows else f"{text}\n(no rows)"


def _find_journals(file: Path) -> list[Path]:
    """The journals of a file that is being written: not all of its content is in the file itself."""
    found = list[Path]()
    for path in (file.with_name(file.name + end) for end in ("-wal", "-journal")):
        with suppress(FileNotFoundError):
            if path.stat().st_size:
                found.append(path)
    return found


def _copy_database(file: Path, folder: Path) -> Path:
    """A copy of the database as it is now, which no writer changes."""
    copy = folder / "snapshot.sqlite"
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy
