"""`rlf tools`: declared tools, and dry runs of them through the executor that training uses."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson
from rlf.cli.completion import complete_tool, complete_tool_file
from rlf.cli.envelope import print_envelope
from rlf.cli.foreign import NoImport, announced
from rlf.cli.fuzz import fuzz_tools
from rlf.cli.output import stdout_console
from rlf.cli.tool_files import holds_spec, load_tools, tools_of_files
from rlf.cli.tools_import import import_tools
from rlf.cli.tools_serve import serve_tools
from rlf.core.errors import CheckError, RlfError
from rlf.core.registry import nearest
from rlf.reports.quantities import latency, visible

if TYPE_CHECKING:
    from rlf.api.tools.prompts import ToolPrompt
    from rlf.tools import ExampleRun, ToolDeclaration
    from rlf.tools.bench import BenchReport
    from rlf.tools.drill import DrillRun
    from rlf.tools.examples import SampleRun
    from rlf.types.tool import ToolResult

T = TypeVar("T")
ToolFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SPEC|FILE",
        help="Specs or tool files; without any, every file in tool_specs/.",
        autocompletion=complete_tool_file,
    ),
]

tools_app = typer.Typer(name="tools", help="List tools and try them out.", no_args_is_help=True)
tools_app.command("fuzz")(fuzz_tools)
tools_app.command("import")(import_tools)
tools_app.command("serve")(serve_tools)


@tools_app.command("list")
def list_tools(files: ToolFiles = None, no_import: NoImport = False, as_json: AsJson = False) -> None:
    """List tools with their arguments and limits."""
    with announced(no_import=no_import):
        found = tools_of_files(files or ())
    if as_json:
        print_envelope("tools list", [_described(tool) | {"file": str(file)} for file, tool in found])
        return
    several = len({file for file, _ in found}) > 1
    table = _table("tool", "kind", *(["file"] if several else []), "arguments", "timeout", "examples", "description")
    for file, tool in found:
        place = [visible(file.name)] if several else []
        facts = (_arguments(tool), latency(tool.limits.timeout_s), str(len(tool.tests)), visible(tool.description))
        table.add_row(Text(tool.name, "bold"), _kind(tool), *place, *facts)
    stdout_console().print(table)


@tools_app.command("show")
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)],
    files: ToolFiles = None,
    no_import: NoImport = False,
    as_json: AsJson = False,
) -> None:
    """Show one tool as it is declared, and as the model of a spec reads it: exact text and tokens."""
    with announced(no_import=no_import):
        tool = _named(load_tools(files or ()), name)
        prompts = [_rendered(name, file) for file in files or () if holds_spec(file)]
    if as_json:
        print_envelope("tools show", {**_described(tool), "prompts": prompts})
        return
    console = stdout_console()
    console.print(_facts(tool))
    console.print(visible(json.dumps(tool.description_for_model.as_openai(), ensure_ascii=False, indent=2)))
    for prompt in prompts:
        console.print(f"\n{prompt.format}: {prompt.num_added} tokens of the prompt's {prompt.num_tokens}", style="bold")
        console.print(Text(visible(prompt.text)), soft_wrap=True)
    if not prompts:
        console.print("\nName a spec to see the prompt of its model and count tokens.", style="dim")


@tools_app.command("test")
def test_tools(
    files: ToolFiles = None,
    call: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--call",
            metavar="NAME JSON",
            help="Run this one call in place of the declared examples.",
            autocompletion=complete_tool,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Dry-run tools: open each, run its examples under `tests:`, then a fault drill; exit code 3 when one fails.

    A Python function without an example is called with arguments made from its inputSchema; stderr says which before
    the call.
    """
    tools = load_tools(files or ())
    if call is not None:
        _call(tools, call[0], _parsed(call[1]), as_json=as_json)
        return
    trials = _run(_try_all(tools))
    if as_json:
        print_envelope("tools test", [_told(trial) for trial in trials])
    else:
        stdout_console().print(_verdicts(trials))
        for trial in trials:
            for line in trial.shortfalls:
                stdout_console().print(Text.assemble((trial.tool.name, "bold red"), f": {visible(line)}"))
            for line in trial.notes:
                stdout_console().print(Text.assemble((trial.tool.name, "bold yellow"), f": {visible(line)}"))
    failed = [trial.tool.name for trial in trials if trial.shortfalls]
    if failed:
        raise CheckError(f"{len(failed)} of {len(trials)} tools failed: {', '.join(failed)}")


@tools_app.command("bench")
def bench_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)],
    files: ToolFiles = None,
    concurrency: Annotated[int, typer.Option("-c", "--concurrency", min=1, help="Calls at once.")] = 64,
    num_calls: Annotated[int, typer.Option("-n", "--calls", min=1, help="Calls in all.")] = 1000,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Of every call, in place of the examples'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a tool under load: throughput, latency percentiles, errors. Its limits hold, its cache is left out."""
    from rlf.tools.bench import bench

    tool = _named(load_tools(files or ()), name)
    given = [test.arguments for test in tool.tests if test.expect.error is None]
    if arguments is not None:
        given = [_parsed(arguments, "--arguments")]
    if not given:
        raise RlfError(f"{name}: has no example to call it with. Add one under `tests:`, or write --arguments JSON.")
    report = _run(bench(tool, given, concurrency=concurrency, num_calls=num_calls))
    if as_json:
        print_envelope("tools bench", {"tool": name, "report": report})
    else:
        stdout_console().print(_measured(report))


def _measured(report: BenchReport) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("throughput", f"{report.calls_per_s:,.0f} calls/s, {report.concurrency} at once")
    for label, times in (("run", report.run_s), ("queue", report.queue_s)):
        table.add_row(label, "  ".join(f"{name} {latency(value)}" for name, value in times.items()))
    table.add_row("loop lag", f"p99 {latency(report.lag_p99_s)}")
    table.add_row("outcomes", "  ".join(f"{outcome} {count}" for outcome, count in report.num_by_outcome.items()))
    if report.first_error is not None:
        table.add_row("first error", visible(report.first_error))
    return table


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a dry run of one tool came to."""

    tool: ToolDeclaration
    fault: str | None
    """Why it cannot be opened."""
    examples: Sequence[ExampleRun] = ()
    drills: Sequence[DrillRun] = ()
    samples: Sequence[SampleRun] = ()
    """Calls with made-up arguments, of a function that no example calls."""
    absent: str | None = None
    """Why nobody would answer, of a tool that no example calls."""

    @property
    def shortfalls(self) -> list[str]:
        """Everything that is not as it must be, in words."""
        opening = [] if self.fault is None else [self.fault]
        of_examples = [f"{_compact(run.test.arguments)}: {line}" for run in self.examples for line in run.shortfalls]
        of_samples = [f"{_compact(run.arguments)}: {run.shortfall}" for run in self.samples if run.shortfall]
        of_drills = [f"{run.fault}: {run.shortfall}" for run in self.drills if run.shortfall]
        return [*opening, *of_examples, *of_samples, *of_drills]

    @property
    def notes(self) -> list[str]:
        """Made-up arguments that did not do, which is no fault."""
        return [f"{_compact(run.arguments)}: {run.note}" for run in self.samples if run.note]


async def _try_all(tools: Sequence[ToolDeclaration]) -> list[_Trial]:
    """Each tool by itself: files of a folder may declare one name in several ways, for different specs."""
    return [await _try(tool) for tool in tools]


async def _try(tool: ToolDeclaration) -> _Trial:
    from rlf.tools import Executor, run_examples
    from rlf.tools.drill import drill
    from rlf.tools.examples import run_samples

    shown = tool.model_copy(update={"hidden": False})
    try:
        async with Executor([shown]) as executor:
            examples = await run_examples(executor, tool)
            is_unasked = not examples and tool.target.kind == "python"
            samples = await run_samples(executor, tool, _announce(tool)) if is_unasked else []
            absent = None if examples else await tool.target.unreachable()
            return _Trial(tool, None, examples, await drill(executor, tool), samples, absent)
    except RlfError as fault:
        return _Trial(tool, str(fault))


def _announce(tool: ToolDeclaration) -> Callable[[Mapping[str, Any]], None]:
    """A line on stderr: a function may write, send or delete."""

    def announce(arguments: Mapping[str, Any]) -> None:
        typer.echo(f"{tool.name}: no example under `tests:`; calling it with {visible(_compact(arguments))}", err=True)

    return announce


def _verdicts(trials: Sequence[_Trial]) -> Table:
    from rlf.tools.bench import percentiles

    table = _table("tool", "kind", "examples", "drill", "p50", "p95", "verdict")
    for trial in trials:
        times = percentiles([run.result.run_s for run in trial.examples])
        shown = [latency(times[name]) if trial.examples else "" for name in ("p50", "p95")]
        passed = sum(not run.shortfalls for run in trial.examples)
        survived = sum(run.shortfall is None for run in trial.drills)
        tried = f"{len(trial.samples)} made up" if trial.samples else f"{passed} of {len(trial.examples)}"
        counts = (tried, f"{survived} of {len(trial.drills)}")
        table.add_row(Text(trial.tool.name, "bold"), _kind(trial.tool), *counts, *shown, _verdict(trial))
    return table


def _verdict(trial: _Trial) -> Text:
    if trial.fault is not None:
        return Text("cannot be opened", "bold red")
    if trial.shortfalls:
        return Text("failed", "bold red")
    if trial.absent is not None:
        return Text(f"not tried: {trial.absent}", "yellow")
    if trial.examples:
        return Text("ok", "green")
    uncalled = "" if trial.samples else "; no call was made"
    return Text(f"ok, but no example under `tests:`{uncalled}", "yellow")


def _told(trial: _Trial) -> dict[str, Any]:
    examples = [
        {"arguments": run.test.arguments, "ok": not run.shortfalls, "result": run.result} for run in trial.examples
    ]
    verdict = {"ok": not trial.shortfalls, "shortfalls": trial.shortfalls}
    return {
        "tool": trial.tool.name,
        **verdict,
        "unreachable": trial.absent,
        "examples": examples,
        "samples": [
            {"arguments": run.arguments, "ok": not run.shortfall, "result": run.result} for run in trial.samples
        ],
        "drill": trial.drills,
    }


def _named(tools: Sequence[ToolDeclaration], name: str) -> ToolDeclaration:
    """The one tool of that name. Raises RlfError when there is none, or several."""
    found = [tool for tool in tools if tool.name == name]
    if not found:
        known = list(dict.fromkeys(tool.name for tool in tools))
        raise RlfError(f"no tool {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    if len(found) > 1:
        raise RlfError(f"{name!r} is declared in several files. Name the file, or a spec.")
    return found[0]


def _rendered(name: str, file: Path) -> ToolPrompt:
    from rlf.api.tools.prompts import render_tool

    return render_tool(name, file)


def _facts(tool: ToolDeclaration) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    limits = tool.limits
    table.add_row("tool", Text(tool.name, "bold"))
    table.add_row("kind", _kind(tool))
    table.add_row("arguments", _arguments(tool))
    at_once = tool.target.concurrency(limits)
    table.add_row("time", f"at most {latency(limits.timeout_s)} a call, {at_once} calls at once")
    table.add_row("retries", f"{limits.retries}")
    table.add_row("cache", tool.cache.scope)
    if tool.hidden:
        table.add_row("hidden", "the model is not told of it: reward terms alone call it")
    return table


def _call(tools: Sequence[ToolDeclaration], name: str, arguments: Mapping[str, Any], *, as_json: bool) -> None:
    """Runs one call and prints what the model would read."""
    named = [tool for tool in tools if tool.name == name]
    if len(named) > 1:
        raise RlfError(f"--call: {name!r} is declared in several files. Name the file, or a spec, before `--call`.")
    result = _run(_invoke(named or tools, name, arguments))
    if as_json:
        print_envelope("tools test", {"tool": name, "arguments": arguments, "result": result})
    else:
        print(visible(result.text))
    if result.outcome != "ok":
        raise CheckError(f"{name}: {result.outcome} after {latency(result.queue_s + result.run_s)}")


async def _invoke(tools: Sequence[ToolDeclaration], name: str, arguments: Mapping[str, Any]) -> ToolResult:
    from rlf.tools import Executor
    from rlf.types.tool import ToolCall

    async with Executor(tools) as executor:
        return await executor.invoke(ToolCall(name, arguments), trajectory_id="call")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """What it comes to. What tools print goes to stderr: stdout is the command's own."""
    with redirect_stdout(sys.stderr):
        return asyncio.run(work)


def _parsed(text: str, option: str = "--call") -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise _no_object(option, text, f" ({error})") from error
    if not isinstance(arguments, dict):
        raise _no_object(option, text)
    return arguments


def _no_object(option: str, text: str, why: str = "") -> RlfError:
    return RlfError(f"{option}: got {text!r}; expected a JSON object{why}. Write e.g. '{{\"a\": 1}}'.")


def _described(tool: ToolDeclaration) -> dict[str, Any]:
    """What may be told of a tool; its target may hold credentials."""
    described = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    return {**described, "kind": _kind(tool), "timeout_s": tool.limits.timeout_s, "num_tests": len(tool.tests)}


def _kind(tool: ToolDeclaration) -> str:
    return tool.target.kind


def _arguments(tool: ToolDeclaration) -> str:
    from rlf.tools.validate import ArgumentCheck

    return visible(ArgumentCheck(tool.input_schema).expected())


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _table(*headers: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
