"""`env: {kind: mcp}`: an MCP server whose tools share a state, with lifecycle tools that the model does not see."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import uuid4

from pydantic import model_validator

from rlf.apps.servers.goals import equal_but_drawn, read_goal
from rlf.core import RlfError, nearest
from rlf.core.files import scratch
from rlf.core.identity import hash_json
from rlf.core.kinds import StrictModel, wrong_value
from rlf.core.text import clean_value
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, World, fill, hash_state, plain_state
from rlf.tools.mcp.listing import list_live, listing_faults, listing_of
from rlf.tools.mcp.server import Entry, Listing, McpServer
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Task, ToolCall, ToolDescription, ToolOutput

if TYPE_CHECKING:
    from mcp import ClientSession

    from rlf.apps.servers.connection import Connection

logger = logging.getLogger(__name__)
K = TypeVar("K", bound=Hashable)

_FOLDER = "{folder}"
_WORLDS_PER_UNTOUCHED = 8
"""Worlds for which one more process shows what resets lead to: as many as share a task, by `num_generations`."""


class LifecycleCall(StrictModel):
    """A call that rlf makes, of a tool that the model does not see."""

    tool: str
    arguments: Mapping[str, Any] = {}
    """A text `{seed}`, `{task}` or `{COLUMN}` is the world's seed, the task's id, or the row's column, as it is; within
    a longer text its words."""


class McpEnv(EnvSpec):
    """An MCP server as a world: its tools share a state, and each trajectory has a session of its own.

    For a command a session is a process; `{folder}` in its arguments or variables is an empty folder of its own. With
    `reset` and `save`, and without such a folder, a process serves one trajectory after the other: where its state
    after the reset is not that of one in which nothing was played, it is ended and a new one takes its place. Where one
    server keeps many worlds apart by an argument of every tool, `key` names it: trajectories then share the server's
    sessions, and rlf fills the argument in.
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
            raise wrong_value(words)
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
    def reuses(self) -> bool:
        """Whether a process serves one trajectory after the other: its reset is declared, and `save` can show it."""
        is_shown = self.reset is not None and self.save is not None
        return is_shown and self.server.command is not None and self.key is None and not self.takes_folder

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
            is_shown = entry.name not in hidden if self.shown is None else entry.name in self.shown
            if entry.resource is None and is_shown:
                yield entry

    def _without_key(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        left = dict(schema)
        left["properties"] = {name: one for name, one in (schema.get("properties") or {}).items() if name != self.key}
        left["required"] = [name for name in schema.get("required") or () if name != self.key]
        return left

    def complaints(self) -> list[str]:
        """Compares what is named with the server's list."""
        return listing_faults(self._asked, lambda listing: list(self._find_misfits(listing)))

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
        await asyncio.to_thread(import_module, "rlf.apps.servers.runtime")
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
        from rlf.apps.servers.connection import Connection

        self.spec = spec
        self._shared = [Connection(spec.server, renews=False) for _ in range(spec.server.sessions)] if spec.key else []
        self._own = set[Connection]()
        """Connections of single worlds, also of those whose start was cancelled; until they are closed."""
        self._num_made = 0
        self.reuses = spec.reuses
        self.used: list[tuple[Connection, AsyncExitStack]] = []
        """Processes whose last trajectory ended well, for the next."""
        self._untouched: list[_McpWorld] = []
        """Worlds in which nothing is ever played: they show what a reset leads to."""
        self._may_ask = asyncio.Semaphore(max(1, spec.limits.max_concurrency // _WORLDS_PER_UNTOUCHED))
        self._first: dict[str, asyncio.Task[str]] = {}
        """Hashes of the states after resets where nothing was played before, by the arguments of the reset."""
        self._goals: dict[tuple[str, int, str, bool], asyncio.Task[str]] = {}
        """States that rows' calls lead to, by task, seed, calls and whether it is the second one."""

    async def make(self) -> _McpWorld:
        """A world over a session that is open."""
        if self._shared:
            connection = self._shared[self._num_made % len(self._shared)]
            self._num_made += 1
            return _McpWorld(self, connection, await self._session(connection), AsyncExitStack())
        if self.used and self.reuses:
            connection, owned = self.used.pop()
            try:
                return _McpWorld(self, connection, await self._session(connection), owned, is_used=True)
            except ToolFailure as fault:
                logger.info("world mcp: a used process is given up: %s", fault)
                await owned.aclose()
        return await self.start()

    async def start(self) -> _McpWorld:
        """A world over a session that nobody has used."""
        from rlf.apps.servers.connection import Connection

        async with AsyncExitStack() as stack:
            server = self.spec.server
            if self.spec.takes_folder:
                server = self.spec.in_folder(stack.enter_context(scratch("rlf-world")))
            if server.command is not None:  # tokens made by `hash`, and orders of sets, are the same in all processes
                seed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
                server = server.model_copy(update={"env": seed | server.env})
            connection = Connection(server, renews=False)
            self._own.add(connection)
            stack.push_async_callback(self._close, connection)
            session = await self._session(connection)
            return _McpWorld(self, connection, session, stack.pop_all())

    async def is_as_new(self, world: _McpWorld, task: Task, seed: int) -> bool:
        """Whether the state of a used process after its reset is that of one in which nothing was played.

        Compared before any call of the trajectory. Once it is not, or differs from time to time by itself, no process
        is used twice any more.
        """
        assert self.spec.reset is not None, "a used process without a reset"
        arguments = repr(fill(self.spec.reset.arguments, {**task.columns, "task": task.id, "seed": seed}))
        first = await _find_once(self._first, arguments, lambda: self._reset_untouched(task, seed))
        if first != hash_state(plain_state(await world.state())):
            self._end_reuse()
        return self.reuses

    def _end_reuse(self) -> None:
        if self.reuses:
            reset, save = (call.tool for call in (self.spec.reset, self.spec.save) if call is not None)
            found = f"after {reset}, {save} shows another state in a used process than in a new one"
            logger.warning("world mcp: %s. Each trajectory has a process of its own now", found)
            self.reuses, self.spec._left_behind = False, found

    async def _reset_untouched(self, task: Task, seed: int) -> str:
        """The state after a reset where nothing was played; now and then compared with that of a new process.

        A load that adds to what an earlier one brought shows in no other way: it does so in every used process alike.
        """
        async with self._may_ask:
            number = len(self._first)
            is_tried = number & (number - 1) == 0 and number.bit_length() % 2 == 0  # 2, 8, 32, ...
            worlds = [self._untouched.pop()] if self._untouched else []
            if is_tried or not worlds:
                worlds.append(await self.start())
            found = [await self._show_first(world, task, seed) for world in worlds]
            for world in worlds[:-1]:
                await world.end_process()
            if len({*found}) > 1:
                self._end_reuse()
            self._untouched.append(worlds[-1])
            return found[-1]

    async def _show_first(self, world: _McpWorld, task: Task, seed: int) -> str:
        try:
            await world.reset(task, seed)
            return hash_state(plain_state(await world.state()))
        except BaseException:
            await world.end_process()
            raise

    async def reaches_goal(self, state: Any, task: Task, seed: int) -> bool:
        """Whether a state is what the row's calls lead to, found once for all trajectories of a task. RuntimeError.

        In a world of its own: a reset that leaves something behind would make the goal depend on what was played. In
        two where the first differs: identifiers that a server draws are not compared.
        """
        calls = read_goal(task, self.spec.after)
        goals: list[Any] = []
        for is_second in (False, True):
            key = task.id, seed, repr(calls), is_second
            goal = await _find_once(self._goals, key, partial(self._play_goal, task, seed, calls))
            goals.append(json.loads(goal))
            if equal_but_drawn(state, goals):
                return True
        return False

    async def _play_goal(self, task: Task, seed: int, calls: Sequence[ToolCall]) -> str:
        async with AsyncExitStack() as stack:
            world = await self.make()
            stack.push_async_callback(world.close)
            await world.reset(task, seed)
            for call in calls:
                output = (await world.call(call)).said
                if output.is_error:  # of a row that names it wrongly too: the server has no such tool
                    raise RuntimeError(f"the goal's call of {call.name}: {output.text}")
            return json.dumps(plain_state(await world.state()))

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
        for asked in (found := [*self._first.values(), *self._goals.values()]):
            asked.cancel()
        await asyncio.gather(*found, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in (*self._shared, *self._own)))

    async def _close(self, connection: Connection) -> None:
        await connection.close()
        self._own.discard(connection)


async def _find_once(found: dict[K, asyncio.Task[str]], key: K, find: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """A value that many trajectories ask for and one finds; what raised is tried again by the next that asks."""
    known = found.get(key)
    if known is None or (known.done() and known.exception() is not None):
        known = found[key] = asyncio.create_task(find())
    return await asyncio.shield(known)  # whose end must not depend on the trajectory that asked first


class _McpWorld(World):
    """One world of a server. A session that ended takes the world with it: there is no way back to its state."""

    ends_when_cancelled = True

    def __init__(
        self,
        maker: _Maker,
        connection: Connection,
        session: ClientSession,
        owned: AsyncExitStack,
        *,
        is_used: bool = False,
    ) -> None:
        self._maker, self._connection, self._session, self._owned = maker, connection, session, owned
        self._is_used = is_used
        """Whether an earlier trajectory had the process."""
        self._is_sound = True
        """Whether every request came back: one that was cut off may still run there."""
        self._spec = spec = maker.spec
        self._key = {} if spec.key is None else {spec.key: uuid4().hex}
        self._values: dict[str, Any] = {}
        self._begun: tuple[Task, int] | None = None
        self.shows_state = spec.save is not None

    async def reset(self, task: Task, seed: int) -> str | None:
        self._values = {**task.columns, "task": task.id, "seed": seed}
        if not await self._reset_used(task, seed):
            self._begun = task, seed
            if self._spec.reset is not None:
                await self._call_lifecycle(self._spec.reset)
        return None if self._spec.opening is None else (await self._call_lifecycle(self._spec.opening)).text

    async def _reset_used(self, task: Task, seed: int) -> bool:
        """Resets a process that an earlier trajectory had; a new one takes the place of one that is not as new."""
        if not self._is_used or self._spec.reset is None:
            return False
        try:
            await self._call_lifecycle(self._spec.reset)
            if await self._maker.is_as_new(self, task, seed):
                self._begun = task, seed
                return True
        except (RuntimeError, ToolFailure) as fault:  # a new process fails by itself where that is the row's fault
            logger.info("world mcp: a used process is given up: %s", fault)
        await self.end_process()
        new = await self._maker.start()
        self._connection, self._session, self._owned = new._connection, new._session, new._owned
        self._is_used, self._is_sound = False, True
        return False

    async def end_process(self) -> None:
        """Ends the session and its process."""
        await self._owned.aclose()

    async def call(self, call: ToolCall) -> Step:
        return Step(await self._call_tool(call.name, call.arguments))

    async def score(self) -> Mapping[str, float]:
        if self._spec.score is not None:
            return to_scores(value_of(await self._call_lifecycle(self._spec.score)))
        assert self._begun is not None, "a score before the reset"
        return {"score": float(await self._maker.reaches_goal(plain_state(await self.state()), *self._begun))}

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
        except BaseException:
            self._is_sound = False
            raise
        finally:
            if self._is_sound and self._begun and self._maker.reuses:
                self._maker.used.append((self._connection, self._owned))
            else:
                await self.end_process()

    async def _call_lifecycle(self, call: LifecycleCall) -> ToolOutput:
        """A call of the lifecycle. Raises RuntimeError where the server refuses it: that is the world's failure."""
        arguments = {name: fill(value, self._values) for name, value in call.arguments.items()}
        output = await self._call_tool(call.tool, arguments)
        if output.is_error:
            self._is_sound = False
            raise RuntimeError(f"{call.tool}: {output.text}")
        return output

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        from mcp_types import InputRequiredResult

        from rlf.apps.servers.runtime import as_it_ended, attributed, output_of_call

        if await self._connection.session() is not self._session:
            self._is_sound = False
            raise ToolFailure(Outcome.UNREACHABLE, "the session ended, and the world's state with it")
        was_sound, self._is_sound = self._is_sound, False  # until it is answered, whatever ends the wait
        with attributed(self._connection):
            result = await self._session.call_tool(tool, {**arguments, **self._key}, allow_input_required=True)
        self._connection.succeeded()
        self._is_sound = was_sound
        if isinstance(result, InputRequiredResult):
            raise ToolFailure(Outcome.TOOL_ERROR, "the server asks a person for input, but no person is there")
        return as_it_ended(result, output_of_call(result))


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
