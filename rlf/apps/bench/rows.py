"""`env: {kind: rows}`: rows that bring their own tools as documents, and a class that plays and judges them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from rlf.core.callables import CallableName, about_to_run
from rlf.core.identity import hash_json, hash_path
from rlf.data.source import read_rows
from rlf.environments.instances import ClassWorld
from rlf.environments.kind import ANY_ARGUMENTS, DOCUMENTS, EnvSpec, MakeWorld, Step, read_document
from rlf.environments.processes import ClassProcesses
from rlf.tools.declaration import TOOL_NAME
from rlf.types import Task, ToolCall, ToolDescription, Turn


class RowsEnv(EnvSpec):
    """Rows whose column `tools` holds the documents of the tools that their trajectories see. Two rows may describe
    one name differently.

    A class derived from `rlf.apps.bench.rows.RowWorld` answers every call and scores what the model wrote, so
    that a checker of others sees also calls that no tool could take. It lives in a process of its own, in which the
    packages of `packages` come before all others.
    """

    FILES: ClassVar[tuple[str, ...]] = ("rows",)

    kind: Literal["rows"] = "rows"
    rows: tuple[str, ...] = Field(min_length=1)
    """Files with the rows, relative to the file that says so: those that `data` names."""
    callable: CallableName
    """The class: `package.module:name`, or `path/file.py:name` relative to the file that says so."""
    args: Mapping[str, Any] = {}
    """Arguments of the class, by name."""
    scores: tuple[str, ...] = Field(min_length=1)
    """Names of the scores that it gives."""
    packages: str | None = None
    """A folder with packages for this class alone."""
    judge: str = ""
    """Name and version of the package that judges, for the lineage."""
    _hash: str | None = PrivateAttr(default=None)

    @property
    def speaks(self) -> bool:
        """The class decides answer by answer."""
        return True

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Those that the spec names."""
        return self.scores

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The names of all rows' tools, which take any arguments: what is wrong with a call the class says."""
        rows = (row for file in self.rows for row in read_rows(file, None, "train", None))
        found = {tool.name for row in rows for tool in self.tools_of(row.values)}
        names = sorted(name for name in found if re.match(TOOL_NAME, name))
        return [ToolDescription(name, "As the row describes it.", ANY_ARGUMENTS) for name in names]

    def tools_of(self, columns: Mapping[str, Any]) -> Sequence[ToolDescription]:
        """Those of the row's documents."""
        return [read_document(document) for document in columns.get(DOCUMENTS) or ()]

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """The documents."""
        return [DOCUMENTS] if DOCUMENTS not in columns else []

    def source_hash(self) -> str:
        """Covers the rows, the class's name and arguments, and what judges."""
        if self._hash is None:  # each of a hundred tools asks
            self._hash = hash_json(
                [self.callable, dict(self.args), self.judge, *(hash_path(Path(file)) for file in self.rows)]
            )
        return self._hash

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Imports the class in the process that its instances' are forked from. Raises RlfError."""
        about_to_run(f"import {self.callable}")
        path = () if self.packages is None else (self.packages,)
        async with ClassProcesses(self.callable, RowWorld, self.args, path=path) as processes:
            spare: list[Any] = []

            async def make() -> _World:
                while spare:
                    if (instance := spare.pop()).home.listens:
                        return _World(instance, processes, spare)
                    await processes.discard(instance)
                return _World(await processes.make(), processes, spare)

            try:
                yield make
            finally:
                for instance in spare:
                    await processes.discard(instance)


class RowWorld:
    """The class of a benchmark: made for each trajectory, in a process of its own."""

    done = False
    """Whether the episode is over."""

    @classmethod
    def import_shared(cls, **args: Any) -> None:
        """Imports and reads what all instances share, before they are forked; takes their arguments."""

    def reset(self, task: Task, seed: int) -> str | None:
        """Begins a row's episode; what stands before the prompt's last words, or None."""
        return None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Answers a call."""
        return None

    def reply(self, text: str) -> str | None:
        """Answers a turn that calls nothing; None ends the episode."""
        return None

    def review(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Takes what the model wrote before it is scored: each turn's `text`, and its `calls` as pairs."""

    def score(self) -> Mapping[str, float]:
        """Scores by name."""
        raise NotImplementedError

    def gold(self) -> Sequence[Any] | None:
        """Calls and answers that solve the task, for trials; None where they are not known."""
        return None

    def close(self) -> bool | None:
        """Releases what it holds. True: `reset` begins as in a new instance, so that its process serves another row."""


class _World(ClassWorld):
    """A `RowWorld` in its process."""

    def __init__(self, instance: Any, place: ClassProcesses, spare: list[Any]) -> None:
        super().__init__(instance, place)
        self._spare = spare

    async def call(self, call: ToolCall) -> Step:
        arguments = {"tool": call.name, "arguments": dict(call.arguments)}
        return self._to_step(await self._place.live(self._instance, "call", **arguments))

    async def review(self, turns: Sequence[Turn]) -> None:
        plain = [
            {"text": turn.text, "calls": [(one.call.name, dict(one.call.arguments)) for one in turn.calls]}
            for turn in turns
        ]
        await self._place.live(self._instance, "review", turns=plain)

    async def close(self) -> None:
        is_fresh = False
        try:
            is_fresh = await self._place.live(self._instance, "close") is True
        finally:
            if is_fresh:
                self._spare.append(self._instance)
            else:
                await self._place.discard(self._instance)
