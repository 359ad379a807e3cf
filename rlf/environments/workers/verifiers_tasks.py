"""A taskset of verifiers v1, played in the environment that has the package; of rlf only two files are imported.

`python verifiers_tasks.py describe TASKSET ARGS` prints what the taskset is, in a line of JSON. Otherwise the process
loads the taskset once and forks for each world (`rlf.processes.forking`), which then lives as a rollout of verifiers
does: the runtime starts, the task and the toolsets are set up, tools are called, the task finalizes and scores.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pickle
import random
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

_MAX_MISFITS = 3
_USED = {
    "verifiers.v1": ("SubprocessConfig", "TasksetConfig", "Trace"),
    "verifiers.v1.envs.single_agent": ("SingleAgentEnv",),
    "verifiers.v1.graph": ("MessageNode",),
    "verifiers.v1.runtimes": ("provision_runtime",),
    "verifiers.v1.session": ("call_hook", "hook_boundary"),
    "verifiers.v1.state": ("state_cls",),
    "verifiers.v1.trace": ("TraceTask",),
    "verifiers.v1.types": ("AssistantMessage", "SystemMessage", "Tool", "ToolCall", "ToolMessage", "UserMessage"),
    "verifiers.v1.utils.decorators": ("discover_decorated", "invoke"),
    "verifiers.v1.utils.generic": ("concrete_type",),
    "verifiers.v1.utils.loaders": ("default_harness_id", "environment_class", "taskset_class"),
    "mcp.server.mcpserver": ("MCPServer",),
    "mcp.server.mcpserver.exceptions": ("ToolError",),
}


@cache
def package() -> SimpleNamespace:
    """The parts of verifiers 0.4.0 that are used, by name; imported once, before worlds are forked."""
    used = {name: getattr(import_module(module), name) for module, names in _USED.items() for name in names}
    return SimpleNamespace(**used)


def load_taskset(name: str, args: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The taskset that a module or a file exports, and its tasks. Raises ValueError for one that cannot be played."""
    vf = package()
    if name.endswith(".py"):
        sys.path.insert(0, str(Path(name).parent))
        name = Path(name).stem
    made_by = vf.taskset_class(name)
    config = vf.concrete_type(made_by, vf.TasksetConfig) or vf.TasksetConfig
    taskset = made_by(config(**args))
    if not taskset.bounded:
        raise ValueError("the taskset is endless; limit it, e.g. by an argument")
    tasks = list(taskset)
    if not tasks:
        raise ValueError("the taskset has no tasks")
    servers = [*taskset.toolsets(taskset.config), *tasks[0].toolsets(tasks[0].config)]
    misfits = list(find_package_misfits(name))
    misfits += [misfit for server in servers for misfit in find_server_misfits(server)]
    misfits += find_misfits(tasks[0])
    misfits += [misfit for task in tasks for misfit in find_data_misfits(task.data)]
    if misfits:
        raise ValueError("; ".join(misfits[:_MAX_MISFITS]))
    return taskset, tasks


def find_package_misfits(name: str) -> Iterator[str]:
    """What the package exports beside its taskset and verifiers would play it by, found as verifiers finds it."""
    vf = package()
    env = vf.environment_class(name)
    if env is not vf.SingleAgentEnv:
        yield (
            f"the package exports {env.__name__}, an Env of its own, whose `run` plays the tasks and may give the "
            "rewards; rlf plays a taskset alone, one model with the tools of its toolsets"
        )
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
    for key in (key for key, value in values.items() if value):
        yield f"task {data.idx} has `{key}`, but rlf runs tasks as plain processes, without a harness of verifiers"


def find_server_misfits(server: Any) -> Iterator[str]:
    """Reasons why a toolset cannot be served in the world's own process."""
    name = type(server).__name__
    if server.config.url:
        yield f"the toolset {name} is a server at a `url`; declare it as a tool of kind mcp, or as `env: {{kind: mcp}}`"
    elif server.config.runtime.type != "subprocess":
        yield f"the toolset {name} has the runtime {server.config.runtime.type}; only `subprocess` is supported"


def describe_taskset(name: str, args: dict[str, Any]) -> dict[str, Any]:
    """The tools of the taskset's first task, which is set up for it."""

    async def look(world: TasksetWorld) -> list[dict[str, Any]]:
        try:
            await world.reset(0)
            return world.describe_tools()
        finally:
            await world.close()

    with TemporaryDirectory(prefix="rlf-verifiers-") as folder:
        return {"tools": asyncio.run(look(TasksetWorld(*load_taskset(name, args), folder)))}


class TasksetWorld:
    """One task played as verifiers plays it. The methods of a world's life, each asked over the socket."""

    def __init__(self, taskset: Any, tasks: list[Any], folder: str, tools: list[str] | None = None) -> None:
        """Takes what all worlds share.

        Args:
            folder: where each runtime has a folder of its own.
            tools: names that every task's tools must have; None: any.
        """
        self._taskset, self._tasks, self._folder, self._expected = taskset, tasks, folder, tools
        self._open, self._served = AsyncExitStack(), AsyncExitStack()
        self._tools: dict[str, tuple[Any, Any]] = {}
        """The server and its tool, by the name that the model knows."""
        self._task: Any = None
        self._trace: Any = None
        self._runtime: Any = None
        self.done = False

    async def reset(self, seed: int, index: int | None = None) -> str | None:
        """Sets a task up, by its place or by the seed. What the user says first, after the system's words."""
        vf = package()
        number = (seed if index is None else int(index)) % len(self._tasks)
        task = self._task = self._tasks[number]
        self._trace = make_trace(task)
        place = str(Path(self._folder, self._trace.id))  # an absolute name is the runtime's folder
        provided = vf.provision_runtime(vf.SubprocessConfig(), place, task.runtime_env())
        self._runtime = await self._open.enter_async_context(provided)
        await self._invoke(task.setup)
        for server in self._taskset.toolsets(self._taskset.config):
            await self._serve(server)
        for server in task.toolsets(task.config):
            await self._serve(server, task.data)
        if self._expected is not None and sorted(self._tools) != sorted(self._expected):
            found, expected = (", ".join(names) or "none" for names in (self._tools, self._expected))
            raise ValueError(f"task {number} has the tools {found}; the taskset's first one has {expected}")
        self._trace.tools = [
            vf.Tool(name=one["name"], description=one["description"], parameters=one["input_schema"])
            for one in self.describe_tools()
        ]
        prompt = task.data.prompt or []
        if task.data.system_prompt:
            self._note(vf.SystemMessage(content=task.data.system_prompt))
        for message in [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt:
            self._note(message)
        return "\n\n".join(text for text in (task.data.system_prompt, task.data.prompt_text) if text) or None

    async def _serve(self, server: Any, data: Any = None) -> None:
        """Sets a toolset up, for a task's data where it is the task's own, and registers its tools in this process."""
        server._pull_state = lambda: self._pull_state(server)
        server._push_state = lambda before: self._push_state(server, before)
        await self._served.enter_async_context(server._exit_stack)
        await server.setup()
        if data is not None:
            await server.setup_task(data)
        hub = package().MCPServer(server.server_name or type(server).__name__)
        server.register(hub)
        for tool in await hub.list_tools():
            name = f"{server.server_name}_{tool.name}" if server.server_name else tool.name
            if name in self._tools:
                raise ValueError(f"two tools have the name {name!r}; give one toolset another TOOL_PREFIX")
            self._tools[name] = (hub, tool)

    async def _pull_state(self, server: Any) -> Any:
        """The trace's state as the toolset's own type: a copy, as over verifiers' channel."""
        return server._state_adapter.validate_json(self._trace.state.model_dump_json())

    async def _push_state(self, server: Any, before: bytes) -> None:
        after = server._state_adapter.dump_json(server.state)
        if after != before:
            self._trace.state = type(self._trace.state).model_validate_json(after)

    def describe_tools(self) -> list[dict[str, Any]]:
        """Tools as the model sees them."""
        return [
            {"name": name, "description": tool.description or "", "input_schema": tool.input_schema}
            for name, (_, tool) in self._tools.items()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """Calls a tool: `value` and its text, or `refusal` and why."""
        vf = package()
        hub, tool = self._tools[name]
        try:
            result = await hub.call_tool(tool.name, arguments)
            text = "\n".join(read_text(block) for block in result.content)
            kind = "refusal" if result.is_error else "value"
        except vf.ToolError as fault:
            text, kind = str(fault), "refusal"
        number = f"call_{len(self._trace.nodes)}"
        called = vf.ToolCall(id=number, name=name, arguments=json.dumps(arguments))
        self._note(vf.AssistantMessage(tool_calls=[called]), sampled=True)
        self._note(vf.ToolMessage(tool_call_id=number, content=text, name=name))
        for stop in self._task.hooks("stop"):
            if not self.done and await vf.call_hook(stop, {vf.Trace: self._trace}):
                self._trace.stop(stop.__name__)
                self.done = True
        return kind, text

    async def reply(self, text: str) -> None:
        """Takes the model's answer, which ends the task."""
        self._note(package().AssistantMessage(content=text), sampled=True)
        self.done = True

    async def score(self) -> dict[str, float]:
        """Finalizes the task; rewards and metrics by name, and `reward`, the weighted sum."""
        await self._served.aclose()
        await self._invoke(self._task.finalize)
        self._trace.is_completed = self._trace.ok = True
        await self._task.score(self._trace, self._runtime)
        trace = self._trace
        found = {name: None if one is None else one.score for name, one in trace.rewards.items()} | trace.metrics
        if missing := [name for name, value in found.items() if value is None]:
            raise ValueError(f"{', '.join(missing)} gave nothing")
        return {**found, "reward": trace.reward}

    async def state(self) -> Any:
        """The trace's state without artifacts, as JSON; None where JSON cannot hold it."""
        with suppress(ValueError):
            return self._trace.state.model_dump(mode="json", exclude={"artifacts"})
        return None

    async def close(self) -> None:
        """Ends what runs, and removes the runtime's folder."""
        async with self._open, self._served:
            pass

    async def _invoke(self, hook: Any) -> None:
        await package().invoke(hook, {"trace": self._trace, "runtime": self._runtime})

    def _note(self, message: Any, *, sampled: bool = False) -> None:
        nodes = self._trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(package().MessageNode(parent=parent, message=message, sampled=sampled))


def make_trace(task: Any) -> Any:
    """An empty trace of a task, with a state of the task's own type; no agent of verifiers makes it."""
    vf = package()
    recorded = vf.TraceTask.model_construct(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return vf.Trace.model_construct(task=recorded, agent=None, state=vf.state_cls(type(task))())


def read_text(block: Any) -> str:
    """The text of a part of a result, as verifiers shows it. Raises TypeError for an image."""
    if block.type == "image":
        raise TypeError("a tool returned an image; only text is supported")
    return str(block.text if block.type == "text" else block)


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
    """A method's result, as `rlf.environments.instances.read_answer` reads it."""
    kind, value = "value", None
    try:
        if name.startswith("call "):
            kind, value = await world.call(name.removeprefix("call "), arguments)
        elif name == "seed":
            random.seed(arguments["seed"])
        elif name != "__init__":
            value = await getattr(world, name)(**arguments)
    except BaseException as fault:  # noqa: BLE001 - code of others may raise anything
        return {"fault": _describe(fault)}
    return {kind: value, "kept": {"done": world.done}}


def load_for_forks(start: dict[str, Any], wire: Any) -> Any:
    """Loads the taskset once; what serves a world of it. Raises RuntimeError."""
    try:
        taskset, tasks = load_taskset(start["callable"], start["args"]["args"])
    except Exception as fault:
        raise RuntimeError(describe_fault(fault)) from fault
    folder, tools = start["args"]["folder"], start["args"]["tools"]
    return lambda channel: asyncio.run(serve_world(channel, TasksetWorld(taskset, tasks, folder, tools), wire))


def describe_fault(fault: BaseException) -> str:
    """Describes why the taskset cannot be played."""
    return f"the taskset cannot be loaded: {_describe(fault)}"


def _describe(fault: BaseException) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except BaseException as other:  # noqa: BLE001 - `__str__` is the code of others too
        return f"{type(fault).__name__}: its text cannot be shown ({type(other).__name__})"


def main() -> None:
    """Describes the taskset, or serves worlds of it. What it prints while it is described goes to stderr."""
    if sys.argv[1] != "describe":
        wire = load_part("sandbox/guest/wire.py")
        load_part("processes/forking.py").serve_forks(lambda start: load_for_forks(start, wire))
        return
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        found = describe_taskset(sys.argv[2], json.loads(sys.argv[3]))
    except BaseException as fault:  # noqa: BLE001 - whatever it is, the other side hears of it
        found = {"error": describe_fault(fault)}
    out.write(json.dumps(found) + "\n")
    out.flush()


def load_part(name: str) -> Any:
    """A module of rlf, by its file."""
    place = Path(__file__).parents[2] / name
    spec = importlib.util.spec_from_file_location(f"rlf_{place.stem}", place)
    assert spec is not None and spec.loader is not None, f"{place} is not a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
