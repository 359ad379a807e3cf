"""Dry runs of tools through the executor that training uses: their examples, a fault drill, single calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlf.core.errors import CheckError, RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.text import clean, clean_value
from rlf.tools import Executor, ToolDeclaration, run_examples
from rlf.tools.bench import BenchReport, bench
from rlf.tools.bench import percentiles as percentiles
from rlf.tools.drill import DrillRun, drill
from rlf.tools.examples import run_samples
from rlf.types import ToolCall, ToolResult


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


async def try_tools(
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


async def call_tool(tools: Sequence[ToolDeclaration], name: str, arguments: Mapping[str, Any]) -> CalledTool:
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
    return ToolBench(tool.name, await bench(tool, given, concurrency=concurrency, num_calls=num_calls))


def refuse_failed(trials: Sequence[ToolTrial]) -> None:
    """Raises CheckError where a tool failed."""
    failed = [trial.tool for trial in trials if not trial.ok]
    if failed:
        raise CheckError(f"{len(failed)} of {len(trials)} tools failed: {', '.join(failed)}")


def _dump_arguments(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
