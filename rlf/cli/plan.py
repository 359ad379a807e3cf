"""`rlf plan`: what a run will be, before it runs; or what differs between two."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, SpecArguments, split_arguments
from rlf.cli.envelope import NoImport, announced, print_result
from rlf.cli.output import facts_table, plain_table, stdout_console
from rlf.core.errors import RlfError
from rlf.core.text import shorten
from rlf.reports.sheets import counted, dollars, duration, points, visible

if TYPE_CHECKING:
    from rlf.plan.estimate import GpuMemory, MemoryPart, Workload
    from rlf.runs.planning import PlanDifference, PlannedValue, PlanReport
    from rlf.runs.planning import PlanningFit as Fit


_STYLES = {"default": "dim", "override": "yellow", "environment": "cyan"}
_MAX_VALUE = 72


def plan(
    arguments: SpecArguments,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="SIZE", help="Memory of the GPU that will train, e.g. 24GB.")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what differs between two specs.")] = False,
    no_import: NoImport = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show what a run will be: every value with its origin, files, work and memory.

    Python that the spec names is imported and its MCP servers are started, unless `--no-import` is given; each is named
    on stderr before it runs.
    """
    from rlf.runs.planning import compare_plans, report_plan

    files, overrides = split_arguments(arguments)
    if diff and len(files) != 2:
        raise RlfError(f"--diff: got {len(files)} specs; expected two. Write e.g. `rlf plan --diff a.yaml b.yaml`.")
    if diff:
        with announced(no_import=no_import):
            found = compare_plans(files[0], files[1], overrides)
        return print_result("plan", found, as_json, lambda: _print_difference(stdout_console(), found))
    with announced(no_import=no_import):
        report = report_plan(files, overrides, gpu=gpu, runs_folder=runs_folder)
    return print_result("plan", report, as_json, lambda: _print_report(stdout_console(), report))


def _print_report(console: Console, report: PlanReport) -> None:
    console.print(Text(f"{report.name}: plan {report.plan_hash}", "bold"))
    table = plain_table(("value", "", "from"))
    for value in report.values:
        table.add_row(value.path, _show_value(value.value), _show_origin(value), style=_STYLES.get(value.source, ""))
    console.print(table, "", crop=False)
    files = ((each.path, each.sha256[:12], each.role) for each in report.files)
    console.print(plain_table(("file", "sha256", "role"), files), "", crop=False)
    console.print(facts_table(_show_work(report)), "", crop=False)
    if report.argv:
        console.print(Text("options of the job", "bold"))
        console.print(Text("\n".join(_iterate_options(report.argv))), "", soft_wrap=True)
    if report.memory is not None:
        console.print(_show_parts(report.memory.parts), crop=False)
        console.print(_show_sum(report, report.memory.total_bytes), soft_wrap=True)
    elif report.gpus:
        for group in report.gpus:
            _print_gpu(console, group)
        if report.machine is not None:
            console.print(Text("each machine, beside its GPUs", "bold"))
            console.print(_show_parts(report.machine.parts), crop=False)
            console.print(f"at least {decimal_size(report.machine.total_bytes)}\n")
        console.print(_show_sum(report, max(group.peak_bytes for group in report.gpus)), soft_wrap=True)
    else:
        console.print(Text(f"memory   unknown: {report.memory_unknown}"), soft_wrap=True)
    if report.disk is not None:
        console.print("", _show_parts(report.disk.parts, "disk"), crop=False)
        text = Text(f"disk {decimal_size(report.disk.total_bytes)}, estimated", "bold")
        console.print(text if report.room is None else _add_verdict(text, report.room), soft_wrap=True)


def _iterate_options(options: Sequence[str]) -> Iterator[str]:
    """Each option with its values, as a shell would take them."""
    line: list[str] = []
    for word in options:
        if word.startswith("--") and line:
            yield shlex.join(line)
            line = []
        line.append(word)
    yield shlex.join(line)


def _print_gpu(console: Console, group: GpuMemory) -> None:
    each = "each of " if group.num_gpus > 1 else ""
    console.print(Text(f"{group.holds}: {each}{counted(group.num_gpus, 'GPU')}", "bold"))
    for phase in group.phases:
        console.print(_show_parts(phase.parts), crop=False)
        console.print(f"{phase.name}: {decimal_size(phase.total_bytes)}\n")
    if group.lacks:
        console.print(Text(f"{group.lacks}\n", "bold red"), soft_wrap=True)


def _show_work(report: PlanReport) -> Iterator[tuple[str, str]]:
    from rlf.reports.paired import power_words

    work: Workload = report.work
    most = "at most " if work.num_trajectories_is_bound else ""
    fewer = "at most " if work.num_updates_is_bound else ""
    yield "steps", f"{fewer}{work.num_steps:,}, {work.num_updates:,} optimiser updates"
    yield "trajectories", f"{most}{work.num_trajectories:,}, {most}{work.num_passes:.2f} passes over the training set"
    if report.power is not None:
        yield "evaluations", f"{work.num_evaluations}, {work.num_evaluation_trajectories:,} trajectories"
        clusters = any(value.path == "data.eval.cluster" and value.value for value in report.values)
        yield "can show", power_words(report.power) + (" Questions in clusters show less." if clusters else "")
        yield "several seeds", _show_seeds(report)
    yield "tokens", f"at most {work.max_tokens:,} (bound: every trajectory at max_total_tokens)"
    if work.max_tool_calls is None:
        yield "tool calls", "no bound: a turn may hold several calls (rollout.max_tool_calls or chat.stop_after_call)"
    else:
        yield "tool calls", f"at most {work.max_tool_calls:,} (bound)"
    yield "time", _show_time(report)


def _show_seeds(report: PlanReport) -> str:
    """`3 seeds x 200 questions a side separate 5.0 points, $4.20`, and what that is assumed from."""
    from rlf.runs.planning import ASSUMED_SPREAD

    parts = []
    for one in report.seeds:
        cost = f", {dollars(one.cost_usd)} of tools and judges for both sides" if one.cost_usd else ""
        size = f"{one.num_seeds} seeds x {report.work.num_questions:,} questions a side"
        parts.append(f"{size} separate {points(one.difference)}{cost}")
    earlier = report.earlier
    if earlier.seed_spread is None:
        assumed = f"assumed: seeds differ by {points(ASSUMED_SPREAD)} (standard deviation; no two seeds have finished)"
    else:
        number = counted(len(earlier.run_ids), "run")
        assumed = f"from {number} of this plan: seeds differ by {points(earlier.seed_spread)} (standard deviation)"
    if earlier.inflation is not None:
        assumed += f", clusters widen by {math.sqrt(earlier.inflation):.2f}"
    cost_words = "" if earlier.run_ids else "; what they cost is known once a run of this plan has finished"
    return f"{'; '.join(parts)}. {assumed[0].upper()}{assumed[1:]}, 5 % of questions are lost{cost_words}."


def _show_time(report: PlanReport) -> str:
    time = report.step_time
    if time is None:
        return "unknown until a run of this plan has made a step"
    whole = duration(time.median_s * report.work.num_steps)
    runs = f"{counted(len(time.run_ids), 'run')} on {', '.join(time.devices)}"
    return f"{whole} for the steps: {time.median_s:.2f} s each, median of {time.num_steps} steps of {runs}"


def _show_parts(parts: Sequence[MemoryPart], of: str = "memory") -> Table:
    rows = ((part.name, decimal_size(part.size_bytes), part.formula, part.numbers) for part in parts)
    return plain_table((of, "size", "formula", "numbers"), rows)


def _show_sum(report: PlanReport, total_bytes: int) -> Text:
    count = counted(report.num_gpus, "GPU")
    what = f"{count}, the fullest" if report.gpus else "sum"
    text = Text(f"{what} {decimal_size(total_bytes)}, estimated", "bold")
    if report.fit is None:
        return text.append("; name the GPU to see whether it fits: --gpu 24GB", "not bold")
    return _add_verdict(text, report.fit)


def _add_verdict(text: Text, fit: Fit) -> Text:
    verdict = ("fits", "green") if fit.fits else ("does not fit", "bold red")
    return text.append(": ").append(*verdict).append(f" {fit.where}, {decimal_size(fit.size_bytes)}", "not bold")


def _print_difference(console: Console, found: PlanDifference) -> None:
    if not found.differences:
        console.print(f"no value differs; plan {found.left_hash[:12]}")
        return
    headers = ("value", f"{found.left}  {found.left_hash[:12]}", f"{found.right}  {found.right_hash[:12]}")
    rows = ((pair.path, _show_side(pair.left), _show_side(pair.right)) for pair in found.differences)
    console.print(plain_table(headers, rows), crop=False)


def _show_side(value: PlannedValue | None) -> Text:
    if value is None:
        return Text("absent", "dim")
    return Text(_show_value(value.value)).append(f"  {_show_origin(value)}", "dim")


def _show_origin(value: PlannedValue) -> str:
    return visible(value.place if value.source == "file" else f"{value.source} {value.place}".strip())


def _show_value(value: Any) -> str:
    return shorten(visible(json.dumps(value, ensure_ascii=False)), _MAX_VALUE)


def decimal_size(size_bytes: int) -> str:
    """`812 MB`, `1.25 GB`: powers of ten, as GPUs are sold."""
    if size_bytes >= 10**9:
        return f"{size_bytes / 10**9:.2f} GB"
    return f"{size_bytes / 10**6:.1f} MB"
