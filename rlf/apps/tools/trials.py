"""Dry runs of tools through the executor that training uses: their examples, a fault drill, single calls."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.tools.examples import DrillRun, drill, run_examples, run_samples
from rlf.core import RlfError, nearest
from rlf.core.errors import CheckError
from rlf.core.plain_json import Jsonable
from rlf.core.redact import clean
from rlf.core.text import clean_value
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Spec, ToolPrompt, as_command, to_parts
from rlf.runs import declared as load
from rlf.runs.opening import format_name
from rlf.runs.players import open_chat
from rlf.tools.declaration import CacheSpec, ToolDeclaration
from rlf.tools.execution.detached import DetachedTasks
from rlf.tools.execution.executor import Executor
from rlf.tools.kind import CallContext
from rlf.types import Message, Outcome, ToolCall, ToolResult

# The cost of a tool in a spec's prompts: the exact text that the model is shown, and its tokens.


def render_tool(name: str, spec_file: Path, overrides: Sequence[str] = ()) -> ToolPrompt:
    """Renders a tool of a spec for the spec's model. Raises SpecError or RlfError for what is wrong."""
    spec, chat = open_chat([spec_file], overrides)
    found = [tool for tool in spec.tools if tool.name == name]
    if not found:
        known = [tool.name for tool in spec.tools]
        raise RlfError(f"{spec_file}: no tool {name!r}{nearest(name, known)} (known: {', '.join(known) or 'none'}).")
    question = [Message("user", "...")]
    with_tool, without = chat.prompt(question, [found[0].description_for_model]), chat.prompt(question, [])
    return ToolPrompt(format_name(spec, chat), chat.decode(with_tool), len(with_tool), len(with_tool) - len(without))


# How fast one tool answers under load, through the executor that training uses.


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Results of a load test. Times are in seconds."""

    num_calls: int
    concurrency: int
    wall_s: float
    calls_per_s: float
    run_s: Mapping[str, float]
    """From permit to result: p50, p95, p99, max."""
    queue_s: Mapping[str, float]
    """Waiting for a permit: p50, p95, p99, max."""
    num_by_outcome: Mapping[str, int]
    first_error: str | None
    lag_p99_s: float
    """How late the event loop was."""
    floor_s: float | None
    """What the same calls take without the executor, as tasks with a deadline, as many at once as the tool's permits
    allow. None: the tool is elsewhere, has a rate, left calls behind, or takes other arguments.
    """
    times_floor: float | None
    """`wall_s / floor_s`."""


async def time_calls(
    declaration: ToolDeclaration, arguments: Sequence[Mapping[str, Any]], *, concurrency: int, num_calls: int
) -> BenchReport:
    """Makes calls with the given arguments in turn, so many at once; the tool's limits hold, its cache is left out.

    A tool of this machine without a rate is called as often again, for the floor, and once before each time, so
    that what it loads at its first call counts on neither side.
    """
    plain = declaration.model_copy(update={"cache": CacheSpec()})
    calls = list(islice(cycle(arguments), num_calls))
    results: list[ToolResult] = []
    has_floor = plain.target.is_local and plain.limits.rate is None
    async with Executor([plain]) as executor:

        async def call(of: Mapping[str, Any], trajectory_id: str) -> None:
            results.append(await executor.invoke(ToolCall(plain.name, of), trajectory_id=trajectory_id))

        if has_floor:
            await executor.invoke(ToolCall(plain.name, calls[0]), trajectory_id="bench-first")
        wall_s = await _spread(call, calls, concurrency)
        lags, num_abandoned = list(executor.monitor.lags_s), executor.num_abandoned
    took_arguments = all(result.outcome is not Outcome.INVALID_ARGUMENTS and not result.coerced for result in results)
    has_floor = has_floor and took_arguments and not num_abandoned
    floor_s = await time_plain_calls(plain, calls, concurrency) if has_floor else None
    failed = [result.text for result in results if result.outcome != "ok"]
    return BenchReport(
        num_calls=num_calls,
        concurrency=concurrency,
        wall_s=wall_s,
        calls_per_s=num_calls / wall_s,
        run_s=percentiles([result.run_s for result in results]),
        queue_s=percentiles([result.queue_s for result in results]),
        num_by_outcome=dict(Counter(str(result.outcome) for result in results).most_common()),
        first_error=failed[0] if failed else None,
        lag_p99_s=percentiles(lags)["p99"],
        floor_s=floor_s,
        times_floor=None if floor_s is None else wall_s / floor_s,
    )


async def time_plain_calls(declaration: ToolDeclaration, calls: Sequence[Mapping[str, Any]], concurrency: int) -> float:
    """Seconds of calls that go to the tool without the executor: a task with a deadline each, and nothing else.

    The first call is made once more before them.
    """
    limits = declaration.limits
    runtime, detached = await declaration.target.open(limits), DetachedTasks()

    async def call(of: Mapping[str, Any], trajectory_id: str) -> None:
        await runtime.make_ready(trajectory_id)
        context = CallContext(trajectory_id, limits.timeout_s, idempotent=declaration.idempotent)
        await detached.fault_of(runtime.invoke(of, context), limits.timeout_s, declaration.name)

    try:
        await call(calls[0], "bench-first")
        return await _spread(call, calls, min(concurrency, declaration.target.concurrency(limits)))
    finally:
        await detached.close()
        await runtime.close()


async def _spread(
    call: Callable[[Mapping[str, Any], str], Awaitable[None]], calls: Sequence[Mapping[str, Any]], num_at_once: int
) -> float:
    """Makes calls, so many at once, and returns the seconds that they took."""
    left = iter(calls)

    async def work(number: int) -> None:
        for arguments in left:
            await call(arguments, f"bench-{number}")

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(num_at_once):
            group.create_task(work(number))
    return time.perf_counter() - started


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max by the nearest rank; 0 where there is no value."""
    ordered = sorted(values) or [0.0]
    ranks = {name: ordered[max(0, -(-len(ordered) * share // 100) - 1)] for name, share in _SHARES.items()}
    return ranks | {"max": ordered[-1]}


_SHARES = {"p50": 50, "p95": 95, "p99": 99}


@dataclass(frozen=True, slots=True)
class TriedExample:
    """One call of a dry run."""

    arguments: Mapping[str, Any]
    ok: bool
    result: ToolResult


@dataclass(frozen=True, slots=True)
class ToolTrial(Jsonable):
    """The result of a dry run of one tool."""

    tool: str
    kind: str = field(metadata={"json": None})
    fault: str | None = field(metadata={"json": None})
    """Why it cannot be opened."""
    shortfalls: tuple[str, ...]
    """Everything that is not as it must be, in words."""
    notes: tuple[str, ...] = field(metadata={"json": None})
    """Made-up arguments that did not do, which is no fault."""
    unreachable: str | None
    """Why nobody would answer, of a tool that no example calls."""
    examples: tuple[TriedExample, ...]
    samples: tuple[TriedExample, ...]
    """Calls with made-up arguments, of a Python function without an example."""
    drill: tuple[DrillRun, ...]
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether the tool has no fault."""
        return not self.shortfalls


@dataclass(frozen=True, slots=True)
class CalledTool:
    """One call."""

    tool: str
    arguments: Mapping[str, Any]
    result: ToolResult


@dataclass(frozen=True, slots=True)
class ToolBench:
    """A tool under load."""

    tool: str
    report: BenchReport


Announce = Callable[[str, Mapping[str, Any]], None]
"""Takes a tool's name and made-up arguments before the call: a function may write, send or delete."""


async def try_each_tool(
    tools: Sequence[ToolDeclaration], announce: Announce = lambda name, arguments: None
) -> list[ToolTrial]:
    """Each tool by itself: files of a folder may declare one name in several ways, for different specs."""
    return [await _try_tool(tool, announce) for tool in tools]


async def _try_tool(tool: ToolDeclaration, announce: Announce) -> ToolTrial:
    try:
        async with Executor([tool.model_copy(update={"hidden": False})]) as executor:
            examples = await run_examples(executor, tool)
            is_unasked = not examples and tool.target.kind == "python"
            samples = await run_samples(executor, tool, lambda made: announce(tool.name, made)) if is_unasked else []
            unreachable = None if examples else await tool.target.unreachable()
            drills = await drill(executor, tool)
    except RlfError as error:
        return ToolTrial(tool.name, tool.target.kind, str(error), (str(error),), (), None, (), (), ())
    of_examples = [f"{_dump_arguments(run.test.arguments)}: {line}" for run in examples for line in run.shortfalls]
    of_samples = [f"{_dump_arguments(run.arguments)}: {run.shortfall}" for run in samples if run.shortfall]
    of_drills = [f"{run.fault}: {run.shortfall}" for run in drills if run.shortfall]
    return ToolTrial(
        tool.name,
        tool.target.kind,
        None,
        shortfalls=(*of_examples, *of_samples, *of_drills),
        notes=tuple(f"{_dump_arguments(run.arguments)}: {run.note}" for run in samples if run.note),
        unreachable=unreachable,
        examples=tuple(TriedExample(run.test.arguments, not run.shortfalls, run.result) for run in examples),
        samples=tuple(TriedExample(run.arguments, not run.shortfall, run.result) for run in samples),
        drill=tuple(drills),
    )


async def call_as_model(tools: Sequence[ToolDeclaration], name: str, arguments: Mapping[str, Any]) -> CalledTool:
    """One call, as the model would make it: its arguments are JSON in valid text, however they were typed."""
    name, arguments = clean(name), clean_value(dict(arguments))
    async with Executor(tools) as executor:
        return CalledTool(name, arguments, await executor.invoke(ToolCall(name, arguments), trajectory_id="call"))


async def bench_tool(
    tool: ToolDeclaration, arguments: Mapping[str, Any] | None, *, concurrency: int, num_calls: int
) -> ToolBench:
    """Calls a tool under load, with its examples' arguments where none are given. Raises RlfError where it has none."""
    given = [test.arguments for test in tool.tests if test.expect.error is None] if arguments is None else [arguments]
    if not given:
        raise RlfError(
            f"{tool.name}: has no example to call it with. Add one under `tests:`, or write --arguments JSON."
        )
    return ToolBench(tool.name, await time_calls(tool, given, concurrency=concurrency, num_calls=num_calls))


def refuse_failed(trials: Sequence[ToolTrial]) -> None:
    """Raises CheckError where a tool failed."""
    failed = [trial.tool for trial in trials if not trial.ok]
    if failed:
        raise CheckError(f"{len(failed)} of {len(trials)} tools failed: {', '.join(failed)}")


def _dump_arguments(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def try_tools(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[ToolTrial]:
    """Dry runs: each tool is opened, its examples are run, then a fault drill. What falls short is in the results.

    A Python function without an example is called with arguments made from its schema.
    """
    with as_command():
        tools = load.load_tools(*to_parts(spec, "tools", load.TOOL_KEYS, runs_folder))
        return asyncio.run(try_each_tool(tools))
