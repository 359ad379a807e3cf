"""`rlf tools`: declared tools, and dry runs of them through the executor that training uses."""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson, ToolFiles, split_arguments
from rlf.cli.completion import complete_tool
from rlf.cli.envelope import NoImport, announced, print_result
from rlf.cli.output import facts_table, plain_table, stdout_console
from rlf.core.errors import CheckError, RlfError
from rlf.reports.sheets import latency, visible

if TYPE_CHECKING:
    from pathlib import Path

    from rlf.apps.tools.trials import ToolTrial
    from rlf.python.specs import Tool
    from rlf.tools import ToolDeclaration

T = TypeVar("T")
ToolName = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)]


def list_tools_command(files: ToolFiles = None, no_import: NoImport = False, as_json: AsJson = False) -> None:
    """List tools with their arguments and limits."""
    from rlf.python.specs import Tool
    from rlf.runs.declared import tools_of_files

    with announced(no_import=no_import):
        found = tools_of_files(*split_arguments(files or (), need_file=bool(files)))
    print_result("tools list", [Tool.of(tool, file=file) for file, tool in found], as_json, lambda: _list_tools(found))


def _list_tools(found: Sequence[tuple[Path, ToolDeclaration]]) -> Table:
    several = len({file for file, _ in found}) > 1
    files = ["file"] if several else []
    table = plain_table(("tool", "kind", *files, "arguments", "timeout", "examples", "description"))
    for file, tool in found:
        place = [visible(file.name)] if several else []
        facts = (_show_arguments(tool), latency(tool.limits.timeout_s), str(len(tool.tests)), visible(tool.description))
        table.add_row(Text(tool.name, "bold"), tool.target.kind, *place, *facts)
    return table


def show_tool_command(
    name: ToolName, files: ToolFiles = None, no_import: NoImport = False, as_json: AsJson = False
) -> None:
    """Show one tool as it is declared, and as the model of a spec reads it: exact text and tokens."""
    from rlf.apps.tools.trials import render_tool
    from rlf.python.specs import Tool
    from rlf.runs.declared import holds_spec, load_tools, tool_named

    with announced(no_import=no_import):
        paths, overrides = split_arguments(files or (), need_file=bool(files))
        tool = tool_named(load_tools(paths, overrides), name)
        shown = Tool.of(tool, prompts=tuple(render_tool(name, file, overrides) for file in paths if holds_spec(file)))
    print_result("tools show", shown, as_json, lambda: _print_tool(shown))


def _print_tool(shown: Tool) -> None:
    console = stdout_console()
    console.print(_show_facts(shown.declaration))
    console.print(visible(json.dumps(shown.for_model().as_openai(), ensure_ascii=False, indent=2)))
    for prompt in shown.prompts or ():
        console.print(f"\n{prompt.format}: {prompt.num_added} tokens of the prompt's {prompt.num_tokens}", style="bold")
        console.print(Text(visible(prompt.text)), soft_wrap=True)
    if not shown.prompts:
        console.print("\nName a spec to see the prompt of its model and count tokens.", style="dim")


def test_tools(
    files: ToolFiles = None,
    call: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--call",
            metavar="NAME JSON",
            help="Run only this call instead of the declared examples.",
            autocompletion=complete_tool,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Dry-run tools: open each, run its examples under `tests:`, then a fault drill; exit code 3 when one fails.

    A Python function without an example is called with arguments made from its inputSchema; stderr says which before
    the call.
    """
    from rlf.apps.tools.trials import refuse_failed, try_each_tool
    from rlf.runs.declared import load_tools

    tools = load_tools(*split_arguments(files or (), need_file=bool(files)))
    if call is not None:
        _run_call(tools, *call, as_json=as_json)
        return
    trials = _run_redirected(try_each_tool(tools, _announce_call))
    notes = [
        Text.assemble((trial.tool, style), f": {visible(line)}")
        for trial in trials
        for lines, style in ((trial.shortfalls, "bold red"), (trial.notes, "bold yellow"))
        for line in lines
    ]
    print_result("tools test", trials, as_json, lambda: Group(_show_verdicts(trials), *notes))
    refuse_failed(trials)


def bench_one(
    name: ToolName,
    files: ToolFiles = None,
    concurrency: Annotated[int, typer.Option("-c", "--concurrency", min=1, help="Calls at once.")] = 64,
    num_calls: Annotated[int, typer.Option("-n", "--calls", min=1, help="Calls in all.")] = 1000,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Arguments of every call, instead of the examples'."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a tool under load: throughput, latency percentiles, errors. Its limits hold, its cache is left out.

    A tool of this machine without a `rate` is called as often again, without the executor: the floor of the load test.
    """
    from rlf.apps.tools.trials import bench_tool
    from rlf.runs.declared import load_tools, tool_named

    tool = tool_named(load_tools(*split_arguments(files or (), need_file=bool(files))), name)
    given = None if arguments is None else _parse_arguments(arguments, "--arguments")
    found = _run_redirected(bench_tool(tool, given, concurrency=concurrency, num_calls=num_calls))
    report = found.report
    facts = [("throughput", f"{report.calls_per_s:,.0f} calls/s, {report.concurrency} at once")]
    for label, times in (("run", report.run_s), ("queue", report.queue_s)):
        facts.append((label, "  ".join(f"{percentile} {latency(value)}" for percentile, value in times.items())))
    if report.floor_s is not None:
        beside = f"{latency(report.wall_s)} beside {latency(report.floor_s)} of plain calls"
        facts.append(("floor", f"load test {report.times_floor:.2f} x the floor: {beside}"))
    facts.append(("loop lag", f"p99 {latency(report.lag_p99_s)}"))
    facts.append(("outcomes", "  ".join(f"{outcome} {num}" for outcome, num in report.num_by_outcome.items())))
    facts += [] if report.first_error is None else [("first error", visible(report.first_error))]
    print_result("tools bench", found, as_json, facts_table(facts))


def _announce_call(name: str, arguments: Mapping[str, Any]) -> None:
    made = visible(json.dumps(arguments, ensure_ascii=False))
    typer.echo(f"{name}: no example under `tests:`; calling it with {made}", err=True)


def _show_verdicts(trials: Sequence[ToolTrial]) -> Table:
    from rlf.apps.tools.trials import percentiles

    table = plain_table(("tool", "kind", "examples", "drill", "p50", "p95", "verdict"))
    for trial in trials:
        times = percentiles([example.result.run_s for example in trial.examples])
        shown = [latency(times[name]) if trial.examples else "" for name in ("p50", "p95")]
        passed = sum(example.ok for example in trial.examples)
        survived = sum(run.shortfall is None for run in trial.drill)
        tried = f"{len(trial.samples)} made up" if trial.samples else f"{passed} of {len(trial.examples)}"
        counts = (tried, f"{survived} of {len(trial.drill)}")
        table.add_row(Text(trial.tool, "bold"), trial.kind, *counts, *shown, _show_verdict(trial))
    return table


def _show_verdict(trial: ToolTrial) -> Text:
    if trial.fault is not None:
        return Text("cannot be opened", "bold red")
    if trial.shortfalls:
        return Text("failed", "bold red")
    if trial.unreachable is not None:
        return Text(f"not tried: {trial.unreachable}", "yellow")
    if trial.examples:
        return Text("ok", "green")
    uncalled = "" if trial.samples else "; no call was made"
    return Text(f"ok, but no example under `tests:`{uncalled}", "yellow")


def _show_facts(tool: ToolDeclaration) -> Table:
    limits, at_once = tool.limits, tool.target.concurrency(tool.limits)
    facts: list[tuple[str, str | Text]] = [
        ("tool", Text(tool.name, "bold")),
        ("kind", tool.target.kind),
        ("arguments", _show_arguments(tool)),
        ("time", f"at most {latency(limits.timeout_s)} a call, {at_once} calls at once"),
        ("retries", f"{limits.retries}"),
        ("cache", tool.cache.scope),
    ]
    if tool.hidden:
        facts.append(("hidden", "hidden from the model: only reward terms call it"))
    return facts_table(facts)


def _run_call(tools: Sequence[ToolDeclaration], name: str, text: str, *, as_json: bool) -> None:
    """Runs one call and prints what the model would read."""
    from rlf.apps.tools.trials import call_as_model
    from rlf.tools.samples import sample_arguments

    named = [tool for tool in tools if tool.name == name]
    if len(named) > 1:
        raise RlfError(f"--call: {name!r} is declared in several files. Name the file, or a spec, before `--call`.")
    made = [arguments for tool in named for arguments in sample_arguments(tool.input_schema)]
    arguments = _parse_arguments(text, example=made[0] if made else _ANY_ARGUMENTS)
    called = _run_redirected(call_as_model(named or tools, name, arguments))
    result = called.result
    print_result("tools test", called, as_json, visible(result.text))
    if result.outcome != "ok":
        raise CheckError(f"{name}: {result.outcome} after {latency(result.queue_s + result.run_s)}")


def _run_redirected(work: Coroutine[Any, Any, T]) -> T:
    """The result of work whose tools print to stderr: stdout is the command's own."""
    import asyncio

    with redirect_stdout(sys.stderr):
        return asyncio.run(work)


_ANY_ARGUMENTS: Mapping[str, Any] = {"a": 1}


def _parse_arguments(text: str, option: str = "--call", example: Mapping[str, Any] = _ANY_ARGUMENTS) -> dict[str, Any]:
    why, arguments = "", None
    try:
        arguments = json.loads(text)
    except ValueError as error:
        why = f" ({error})"
    if isinstance(arguments, dict):
        return arguments
    write = f"Write e.g. '{json.dumps(example, ensure_ascii=False)}'."
    raise RlfError(f"{option}: got {text!r}; expected a JSON object{why}. {write}")


def _show_arguments(tool: ToolDeclaration) -> str:
    from rlf.tools.validate import ArgumentCheck

    return visible(ArgumentCheck(tool.input_schema).misfits().expected())
