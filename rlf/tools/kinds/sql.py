"""`target: {kind: sql}`: a database that the model reads with SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.core import RlfError
from rlf.core.hashing import hash_json, hash_path
from rlf.sandbox.level import LevelChoice
from rlf.sandbox.spec import SandboxSpec
from rlf.tools.kind import ToolKind, ToolRuntime
from rlf.tools.limits import Limits
from rlf.tools.sandboxed import argument_complaints

_SQLITE = "sqlite:///"
_SCHEME = re.compile(r"[a-z][a-z0-9+]*://")
_POSTGRES = re.compile(r"postgresql(\+psycopg)?://")


def _resolved(url: str, info: ValidationInfo) -> str:
    """A SQLite file's path, made absolute against the folder of the file that says so; PostgreSQL's URL as it is."""
    place = url.removeprefix(_SQLITE)
    if _POSTGRES.match(place):
        return place
    if _SCHEME.match(place):
        reason = "expected a SQLite file, `builtin:` and a name, or a URL that begins with `postgresql://`"
        raise PydanticCustomError("sql_tool", "{reason}", {"reason": reason})
    if place.startswith(BUILTIN):
        try:
            return str(builtin_path(place.removeprefix(BUILTIN)))
        except RlfError as fault:
            raise PydanticCustomError("sql_tool", "{reason}", {"reason": str(fault)}) from fault
    folder: Path | None = (info.context or {}).get("folder")
    return str((folder or Path()) / place)


class SqlTool(ToolKind):
    """A SQLite file, read in the sandbox, or a PostgreSQL database, read in a transaction that cannot write."""

    kind: Literal["sql"] = "sql"
    url: Annotated[str, AfterValidator(_resolved)] = Field(min_length=1)
    """A SQLite file, relative to the file that says so, `builtin:` and a name, or PostgreSQL's SQLAlchemy URL.
    Its role should be one that may only read."""
    argument: str = Field(default="query", min_length=1)
    """The argument that holds the statement."""
    read_only: bool = True
    """Statements only read; there is no other way, and `false` is a fault."""
    max_rows: int = Field(default=50, ge=1)
    """Rows that are shown; the model is told that there are more."""
    max_bytes: int = Field(default=20_000, ge=100)
    """Size of all values that are shown."""
    sandbox: SandboxSpec = SandboxSpec()

    @field_validator("read_only")
    @classmethod
    def _only_reads(cls, read_only: bool) -> bool:
        if not read_only:
            raise PydanticCustomError("sql_tool", "models only read databases; remove `read_only: false`")
        return read_only

    @field_validator("sandbox")
    @classmethod
    def _is_here(cls, sandbox: SandboxSpec) -> SandboxSpec:
        if sandbox.level is LevelChoice.REMOTE:
            raise PydanticCustomError("sql_tool", "level `remote` runs no SQL; remove `level` and `url`")
        if sandbox.packages:
            raise PydanticCustomError("sql_tool", "SQL takes no `packages`; remove them")
        return sandbox

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return None if _POSTGRES.match(self.url) else Path(self.url)

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """The statement must be an argument, and the file be there."""
        found = argument_complaints(self.argument, input_schema)
        if self.file is not None and not self.file.is_file():
            found.append(f"no such file {self.file}; correct `url`")
        return found

    def source_hash(self) -> str:
        """Covers a SQLite file's content; of PostgreSQL the place alone."""
        if self.file is not None:
            return hash_json([hash_path(self.file), self.max_rows, self.max_bytes])
        place = self.url.rpartition("@")[2]
        return hash_json([place, self.max_rows, self.max_bytes])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Starts what runs the statements."""
        from rlf.tools.sql import SqlRuntime

        return await SqlRuntime.open(self)
