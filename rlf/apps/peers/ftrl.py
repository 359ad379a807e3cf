"""`env: {kind: ftrl}`: FTRL's rows, which bring their own tools as source, run in a sandbox."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal
from uuid import uuid4

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.apps.peers.workers import ftrl_tools
from rlf.core import RlfError
from rlf.core.errors import describe_type
from rlf.core.identity import MIN_BYTES, hash_bytes, hash_json, remember, stamp_file
from rlf.core.plain_json import read_json
from rlf.data.source import read_rows
from rlf.environments.instances import UNFIT
from rlf.environments.kind import DOCUMENTS, EnvSpec
from rlf.environments.sandboxes import NamedSessions, complain_of_level, open_sessions
from rlf.environments.world import ANY_ARGUMENTS, MakeWorld, Step, World, read_document
from rlf.rewards.values import Finding, count_solved, keyed_golds, read_golds, text_keys, value_keys
from rlf.sandbox import SandboxSpec
from rlf.tools.outputs import to_text
from rlf.tools.results import ToolFailure
from rlf.types import Outcome as ToolOutcome
from rlf.types import Task, ToolCall, ToolDescription

TOOLS, CODES, UNSOLVED = DOCUMENTS, "codes", "unsolved_set"
"""Columns: the tools' documents, their source by name, and the golds of the sub-questions by tool."""

_HOST = Path(ftrl_tools.__file__).read_text(encoding="utf-8")


class FtrlEnv(EnvSpec):
    """Rows as FTRL has them: each brings its tools as documents (`tools`) and as source (`codes`).

    A trajectory sees its row's tools alone, and runs their source in a sandboxed process of its own, whose state stays
    from call to call. Two rows may describe one name differently. The score `solved` is
    the share of the row's sub-questions (`unsolved_set`) that calls have solved, by value and type; the reward rule
    `ftrl` and the metrics of solving read the same column.
    """

    FILES: ClassVar[tuple[str, ...]] = ("rows",)

    kind: Literal["ftrl"] = "ftrl"
    rows: tuple[str, ...] = Field(min_length=1)
    """Files with the rows, relative to the file that says so: those that `data` names."""
    sandbox: SandboxSpec = SandboxSpec()

    @model_validator(mode="after")
    def _level_keeps_sessions(self) -> FtrlEnv:
        if words := complain_of_level(self.sandbox):
            raise PydanticCustomError("ftrl_env", "{reason}", {"reason": words})
        return self

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Always the same."""
        return ("solved",)

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The documents of all rows; of a name that two rows describe differently, only that there is such a tool."""
        found: dict[str, ToolDescription] = {}
        for document in self._survey_rows()["documents"]:
            tool = read_document(document)
            if found.setdefault(tool.name, tool) != tool:
                found[tool.name] = ToolDescription(tool.name, "As the row describes it.", ANY_ARGUMENTS)
        return list(found.values())

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription]:
        """Those of the row's documents."""
        return [read_document(document) for document in _read_column(columns, TOOLS)]

    def static_complaints(self) -> list[str]:
        """Looks for source of every tool, and reads it; a row with nothing to solve has no score."""
        found: list[str] = self._survey_rows()["complaints"]
        return found

    def complaints(self) -> list[str]:
        """Finds nothing more: no source runs before a trajectory."""
        return []

    def _survey_rows(self) -> dict[str, Any]:
        """The documents that differ, and complaints; of large files that are unchanged as they were found before."""
        stamps = [stamp_file(Path(file), MIN_BYTES) for file in self.rows]
        return self._read_all() if None in stamps else remember(["ftrl rows", stamps], self._read_all)

    def _read_all(self) -> dict[str, Any]:
        """Reads every row once, and every document and source that rows share once. Raises RlfError."""
        faults: Counter[str] = Counter()
        complaint_on = cache(_describe_complaint)
        documents: dict[str, list[Mapping[str, Any]]] = {}
        num_empty = 0
        for row in self._read_rows():
            num_empty += not any((read_golds(row[UNSOLVED]) or {}).values())
            for document in row[TOOLS]:
                name = read_document(document).name
                if document not in (known := documents.setdefault(name, [])):
                    known.append(document)
                source = row[CODES].get(name)
                faults[complaint_on(name, source if isinstance(source, str) else None)] += 1
        del faults[""]
        found = [f"{CODES}: {complaint} ({number} rows)" for complaint, number in faults.most_common(5)]
        if num_empty:
            found.append(f"{UNSOLVED}: there is nothing to solve, and so no score; remove such rows ({num_empty} rows)")
        return {"documents": list(chain.from_iterable(documents.values())), "complaints": found}

    def _read_rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows with their columns read. Raises RlfError."""
        for file in self.rows:
            for row in read_rows(file, None, "train", None):
                try:
                    yield {name: _read_column(row.values, name) for name in (TOOLS, CODES)} | {
                        UNSOLVED: row.values.get(UNSOLVED)
                    }
                except (ValueError, TypeError, KeyError) as fault:
                    raise RlfError(f"env: {row.place}: not a row of FTRL: {fault}.") from fault

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Source and golds."""
        return [name for name in (CODES, UNSOLVED) if name not in columns]

    def source_hash(self) -> str:
        """Covers the files, and what is asked of the sandbox."""
        return hash_json(
            [[hash_bytes(Path(file).read_bytes()) for file in self.rows], self.sandbox.model_dump(mode="json")]
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Starts the sandbox. Raises RlfError with every reason where no level holds."""
        async with open_sessions(self.sandbox, self.limits) as sessions:

            async def make() -> World:
                return _FtrlWorld(sessions)

            yield make


def _read_column(values: Mapping[str, Any], name: str) -> Any:
    value = values[name]
    value = read_json(value) if isinstance(value, str) else value
    if not isinstance(value, list if name == TOOLS else Mapping):
        raise ValueError(f"{name} is {describe_type(value)}")
    return value


def _describe_complaint(tool: str, source: str | None) -> str:
    """Describes why a tool's source cannot be run; empty where it can."""
    if source is None:
        return f"the tool {tool!r} has no source"
    try:
        names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError as fault:
        return f"the source of the tool {tool!r} is not valid Python: {fault.msg} in line {fault.lineno}"
    return "" if tool in names else f"the source of the tool {tool!r} defines no function of that name"


class _FtrlWorld(World):
    """The tools of one row, in a session that begins at the reset."""

    ends_when_cancelled = True

    def __init__(self, sessions: NamedSessions) -> None:
        self._sessions, self._session = sessions, uuid4().hex
        self._golds: dict[str, list[Any]] = {}
        self._findings: list[Finding] = []

    async def reset(self, task: Task, seed: int) -> None:
        codes = _read_column(task.columns, CODES)
        golds = read_golds(task.columns.get(UNSOLVED))
        if golds is None or not any(golds.values()):
            words = "is not a mapping of tools to lists of answers" if golds is None else "has nothing to solve"
            raise ValueError(f"{UNSOLVED} {words}")
        self._golds = golds
        answer = await self._sessions.ask(self._session, f"{_HOST}\nload_sources({json.dumps(codes)!r})")
        if answer:
            raise RuntimeError(answer)

    async def call(self, call: ToolCall) -> Step:
        asked = json.dumps([call.name, dict(call.arguments)])
        answer = await self._sessions.ask(self._session, f"call_source({asked!r})")
        match answer:
            case {"refusal": str(text)}:
                raise ToolFailure(ToolOutcome.TOOL_ERROR, text)
            case {"value": value}:
                keys = value_keys(call.arguments)
                self._findings.append(Finding(call.name, text_keys(to_text(value)), keys))
                return Step(value)
        raise ToolFailure(ToolOutcome.INFRA, UNFIT)

    async def score(self) -> Mapping[str, float]:
        total = sum(map(len, self._golds.values()))
        return {"solved": count_solved(self._findings, keyed_golds(self._golds)) / total}

    async def close(self) -> None:
        await self._sessions.end(self._session)
