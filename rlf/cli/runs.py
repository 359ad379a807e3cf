"""`rlf runs`: what the lineage knows of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, HtmlFile, RunName, RunsFolder, runs_option
from rlf.cli.branch import branch_trajectory
from rlf.cli.compare import compare_runs
from rlf.cli.envelope import print_envelope, print_result
from rlf.cli.fork import fork_run
from rlf.cli.graph import diff_runs, print_graph, whence
from rlf.cli.marks import note_run, remove_runs, tag_run, thin_runs
from rlf.cli.output import stdout_console, write_page
from rlf.cli.reproduce import reproduce_run
from rlf.cli.salvage import salvage_runs, verify_lineage
from rlf.cli.tail import tail_run
from rlf.cli.trace import show_trajectory
from rlf.cli.transfer import export_runs, import_runs
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.api.runs.trace import Reader, Run

runs_app = typer.Typer(name="runs", help="List runs and look into them.", no_args_is_help=True)
runs_app.command("compare", no_args_is_help=True)(compare_runs)


runs_app.command("tail")(tail_run)
runs_app.command("reproduce")(reproduce_run)
runs_app.command("fork")(fork_run)
runs_app.command("branch")(branch_trajectory)
runs_app.command("diff")(diff_runs)
runs_app.command("whence")(whence)
runs_app.command("tag")(tag_run)
runs_app.command("note")(note_run)
runs_app.command("rm")(remove_runs)
runs_app.command("gc")(thin_runs)
runs_app.command("verify")(verify_lineage)
runs_app.command("salvage")(salvage_runs)
runs_app.command("export")(export_runs)
runs_app.command("import")(import_runs)


@runs_app.command("list")
def list_runs(
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILTER]",
            help="Which runs, e.g. `success > 0.8 and spec == \"search\" and started > -7d`, or `'best' in tags`.",
        ),
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="NAME", help="Order by this, highest first.", show_default="started")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAMES",
            help="Columns, by commas, e.g. `run_id,engine,started,success`.",
            show_default="all",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="The first N of them.", show_default="all")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. A filter, an order and columns may name the same things."""
    from rlf.api.lineage import open_reader
    from rlf.reports.overview import chosen, fitting_columns, read_overviews, render_overviews, shown_columns

    with open_reader(runs_folder) as reader:
        every = read_overviews(reader)
    overviews = chosen(every, wanted, sort)[:limit]
    shown = shown_columns(overviews, columns)
    if as_json:
        print_envelope("runs list", overviews)
    elif overviews:
        console = stdout_console()
        fitting = fitting_columns(overviews, shown, console.width, must_stay=columns is not None)
        console.print(render_overviews(overviews, fitting))
    else:
        print("no run matches." if every else "no runs yet. Start one with `rlf run SPEC`.")


@runs_app.command("show")
def show_run(
    name: RunName,
    trajectory: Annotated[
        int | None, typer.Option("--trajectory", metavar="K", min=0, help="Show trajectory K of a step, from 0.")
    ] = None,
    phase: Annotated[
        str,
        typer.Option(
            "--phase", help="Where K counts: `train`, an evaluation's `sampled` or `greedy`, or `interrupted`."
        ),
    ] = "train",
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="Step that K counts in.", show_default="the phase's latest")
    ] = None,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="Draw what the run was made of and what it made, with hashes.")
    ] = False,
    html: HtmlFile = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show a run, its result first, or one of its trajectories turn by turn."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs.graph import read_graph

    if trajectory is None and not lineage and (step is not None or phase != "train"):
        raise RlfError("--phase and --step choose where a trajectory is counted. Add e.g. `--trajectory 0`.")
    if html is not None and (lineage or trajectory is not None):
        raise RlfError("--html: got --lineage or --trajectory too; a page is of a whole run. Write one of them.")
    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        if html is not None:
            _write_run(reader, run, html)
        if lineage:
            graph = read_graph(reader, run.record.id, step)
            print_result("runs show", graph, as_json, lambda: print_graph(graph))
        elif trajectory is None:
            _show_run(reader, run, runs_option(runs_folder), as_json=as_json)
        else:
            stored = reader.trajectory(run.record.id, k=trajectory, step=step, phase=phase)
            show_trajectory("runs show", run, stored, as_json=as_json)


def _write_run(reader: Reader, run: Run, html: Path) -> None:
    from rlf.api.runs.openings import Openings
    from rlf.reports.pages.render import run_page
    from rlf.reports.report import read_report
    from rlf.reports.sweep import is_sweep

    run_id = run.record.id
    if is_sweep(run):
        raise RlfError(f"--html: run {run_id} is a sweep. Write `rlf runs compare {run_id} --html {html}`.")
    write_page(html, run_page(read_report(reader, run_id), reader.evaluations(run_id), Openings(run)))


def _show_run(reader: Reader, run: Run, options: str, *, as_json: bool) -> None:
    from rlf.api.runs.openings import Openings
    from rlf.reports.evaluations import evaluations_view, is_evaluation, read_evaluations
    from rlf.reports.report import read_report, report_view
    from rlf.reports.sweep import is_sweep, read_sweep, sweep_view

    if is_sweep(run):
        sweep = read_sweep(reader, run.record.id)
        return print_result("runs show", sweep, as_json, lambda: sweep_view(sweep))
    if is_evaluation(run):
        found = read_evaluations(reader, [run.record.id])
        return print_result("runs show", found, as_json, lambda: evaluations_view(found))
    report = read_report(reader, run.record.id)
    if as_json:
        return print_envelope("runs show", report)
    return stdout_console().print(report_view(report, options, Openings(run)), crop=False)
