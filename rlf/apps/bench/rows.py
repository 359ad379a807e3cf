"""`env: {kind: rows}`: rows that bring their own tools as documents, and a class that plays and judges them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, PrivateAttr

from rlf.core.callables import CallableName, about_to_run
from rlf.core.identity import hash_json, hash_path
from rlf.core.kinds import StrictModel
from rlf.data.source import read_rows
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, SamplingSpec
from rlf.environments.instances import ClassWorld
from rlf.environments.kind import DOCUMENTS, EnvSpec
from rlf.environments.processes import ClassProcesses
from rlf.environments.world import ANY_ARGUMENTS, MakeWorld, Step, read_document
from rlf.tools.agent_text import harmless, special_tokens
from rlf.tools.declaration import TOOL_NAME
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, Turn

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool


class UserModel(StrictModel):
    """The model that plays a benchmark's user."""

    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1)
    """Servers of the model; the least busy one is asked, and another one where it fails."""
    sampling: SamplingSpec = SamplingSpec()


class UserRequest(NamedTuple):
    """What `reset`, `reply` and `hear` of a class return where a model plays the user: it is asked, and `hear` takes
    its message."""

    messages: Sequence[Mapping[str, Any]]
    """The conversation as that model sees it, in the OpenAI form."""
    tools: Sequence[Mapping[str, Any]] = ()
    """The user's own, in the OpenAI form."""


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
    user: UserModel | None = None
    """Plays the user, of a class that asks one."""
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
            parts: list[Any] = [
                self.callable,
                dict(self.args),
                self.judge,
                *(hash_path(Path(file)) for file in self.rows),
            ]
            if self.user is not None:
                models = [[endpoint.url, endpoint.model] for endpoint in self.user.endpoints]
                parts += [models, self.user.sampling.model_dump(mode="json")]
            self._hash = hash_json(parts)
        return self._hash

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Imports the class in the process that its instances' are forked from. Raises RlfError."""
        about_to_run(f"import {self.callable}")
        path = () if self.packages is None else (self.packages,)
        async with AsyncExitStack() as stack:
            pool = None
            if self.user is not None:
                from rlf.endpoints.pool import open_pool

                pool = await open_pool(self.user.endpoints)
                stack.push_async_callback(pool.close)
            processes = await stack.enter_async_context(ClassProcesses(self.callable, RowWorld, self.args, path=path))
            spare: list[Any] = []

            async def make() -> _World:
                while spare:
                    if (instance := spare.pop()).home.listens:
                        return _World(self, instance, processes, spare, pool)
                    await processes.discard(instance)
                return _World(self, await processes.make(), processes, spare, pool)

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

    def reset(self, task: Task, seed: int) -> str | UserRequest | None:
        """Begins a row's episode; what stands before the prompt's last words, or None."""
        return None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Answers a call."""
        return None

    def reply(self, text: str) -> str | UserRequest | None:
        """Answers a turn that calls nothing; None ends the episode."""
        return None

    def hear(self, message: Mapping[str, Any]) -> str | UserRequest | None:
        """Takes the message of the model that plays the user, and returns what `reply` does."""
        raise NotImplementedError

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

    def __init__(
        self, spec: RowsEnv, instance: Any, place: ClassProcesses, spare: list[Any], pool: EndpointPool | None
    ) -> None:
        super().__init__(instance, place)
        self._spec, self._spare, self._pool = spec, spare, pool

    async def reset(self, task: Task, seed: int) -> str | None:
        said: str | None = await self._ask_user(await super().reset(task, seed), self._spec.limits.reset_s)
        return said

    async def reply(self, text: str) -> Step:
        said = await self._place.live(self._instance, "reply", text=text)
        return self._to_step(await self._ask_user(said, self._spec.limits.step_s))

    async def _ask_user(self, said: Any, deadline_s: float) -> Any:
        """What the user says, by the model that plays it where the class asks for that. Raises ToolFailure."""
        if not isinstance(said, UserRequest):
            return said
        from rlf.endpoints.pool import Caller

        if self._pool is None or self._spec.user is None:
            raise ToolFailure(Outcome.INFRA, "the class asks a model, and the spec's `env.user` names none")
        user, tokens = self._spec.user, special_tokens(*(endpoint.model for endpoint in self._spec.user.endpoints))
        while isinstance(said, UserRequest):
            # The policy's words, which must open no role of the model that plays the user.
            shown = [
                {**one, "content": harmless(str(one["content"]), tokens)} if one["role"] == "user" else one
                for one in said.messages
            ]
            try:
                caller = Caller(deadline_s, self._spec.meter)
                answer = await self._pool.chat(shown, caller, sampling=user.sampling, tools=said.tools)
            except EndpointFailure as failure:
                words = f"the model that plays the user: {failure.outcome}: {failure.text}"
                raise ToolFailure(Outcome.INFRA, words) from failure
            said = await self._place.live(self._instance, "hear", message=answer.message())
        return said

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
