"""`rlf runs` and `rlf trace`: what the lineage knows of runs, and their trajectories turn by turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, HtmlFile, RunName, RunsFolder, runs_option
from rlf.cli.envelope import print_envelope, print_result, print_run_event
from rlf.cli.output import FEW, print_nodes, stdout_console, write_page
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.lineage.graph import Graph, GraphNode
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import Run, StoredTrajectory

# `rlf runs tail`: a run as it goes.


def tail_run(
    name: RunName,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Events to print at once.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Continue printing until the run ends.")] = True,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Print a run's last steps, evaluations and notices, a line each, and those to come until it ends."""
    from rlf.apps.look.events import TailEnd, follow_events
    from rlf.cli.live import event_line
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        record = reader.get_run(name).record
        total = record.plan.get("spec", {}).get("train", {}).get("steps", 0)
        for event in follow_events(reader, record.id, lines, follow=follow):
            if as_json:
                print_run_event("runs tail", event)
            else:
                stdout_console().print(event_line(event, total), markup=False, highlight=False, soft_wrap=True)
        run = reader.get_run(record.id)
    end = TailEnd(record.id, run.status, run.last_step)
    print_result("runs tail", end, as_json, f"{record.id} {run.status} at step {run.last_step}")


def list_runs_command(
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
    from rlf.apps.look.tables import fitting_columns, render_overviews, shown_columns
    from rlf.reports.overview import chosen, read_overviews
    from rlf.runs.place import open_reader

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


def show_run_command(
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
    from rlf.lineage.graph import read_graph
    from rlf.runs.place import open_reader

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
            print_trajectory("runs show", run, stored, as_json=as_json)


def _write_run(reader: Reader, run: Run, html: Path) -> None:
    from rlf.reports.pages.render import run_page
    from rlf.reports.report import read_report
    from rlf.reports.sweep import is_sweep
    from rlf.runs.trajectories import Openings

    run_id = run.record.id
    if is_sweep(run):
        raise RlfError(f"--html: run {run_id} is a sweep. Write `rlf runs compare {run_id} --html {html}`.")
    write_page(html, run_page(read_report(reader, run_id), reader.evaluations(run_id), Openings(run)))


def _show_run(reader: Reader, run: Run, options: str, *, as_json: bool) -> None:
    from rlf.apps.look.tables import report_view
    from rlf.reports.evaluations import evaluations_view, is_evaluation, read_evaluations
    from rlf.reports.report import read_report
    from rlf.reports.sweep import is_sweep, read_sweep, sweep_view
    from rlf.runs.trajectories import Openings

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


# The drawing of a run's graph.


def print_graph(graph: Graph) -> None:
    """Draws a run's graph: what it was made of, and what it made."""
    few: list[GraphNode] = []
    for kind in dict.fromkeys(node.kind for node in graph.nodes):
        of_kind = [node for node in graph.nodes if node.kind == kind]
        few += of_kind if len(of_kind) <= 2 * FEW else [*of_kind[:FEW], *of_kind[-FEW:]]
    print_nodes(few, num_left_out=len(graph.nodes) - len(few))


# `rlf trace`: one trajectory turn by turn, and which trajectories match.


def trace(
    name: RunName,
    k: Annotated[
        int | None,
        typer.Argument(metavar="[K]", min=0, help="A trajectory of the step, from 0; without it, those that match."),
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="`train`, an evaluation's `sampled` or `greedy`, or `interrupted`.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="A step; with K its latest otherwise.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Success below 1, or unscorable.")] = False,
    flipped: Annotated[
        bool, typer.Option("--flipped", help="Held-out questions whose outcome changed from first to last.")
    ] = False,
    best: Annotated[bool, typer.Option("--best", help="Highest advantage first.")] = False,
    failure: Annotated[
        str | None, typer.Option("--failure", metavar="CLASS", help="With a parse failure of a class, e.g. bad_json.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="WORDS", help="With these words in prompt, turns or results.")
    ] = None,
    heat: Annotated[bool, typer.Option("--heat", help="Colour sampled tokens by their probability.")] = False,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="NAME", help="List calls of this tool in place of trajectories.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="List calls that ended so, e.g. `timeout`; `failed` is every outcome but `ok`.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Trajectories or calls to list.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show one matching trajectory of each step while the run makes it.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show a trajectory turn by turn, or find some: failed, flipped, best, by parse failure or text; or calls."""
    from rlf.apps.look.events import find_calls, follow_trajectories
    from rlf.apps.look.tables import calls_table, matches_table
    from rlf.apps.look.trace import find, find_flipped
    from rlf.lineage.records import TRAIN
    from rlf.runs.place import open_reader
    from rlf.runs.trajectories import wanted_trajectories

    succeeded = False if failed else None
    wanted = wanted_trajectories(failure, phase=phase, step=step, succeeded=succeeded, best_first=best)
    with open_reader(runs_folder) as reader:
        run = reader.get_run(name)
        run_id = run.record.id
        if k is not None:
            stored = reader.trajectory(run_id, k=k, step=step, phase=phase or TRAIN)
            print_trajectory("trace", run, stored, heat=heat, as_json=as_json)
        elif tool is not None or outcome is not None:
            if flipped or follow or text is not None:
                raise RlfError("--tool and --outcome list calls; --flipped, --follow and --text are for trajectories.")
            calls = find_calls(reader, run_id, wanted, tool, outcome, limit)
            print_result("trace", calls, as_json, calls_table(calls) if calls else "no call matches.")
        elif follow:
            for stored in follow_trajectories(reader, run_id, wanted, text):
                print_trajectory("trace", run, stored, heat=heat)
        else:
            matches = find_flipped(reader, run_id, limit) if flipped else find(reader, run_id, wanted, text, limit)
            there = wanted_trajectories(phase=phase, step=step)
            if not (matches or flipped) and (step is not None or phase) and not find(reader, run_id, there, None, 1):
                reader.trajectory(run_id, k=0, step=step, phase=phase or TRAIN)  # raises, and says which there are
            print_result("trace", matches, as_json, matches_table(matches) if matches else "no trajectory matches.")
            if matches and not as_json:
                first, more = matches[0].summary, "; --limit lists more" if len(matches) == limit else ""
                place = f"{first.k} --phase {first.phase} --step {first.step}{runs_option(runs_folder)}"
                print(f"the first, turn by turn: rlf trace {run_id} {place}{more}")


def print_trajectory(
    command: str, run: Run, stored: StoredTrajectory, *, heat: bool = False, as_json: bool = False
) -> None:
    """Prints a trajectory, as a page or as the JSON of a command."""
    from rlf.apps.look.events import token_decoder
    from rlf.apps.look.tables import heat_legend, heated
    from rlf.reports.trajectory import legend, trajectory_view
    from rlf.runs.trajectories import Openings

    if as_json:
        print_envelope(command, stored)
        return
    summary, console = stored.summary, stdout_console()
    advantage = "" if summary.advantage is None else f" · advantage {summary.advantage:+.3f}"
    place = f"{summary.phase} step {summary.step} · trajectory {summary.k}"
    console.print(f"run {run.record.id} · {place}{advantage}", style="dim")
    texts = heated(stored.scored.trajectory, token_decoder(run)) if heat else None
    opening = Openings(run)(stored.scored.trajectory)
    console.print(trajectory_view(stored.scored, sampled=texts, opening=opening), heat_legend() if heat else legend())
