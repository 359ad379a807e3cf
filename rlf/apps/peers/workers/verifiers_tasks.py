"""A taskset of verifiers v1, played in the environment that has the package; of rlf only two files are imported.

`python verifiers_tasks.py describe TASKSET ARGS` prints what the taskset is, in a line of JSON. Otherwise the process
loads the taskset with its Env once and forks for each world (`rlf.processes.forking`), which then is an episode of
verifiers: `Env.run` plays a task with the one agent, who is rlf's policy. The runtime starts, the task and the toolsets
are set up, tools are called, the Env's messages are answered, the task finalizes and scores, and then the Env does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pickle
import random
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

_MAX_MISFITS = 3
_CHATS = ("bash", "null")
"""Harnesses that pass the conversation on; verifiers' default, bash, adds a shell, which no world of rlf has."""
_MAX_TASKS = 1000
"""Of a taskset without an end."""
_USED = {
    "verifiers.v1": ("SubprocessConfig", "Trace"),
    "verifiers.v1.agent": ("Agents", "Segment"),
    "verifiers.v1.configs.agent": ("agent_config_fields",),
    "verifiers.v1.dialects": ("parse_message",),
    "verifiers.v1.episode": ("EnvInfo", "Episode"),
    "verifiers.v1.graph": ("MessageNode",),
    "verifiers.v1.runtimes": ("provision_runtime",),
    "verifiers.v1.session": ("call_hook", "hook_boundary"),
    "verifiers.v1.state": ("state_cls",),
    "verifiers.v1.trace": ("AgentInfo", "TraceTask"),
    "verifiers.v1.types": ("AssistantMessage", "SystemMessage", "Tool", "ToolCall", "ToolMessage", "UserMessage"),
    "verifiers.v1.utils.decorators": ("discover_decorated", "invoke"),
    "verifiers.v1.utils.loaders": ("default_harness_id", "environment_class", "load_environment", "resolve_env_config"),
    "mcp.server.mcpserver": ("MCPServer",),
    "mcp.server.mcpserver.exceptions": ("ToolError",),
}


@cache
def package() -> SimpleNamespace:
    """The parts of verifiers 0.4.0 that are used, by name; imported once, before worlds are forked."""
    used = {name: getattr(import_module(module), name) for module, names in _USED.items() for name in names}
    return SimpleNamespace(**used)


def load_taskset(name: str, args: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The Env that plays what a module or a file exports, and its tasks. Raises ValueError for what cannot be played.

    The Env is the one that verifiers finds: the package's own, else the one of a plain taskset.
    """
    vf = package()
    if name.endswith(".py"):
        sys.path.insert(0, str(Path(name).parent))
        name = Path(name).stem
    config = vf.resolve_env_config({"taskset": {**args, "id": name}})
    if misfits := list(find_seat_misfits(config, name)):  # a harness of another may not even load
        raise ValueError("; ".join(misfits[:_MAX_MISFITS]))
    env = vf.load_environment(config)
    taskset = env.taskset
    tasks = list(taskset if taskset.bounded else taskset.take(_MAX_TASKS))
    if not tasks:
        raise ValueError("the taskset has no tasks")
    servers = [*taskset.toolsets(taskset.config), *tasks[0].toolsets(tasks[0].config)]
    misfits = [misfit for server in servers for misfit in find_server_misfits(server)]
    misfits += find_misfits(tasks[0])
    misfits += [misfit for task in tasks for misfit in find_data_misfits(task.data)]
    if misfits:
        raise ValueError("; ".join(misfits[:_MAX_MISFITS]))
    return env, tasks


def find_seat_misfits(config: Any, name: str) -> Iterator[str]:
    """What else than one model of rlf would play in the Env."""
    vf = package()
    seats = vf.agent_config_fields(config)
    if len(seats) > 1:
        yield f"its {vf.environment_class(name).__name__} has the seats {', '.join(seats)}; rlf plays one"
    for seat, agent in seats.items():
        if agent.harness is not None and agent.harness.id not in _CHATS:
            yield f"the seat {seat} has the harness {agent.harness.id}, which would play; in rlf the model does"
    if vf.default_harness_id(name) == name:
        yield "the package exports a Harness of its own, which would play the tasks; in rlf the model does"


def find_misfits(task: Any) -> Iterator[str]:
    """Features that a type of tasks asks for and only verifiers' own runtimes and harnesses have."""
    vf, name = package(), type(task).__name__
    if task.NEEDS_CONTAINER:
        yield f"{name} needs a container (NEEDS_CONTAINER), but rlf runs tasks as plain processes"
    for hook in vf.discover_decorated(task, "intercept"):
        yield f"{name}.{hook.__name__} is a `@vf.intercept`, and in rlf requests do not pass through verifiers"
    for hook in task.hooks("stop"):
        if vf.hook_boundary(hook, allow_trace=True) is not vf.Trace:
            yield f"{name}.{hook.__name__} is a `@vf.stop` of requests or responses; rlf calls only those of a trace"


def find_data_misfits(data: Any) -> Iterator[str]:
    """Features that a single task asks for and a plain process does not have."""
    values = {key: getattr(data, key) for key in ("image", "agent_user", "skills", "network_block")}
    values["network_allow"] = "*" not in data.network_allow
    for message in data.prompt if isinstance(data.prompt, list) else ():
        try:
            read_text(message.content)
        except TypeError as fault:
            yield f"task {data.idx}: {fault}"
    for key in (key for key, value in values.items() if value):
        yield f"task {data.idx} has `{key}`, but rlf runs tasks as plain processes, without a harness of verifiers"


def find_server_misfits(server: Any) -> Iterator[str]:
    """Reasons why a toolset cannot be served in the world's own process."""
    name = type(server).__name__
    if server.config.url:
        yield f"the toolset {name} is a server at a `url`; declare it as a tool of kind mcp, or as `env: {{kind: mcp}}`"
    elif server.config.runtime.type != "subprocess":
        yield f"the toolset {name} has the runtime {server.config.runtime.type}; only `subprocess` is supported"


async def describe_taskset(name: str, args: dict[str, Any], folder: str) -> dict[str, Any]:
    """The tools of the taskset's first task, which is set up for it."""
    world = TasksetWorld(*load_taskset(name, args), folder)
    try:
        await world.reset(0)
        tools = world.exchange.trace.tools
        return {"tools": [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in tools]}
    finally:
        await world.close()


class TasksetWorld:
    """An episode of the Env, whose agent's turns come from rlf. Methods of a world's life, asked over the socket."""

    def __init__(self, env: Any, tasks: list[Any], folder: str, tools: list[str] | None = None) -> None:
        """Takes what all worlds share: the folder of the runtimes', and the names of every task's tools; None: any."""
        self.env, self.folder, self.expected_tools = env, folder, tools
        self.exchange: Any = None
        """The one conversation, once the Env has begun it."""
        self.news: asyncio.Queue[list[str] | Exception | None] = asyncio.Queue()
        """What the Env says where it wants a turn; None where it wants none any more; what ended the episode."""
        self.may_score = asyncio.Event()
        """Set when the model has ended, so that what finalizes and scores has its own deadline."""
        self._tasks = tasks
        self._episode: asyncio.Task[None] | None = None
        self.done = False

    async def reset(self, seed: int, index: int | None = None) -> str | None:
        """Begins the episode of a task, by its place or by the seed. What the user says first, after the system."""
        random.seed(seed)  # an Env may draw from them
        number = (seed if index is None else int(index)) % len(self._tasks)
        self._episode = asyncio.create_task(self._play(self._tasks[number]))
        said = await self._hear()
        if self.done:
            raise ValueError(f"{type(self.env).__name__}.run asks its agent for no turn")
        return said

    async def _play(self, task: Any) -> None:
        """As `Env.run_episode` of verifiers 0.4.0, where a hook that raises is the world's own failure."""
        vf, env = package(), self.env
        try:
            await env.start()
            agents = vf.Agents(env.config, lambda name, config: Seat(self, name, config))
            await env.setup(agents)
            await env.run(task, agents)
            if self.exchange is None:
                raise ValueError(f"{type(env).__name__}.run has its agent play nothing")
            trace, info = self.exchange.trace, vf.EnvInfo(id=env.config.env_id)
            await env.finalize(task, vf.Episode.model_construct(env=info, task=trace.task, traces=[trace]))
            self.news.put_nowait(None)
        except Exception as fault:
            self.news.put_nowait(fault)
            raise
        finally:
            await env.stop()

    async def _hear(self) -> str | None:
        """What the Env says next. Raises what ended the episode."""
        said = await self.news.get()
        self.done = not isinstance(said, list)
        if isinstance(said, Exception):
            raise said
        return "\n\n".join(filter(None, said or ())) or None

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """Calls a tool: `value` and its text, or `refusal` and why."""
        kind, text = await self.exchange.call(name, arguments)
        if await self.exchange.is_stopped():
            self.exchange.answered.set()
            await self._hear()
        return kind, text

    async def reply(self, text: str) -> str | None:
        """Takes the model's answer, and gives what the Env says to it."""
        self.exchange.note(package().AssistantMessage(content=text), sampled=True)
        await self.exchange.is_stopped()
        self.exchange.answered.set()
        return await self._hear()

    async def score(self) -> dict[str, float]:
        """Ends the episode; rewards and metrics by name, and `reward`, the weighted sum."""
        assert self._episode is not None, "score before reset"
        if not self.done:
            self.exchange.trace.stop("max_turns")
            self.exchange.answered.set()
        self.may_score.set()
        await self._episode
        trace = self.exchange.trace
        found = {name: None if one is None else one.score for name, one in trace.rewards.items()} | trace.metrics
        if missing := [name for name, value in found.items() if value is None]:
            raise ValueError(f"{', '.join(missing)} gave nothing")
        return {**found, "reward": trace.reward}

    async def state(self) -> Any:
        """The trace's state without artifacts, as JSON; None where JSON cannot hold it."""
        with suppress(ValueError):
            return self.exchange.trace.state.model_dump(mode="json", exclude={"artifacts"})
        return None

    async def close(self) -> None:
        """Ends what runs, and removes the runtime's folder."""
        if self._episode is not None:
            self._episode.cancel()
            await asyncio.gather(self._episode, return_exceptions=True)


class Seat:
    """Stands where an `Agent` of verifiers 0.4.0 stands in an Env: rlf's model has its conversation."""

    def __init__(self, world: TasksetWorld, name: str, config: Any) -> None:
        self._world, self.name, self.config = world, name, config
        self.trainable = True
        """Set by some Envs."""

    async def run(self, task: Any, **borrowed: Any) -> Any:
        """Plays a task to the model's answer; the trace."""
        async with self.interaction(task, "agent_completed", **borrowed) as exchange:
            await exchange.turn()
        return exchange.trace

    @asynccontextmanager
    async def interaction(self, task: Any, end: str = "user_closed", **borrowed: Any) -> AsyncIterator[Exchange]:
        """Plays a task turn by turn, with the Env as the user."""
        vf, world = package(), self._world
        if world.exchange is not None:
            raise ValueError(f"{type(world.env).__name__}.run plays its agent twice; rlf plays one conversation")
        if given := [name for name, value in borrowed.items() if value and name != "on_trace"]:
            raise ValueError(f"{type(world.env).__name__}.run lends its agent {', '.join(given)}; rlf takes none")
        recorded = vf.TraceTask.model_construct(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo.model_construct(config=self.config, name=self.name, trainable=self.trainable)
        trace = vf.Trace.model_construct(task=recorded, agent=agent, state=vf.state_cls(type(task))())
        if observe := borrowed.get("on_trace"):
            observe(trace)
        place = str(Path(world.folder, trace.id))  # an absolute name is the runtime's folder
        async with vf.provision_runtime(vf.SubprocessConfig(), place, task.runtime_env()) as runtime:
            exchange = world.exchange = Exchange(world, task, trace, runtime, self.config.max_turns)
            async with exchange.served:
                await exchange.begin()
                yield exchange
                await exchange.finish(end)


class Exchange:
    """One task with one conversation, as an `Interaction` of verifiers 0.4.0."""

    def __init__(self, world: TasksetWorld, task: Any, trace: Any, runtime: Any, max_turns: int | None) -> None:
        self._world, self._task, self._runtime, self._max_turns = world, task, runtime, max_turns
        self.trace, self._given = trace, {"trace": trace, "runtime": runtime}
        self.served = AsyncExitStack()
        self.tools: dict[str, tuple[Any, Any]] = {}
        """The server and its tool, by the name that the model knows."""
        self.answered = asyncio.Event()
        """Set when the model has ended its turn."""
        self._said: list[str] = []
        self._is_prompted = task.data.prompt is not None
        self._is_over = False

    async def begin(self) -> None:
        """Sets the task and its toolsets up. Raises ValueError for other tools than expected."""
        vf, task, taskset = package(), self._task, self._world.env.taskset
        await vf.invoke(task.setup, self._given)
        for server in taskset.toolsets(taskset.config) if isinstance(task, type(taskset).task_type()) else ():
            await self._serve(server)
        for server in task.toolsets(task.config):
            await self._serve(server, task.data)
        expected = self._world.expected_tools
        if expected is not None and sorted(self.tools) != sorted(expected):
            found, first = (", ".join(names) or "none" for names in (self.tools, expected))
            raise ValueError(f"task {task.data.idx} has the tools {found}; the taskset's first one has {first}")
        self.trace.tools = [
            vf.Tool(name=name, description=tool.description or "", parameters=tool.input_schema)
            for name, (_, tool) in self.tools.items()
        ]
        system, prompt = task.data.system_prompt, task.data.prompt or []
        prompt = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt
        for message in [*([vf.SystemMessage(content=system)] if system else []), *prompt]:
            self._say(message)

    async def turn(self, message: Any = None) -> Any:
        """Says something to the model and waits for its turn with all its calls, which is a `Segment`."""
        vf = package()
        if self._is_over:
            raise RuntimeError("the exchange is over")
        if (message is None) is not self._is_prompted:
            raise ValueError("a bare turn() opens a task with a prompt, and any other turn needs a message")
        self._is_prompted = False
        place, num_turns = len(self.trace.nodes), self.trace.num_turns
        if self.trace.stop_condition is None:
            messages = [vf.UserMessage(content=message)] if isinstance(message, str) else message or ()
            for one in messages:
                self._say(vf.parse_message(one) if isinstance(one, dict) else one)
            said, self._said = self._said, []
            self.answered.clear()
            self._world.news.put_nowait(said)
            await self.answered.wait()
        if self.trace.num_turns == num_turns:
            self._is_over = True
            return vf.Segment(messages=[], terminated=True)
        made = [node for node in self.trace.nodes[place:] if node.sampled or isinstance(node.message, vf.ToolMessage)]
        return vf.Segment(messages=[node.message for node in made])

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """Calls a tool: `value` and its text, or `refusal` and why."""
        vf = package()
        hub, tool = self.tools[name]
        try:
            result = await hub.call_tool(tool.name, arguments)
            text = read_text(result.content)
            kind = "refusal" if result.is_error else "value"
        except vf.ToolError as fault:
            text, kind = str(fault), "refusal"
        number = f"call_{len(self.trace.nodes)}"
        called = vf.ToolCall(id=number, name=name, arguments=json.dumps(arguments))
        self.note(vf.AssistantMessage(tool_calls=[called]), sampled=True)
        self.note(vf.ToolMessage(tool_call_id=number, content=text, name=name))
        return kind, text

    async def is_stopped(self) -> bool:
        """Whether a `@vf.stop` of the trace, or the agent's limit of turns, ends the conversation."""
        vf, trace = package(), self.trace
        for stop in self._task.hooks("stop"):
            if trace.stop_condition is None and await vf.call_hook(stop, {vf.Trace: trace}):
                trace.stop(stop.__name__)
        if self._max_turns is not None and trace.num_turns >= self._max_turns:
            trace.stop("max_turns")
        return trace.stop_condition is not None

    async def finish(self, end: str) -> None:
        """Finalizes and scores the task, once the model has ended."""
        self._world.news.put_nowait(None)
        await self._world.may_score.wait()
        await self.served.aclose()
        self.trace.stop(end)
        await package().invoke(self._task.finalize, self._given)
        self.trace.is_completed = self.trace.ok = True
        await self._task.score(self.trace, self._runtime)

    def note(self, message: Any, *, sampled: bool = False) -> None:
        """Writes a message into the trace."""
        nodes = self.trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(package().MessageNode(parent=parent, message=message, sampled=sampled))

    def _say(self, message: Any) -> None:
        self._said.append(read_text(message.content))
        self.note(message)

    async def _serve(self, server: Any, data: Any = None) -> None:
        """Sets a toolset up, for a task's data where it is the task's own, and registers its tools in this process."""
        server._pull_state = lambda: self._pull_state(server)
        server._push_state = lambda before: self._push_state(server, before)
        await self.served.enter_async_context(server._exit_stack)
        await server.setup()
        if data is not None:
            await server.setup_task(data)
        hub = package().MCPServer(server.server_name or type(server).__name__)
        server.register(hub)
        for tool in await hub.list_tools():
            name = f"{server.server_name}_{tool.name}" if server.server_name else tool.name
            if name in self.tools:
                raise ValueError(f"two tools have the name {name!r}; give one toolset another TOOL_PREFIX")
            self.tools[name] = (hub, tool)

    async def _pull_state(self, server: Any) -> Any:
        """The trace's state as the toolset's own type: a copy, as over verifiers' channel."""
        return server._state_adapter.validate_json(self.trace.state.model_dump_json())

    async def _push_state(self, server: Any, before: bytes) -> None:
        after = server._state_adapter.dump_json(server.state)
        if after != before:
            self.trace.state = type(self.trace.state).model_validate_json(after)


def read_text(content: Any) -> str:
    """The text of a message or of a result, as verifiers shows it. Raises TypeError for an image."""
    if isinstance(content, str):
        return content
    if other := [part.type for part in content or () if re.search("image|audio|video", part.type)]:
        raise TypeError(f"a message has a part of {other[0]}; only text is supported")
    return "\n".join(str(part.text if part.type == "text" else part) for part in content or ())


async def serve_world(channel: socket.socket, world: TasksetWorld, wire: Any) -> None:
    """Answers requests until the channel is closed: pairs of a method's name, or `call NAME`, and its arguments."""
    reader, writer = await asyncio.open_connection(sock=channel)
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            header = wire.read_header(await reader.readexactly(wire.HEADER_BYTES), wire.Bounds(1000, 1 << 30))
            frame = wire.unpack(header, await reader.readexactly(header.rest_bytes))
            body = pickle.dumps(await answer(world, *pickle.loads(frame.blobs[0])))
            if excess := wire.Bounds(*frame.read()["bounds"]).excess(b"", [body]):
                body = pickle.dumps({"fault": f"its result cannot leave its process: {excess}"})
            writer.write(wire.pack(frame.number, {}, [body]))
            await writer.drain()


async def answer(world: TasksetWorld, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A method's result, as `rlf.environments.instances.read_instance_answer` reads it."""
    kind, value = "value", None
    try:
        if name.startswith("call "):
            kind, value = await world.call(name.removeprefix("call "), arguments)
        elif name != "__init__":
            value = await getattr(world, name)(**arguments)
    except BaseException as fault:  # noqa: BLE001 - code of others may raise anything
        return {"fault": _describe(fault)}
    return {kind: value, "kept": {"done": world.done}}


def load_for_forks(start: dict[str, Any], wire: Any) -> Any:
    """Loads the taskset once; what serves a world of it. Raises RuntimeError."""
    try:
        env, tasks = load_taskset(start["callable"], start["args"]["args"])
    except Exception as fault:
        raise RuntimeError(f"the taskset cannot be loaded: {_describe(fault)}") from fault
    folder, tools = start["args"]["folder"], start["args"]["tools"]
    return lambda channel: asyncio.run(serve_world(channel, TasksetWorld(env, tasks, folder, tools), wire))


def _describe(fault: BaseException) -> str:
    if isinstance(fault, BaseExceptionGroup):  # of the tasks of a TaskGroup, which an Env may run its agents in
        return "; ".join(map(_describe, fault.exceptions))
    try:
        return f"{type(fault).__name__}: {fault}"
    except BaseException as other:  # noqa: BLE001 - `__str__` is the code of others too
        return f"{type(fault).__name__}: its text cannot be shown ({type(other).__name__})"


def main() -> None:
    """Describes the taskset, or serves worlds of it. What it prints while it is described goes to stderr."""
    if sys.argv[1] != "describe":
        wire = load_by_file("sandbox/guest/wire.py")
        load_by_file("processes/forking.py").serve_forks(lambda start: load_for_forks(start, wire))
        return
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        with TemporaryDirectory(prefix="rlf-verifiers-") as folder:
            found = asyncio.run(describe_taskset(sys.argv[2], json.loads(sys.argv[3]), folder))
    except BaseException as fault:  # noqa: BLE001 - whatever it is, the other side hears of it
        found = {"error": f"the taskset cannot be loaded: {_describe(fault)}"}
    out.write(json.dumps(found) + "\n")
    out.flush()


def load_by_file(name: str) -> Any:
    """A module of rlf, by its file."""
    place = Path(__file__).parents[3] / name
    spec = importlib.util.spec_from_file_location(f"rlf_{place.stem}", place)
    assert spec is not None and spec.loader is not None, f"{place} is not a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
