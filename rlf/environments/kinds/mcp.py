"""`env: {kind: mcp}`: an MCP server whose tools share a state, with lifecycle tools that the model does not see."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from rlf.core import RlfError, nearest
from rlf.core.identity import hash_json
from rlf.core.json_values import read_json
from rlf.core.kinds import StrictModel
from rlf.core.text import clean_value
from rlf.environments.instances import to_actions
from rlf.environments.kind import EnvSpec, MakeWorld, Step, World, fill, hash_state, plain_state
from rlf.tools.mcp.listing import find_faults, list_live, listing_of
from rlf.tools.mcp.server import Entry, Listing, McpServer
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolOutput

if TYPE_CHECKING:
    from mcp import ClientSession

    from rlf.tools.mcp.connection import Connection

_FOLDER = "{folder}"


class LifecycleCall(StrictModel):
    """A call that rlf makes, of a tool that the model does not see."""

    tool: str
    arguments: Mapping[str, Any] = {}
    """A text `{seed}`, `{task}` or `{COLUMN}` is the world's seed, the task's id, or the row's column, as it is; within
    a longer text its words."""


class McpEnv(EnvSpec):
    """An MCP server as a world: its tools share a state, and each trajectory has a session of its own.

    For a command a session is a process; `{folder}` in its arguments or variables is an empty folder of its own. Where
    one server keeps many worlds apart by an argument of every tool, `key` names it: trajectories then share the
    server's sessions, and rlf fills the argument in.
    """

    kind: Literal["mcp"] = "mcp"
    server: McpServer
    reset: LifecycleCall | None = None
    """Called first; what it says is not shown. None: a new session is a new world."""
    opening: LifecycleCall | None = None
    """Called after `reset`: what it says stands in the prompt."""
    score: LifecycleCall | None = None
    """Called at the end: a mapping of numbers by name, or a number, which is `score`. None: `after` scores."""
    after: str | None = None
    """Column of the row that holds the calls (`name`, `arguments`) that lead to the goal. The score `score` is 1 where
    the final state, as `save` shows it, equals that of another world after them, and 0 otherwise."""
    save: LifecycleCall | None = None
    """Called after each change: the state, as JSON or as text."""
    end: LifecycleCall | None = None
    """Called as the world closes, for instance to have the server forget the key."""
    key: str | None = None
    """Argument that distinguishes trajectories; the model does not see it."""
    shown: tuple[str, ...] | None = None
    """Names of the tools that the model sees; None: all but those of the lifecycle."""

    @model_validator(mode="after")
    def _is_scored(self) -> McpEnv:
        words = ""
        if (self.score is None) is (self.after is None):
            words = "either the tool `score` scores a world or its state `after` the row's calls; write one of them"
        elif self.after is not None and self.save is None:
            words = "`after` compares states; write `save` too, the tool that shows one"
        if words:
            raise PydanticCustomError("mcp_env", "{reason}", {"reason": words})
        return self

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Known where states are compared."""
        return None if self.after is None else ("score",)

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """The one that holds what leads to the goal."""
        return [] if self.after is None or self.after in columns else [self.after]

    @property
    def _asked(self) -> McpServer:
        """The server as it is asked what it offers: in a folder of each user's own."""
        return self.in_folder(Path(tempfile.gettempdir()) / f"rlf-mcp-world-{os.getuid()}")

    def in_folder(self, folder: Path) -> McpServer:
        """The server with the folder of one world filled in."""
        if not self.takes_folder:
            return self.server
        folder.mkdir(exist_ok=True)
        args = [argument.replace(_FOLDER, str(folder)) for argument in self.server.args]
        env = {name: value.replace(_FOLDER, str(folder)) for name, value in self.server.env.items()}
        return self.server.model_copy(update={"args": tuple(args), "env": env})

    @property
    def takes_folder(self) -> bool:
        """Whether each process has a folder of its own."""
        return any(_FOLDER in text for text in (*self.server.args, *self.server.env.values()))

    @property
    def lifecycle(self) -> Mapping[str, LifecycleCall]:
        """The calls that rlf makes, by their key."""
        calls = {name: getattr(self, name) for name in ("reset", "opening", "score", "save", "end")}
        return {name: call for name, call in calls.items() if call is not None}

    def describe_tools(self) -> Sequence[ToolDescription]:
        """The server's tools, without the lifecycle and the key. Raises RlfError where it cannot be asked."""
        return self._describe_shown(listing_of(self._asked))

    def _describe_shown(self, listing: Listing) -> list[ToolDescription]:
        return [
            ToolDescription(entry.name, entry.description, self._without_key(entry.input_schema))
            for entry in self._list_shown(listing)
        ]

    def _list_shown(self, listing: Listing) -> Iterator[Entry]:
        hidden = {call.tool for call in self.lifecycle.values()}
        for entry in listing.entries:
            if entry.resource is None and (
                entry.name not in hidden if self.shown is None else entry.name in self.shown
            ):
                yield entry

    def _without_key(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        left = dict(schema)
        left["properties"] = {name: one for name, one in (schema.get("properties") or {}).items() if name != self.key}
        left["required"] = [name for name in schema.get("required") or () if name != self.key]
        return left

    def complaints(self) -> list[str]:
        """Compares what is named with the server's list."""
        return find_faults(self._asked, lambda listing: list(self._find_misfits(listing)))

    def _find_misfits(self, listing: Listing) -> Iterator[str]:
        known = listing.tool_names
        named = {f"{name}.tool": call.tool for name, call in self.lifecycle.items()}
        for key, tool in [*named.items(), *(("shown", name) for name in self.shown or ())]:
            if tool not in known:
                yield f"{key}: the server has no tool {tool!r}{nearest(tool, known)} (it has: {', '.join(known)})"
        for name in sorted({call.tool for call in self.lifecycle.values()} & {*(self.shown or ())}):
            yield f"shown: {name!r} is a lifecycle tool, which the model must not see"
        for entry in self._list_shown(listing):
            if self.key is not None and self.key not in (entry.input_schema.get("properties") or {}):
                yield f"key: the tool {entry.name!r} has no argument {self.key!r}"

    def source_hash(self) -> str:
        """Covers the server's command with the files it names, and what is called."""
        calls = {name: call.model_dump(mode="json") for name, call in self.lifecycle.items()}
        return hash_json([self.server.identity(), calls, self.after, self.key, self.shown])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Loads the SDK, and compares the live server's list with the tools that the policy is shown."""
        await asyncio.to_thread(import_module, "rlf.tools.mcp.runtime")
        self._refuse_changed(await list_live(self._asked))
        maker = _Maker(self)
        try:
            yield maker.make
        finally:
            await maker.close()

    def _refuse_changed(self, listing: Listing) -> None:
        """Raises RlfError: what a policy cannot call as it was shown would count against it."""
        tools = (self.tools, self._describe_shown(listing))
        shown, offered = ({tool.name: tool.input_schema for tool in some} for some in tools)
        changed = sorted(name for name in {*shown, *offered} if shown.get(name) != offered.get(name))
        if changed:
            self._described = None
            raise RlfError(
                f"MCP server {self.server.shown} changed {', '.join(changed)} since its tools were listed. They are "
                "listed again now: run the same command again."
            )


class _Maker:
    """Gives each world a connection: its own, or with a key one of those that all share, in turn."""

    def __init__(self, spec: McpEnv) -> None:
        from rlf.tools.mcp.connection import Connection

        self.spec = spec
        self._shared = [Connection(spec.server, renews=False) for _ in range(spec.server.sessions)] if spec.key else []
        self._own = set[Connection]()
        """Connections of single worlds, also of those whose start was cancelled; until they are closed."""
        self._num_made = 0
        self._goals: dict[tuple[str, int, str], str] = {}
        """Hashes of the states that rows' calls lead to, by task, seed and calls."""

    async def make(self) -> _McpWorld:
        """A world over a session that is open."""
        from rlf.tools.mcp.connection import Connection

        if self._shared:
            connection = self._shared[self._num_made % len(self._shared)]
            self._num_made += 1
            return _McpWorld(self, connection, await self._session(connection), AsyncExitStack())
        async with AsyncExitStack() as stack:
            server = self.spec.server
            if self.spec.takes_folder:
                server = self.spec.in_folder(Path(stack.enter_context(TemporaryDirectory(prefix="rlf-world-"))))
            connection = Connection(server, renews=False)
            self._own.add(connection)
            stack.push_async_callback(self._close, connection)
            session = await self._session(connection)
            return _McpWorld(self, connection, session, stack.pop_all())

    async def find_goal(self, task: Task, seed: int) -> str:
        """The hash of the state after the row's calls, found once for all trajectories of a task. Raises RuntimeError.

        In a world of its own: a reset that leaves something behind would make the goal depend on what was played.
        """
        calls = read_goal(task, self.spec.after)
        key = task.id, seed, repr(calls)
        if key not in self._goals:
            async with AsyncExitStack() as stack:
                world = await self.make()
                stack.push_async_callback(world.close)
                await world.reset(task, seed)
                for call in calls:
                    output = (await world.call(call)).said
                    if output.is_error:  # of a row that names it wrongly too: the server has no such tool
                        raise RuntimeError(f"the goal's call of {call.name}: {output.text}")
                self._goals[key] = hash_state(plain_state(await world.state()))
        return self._goals[key]

    async def _session(self, connection: Connection) -> ClientSession:
        """The session. Raises ToolFailure where it lacks a tool that the policy is shown, as after an upgrade."""
        session = await connection.session()
        gone = sorted({tool.name for tool in self.spec.tools} - {*connection.listing.tool_names})
        if gone:
            text = f"MCP server {self.spec.server.shown} no longer has {', '.join(gone)}"
            raise ToolFailure(Outcome.UNREACHABLE, text)
        return session

    async def close(self) -> None:
        """Ends all sessions that are left."""
        await asyncio.gather(*(connection.close() for connection in (*self._shared, *self._own)))

    async def _close(self, connection: Connection) -> None:
        await connection.close()
        self._own.discard(connection)


class _McpWorld(World):
    """One world of a server. A session that ended takes the world with it: there is no way back to its state."""

    ends_when_cancelled = True

    def __init__(self, maker: _Maker, connection: Connection, session: ClientSession, owned: AsyncExitStack) -> None:
        self._maker, self._connection, self._session, self._owned = maker, connection, session, owned
        self._spec = spec = maker.spec
        self._key = {} if spec.key is None else {spec.key: uuid4().hex}
        self._values: dict[str, Any] = {}
        self._begun: tuple[Task, int] | None = None
        self.shows_state = spec.save is not None

    async def reset(self, task: Task, seed: int) -> str | None:
        self._values = {**task.columns, "task": task.id, "seed": seed}
        self._begun = task, seed
        if self._spec.reset is not None:
            await self._call_lifecycle(self._spec.reset)
        return None if self._spec.opening is None else (await self._call_lifecycle(self._spec.opening)).text

    async def call(self, call: ToolCall) -> Step:
        return Step(await self._call_tool(call.name, call.arguments))

    async def score(self) -> Mapping[str, float]:
        if self._spec.score is not None:
            return to_scores(value_of(await self._call_lifecycle(self._spec.score)))
        assert self._begun is not None, "a score before the reset"
        final = hash_state(plain_state(await self.state()))
        return {"score": float(final == await self._maker.find_goal(*self._begun))}

    async def gold(self) -> Sequence[ToolCall] | None:
        assert self._begun is not None, "a solution before the reset"
        return None if self._spec.after is None else read_goal(self._begun[0], self._spec.after)

    async def state(self) -> Any:
        assert self._spec.save is not None, "a state without `save`"
        return value_of(await self._call_lifecycle(self._spec.save))

    async def close(self) -> None:
        try:
            if self._spec.end is not None and self._begun is not None:
                await self._call_lifecycle(self._spec.end)
        finally:
            await self._owned.aclose()

    async def _call_lifecycle(self, call: LifecycleCall) -> ToolOutput:
        """A call of the lifecycle. Raises RuntimeError where the server refuses it: that is the world's failure."""
        output = await self._call_tool(
            call.tool, {name: fill(value, self._values) for name, value in call.arguments.items()}
        )
        if output.is_error:
            raise RuntimeError(f"{call.tool}: {output.text}")
        return output

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        from mcp_types import InputRequiredResult

        from rlf.tools.mcp.runtime import as_it_ended, attributed, output_of_call

        if await self._connection.session() is not self._session:
            raise ToolFailure(Outcome.UNREACHABLE, "the session ended, and the world's state with it")
        with attributed(self._connection):
            result = await self._session.call_tool(tool, {**arguments, **self._key}, allow_input_required=True)
        self._connection.succeeded()
        if isinstance(result, InputRequiredResult):
            raise ToolFailure(Outcome.TOOL_ERROR, "the server asks a person for input, but no person is there")
        return as_it_ended(result, output_of_call(result))


def read_goal(task: Task, column: str | None) -> list[ToolCall]:
    """The calls that lead to a row's goal. Raises TypeError or ValueError for anything else."""
    assert column is not None, "a goal without `after`"
    value = task.columns.get(column)
    actions = to_actions(read_json(value) if isinstance(value, str) else value)
    if actions is None:  # which is not the same as no calls: then doing nothing would be right
        raise ValueError(f"{column}: the row does not say what leads to the goal; write a list of calls")
    calls = [action for action in actions if isinstance(action, ToolCall)]
    if len(calls) < len(actions):
        raise TypeError(f"{column}: got an answer among the calls that lead to the goal; expected calls alone")
    return calls


def value_of(output: ToolOutput) -> Any:
    """A tool's result as JSON: its structured result, or its text if that is JSON or a Python value."""
    value = output.structured
    if isinstance(value, Mapping):
        return value["result"] if value.keys() == {"result"} else value
    for read in (json.loads, ast.literal_eval):  # servers in Python often print their values
        with suppress(ValueError, SyntaxError):
            return clean_value(read(output.text))
    return output.text


def to_scores(value: Any) -> dict[str, float]:
    """Scores by name, from a mapping of numbers or a number. Raises TypeError."""
    if isinstance(value, list) and len(value) == 1:  # the one row of a query
        value = value[0]
    if isinstance(value, bool | int | float):
        return {"score": float(value)}
    if not isinstance(value, Mapping):
        raise TypeError(f"got {value!r:.80} as scores; expected a number, or a mapping of numbers by name")
    return {str(name): float(one) for name, one in value.items() if isinstance(one, bool | int | float)}
