"""`rlf runs compare`: how runs differ, in what and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, HtmlFile, RunName, RunsFolder, runs_option
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope, print_result
from rlf.cli.output import stdout_console, write_page
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.lineage.records import Run, StoredTrajectory


def compare_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs; the first one is the baseline. Commas join the seeds of one arm; a sweep gives an arm for each "
            "setting.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ],
    mode: Annotated[
        str | None, typer.Option("--mode", help="Evaluations that count: `sampled` or `greedy`.", show_default=False)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            min=0.0,
            max=1.0,
            help="Held-out success whose cost in steps, tokens and time is shown.",
            show_default="nine tenths of the best",
        ),
    ] = None,
    ends: Annotated[
        bool, typer.Option("--ends", help="Compare each run's last evaluation, also after different numbers of steps.")
    ] = False,
    flips: Annotated[
        int, typer.Option("--flips", min=0, help="How many questions with different outcomes to show for each arm.")
    ] = 1,
    html: HtmlFile = None,
    as_markdown: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every curve as CSV.")] = False,
    as_tex: Annotated[bool, typer.Option("--tex", help="Print the results' tables for LaTeX.")] = False,
    figures_folder: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write each chart as an SVG file.")
    ] = None,
    as_json: AsJson = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Compare runs: what differs between them, how their results differ, and whether that is more than chance."""
    from rlf.reports.comparison import MATRIX_FLIPS, read_examples
    from rlf.reports.comparison_views import comparison_page, comparison_view, csv_text, figures, tex
    from rlf.runs import compare
    from rlf.runs.place import open_reader
    from rlf.runs.trajectories import openings_of

    if sum((as_markdown, as_csv, as_tex, as_json)) > 1:
        raise RlfError("--md, --csv, --tex and --json each print the whole comparison. Write one of them.")
    with open_reader(runs_folder) as reader:
        found = compare.compare_runs(reader, names, mode, threshold, at_ends=ends)
        quiet = (as_markdown or as_csv or as_tex or as_json) and html is None
        examples = [] if quiet else read_examples(reader, found, max(flips, MATRIX_FLIPS))
        openings = openings_of(found)
    if html is not None:
        write_page(html, comparison_page(found, examples, openings))
    if figures_folder is not None:
        for name, text in figures(found).items():
            write_page(figures_folder / name, text)
    if as_csv or as_markdown or as_tex:
        print(csv_text(found.arms) if as_csv else tex(found) if as_tex else found.markdown, end="")
    else:
        print_result("runs compare", found, as_json, lambda: comparison_view(found, examples, flips, openings))


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
    from rlf.lineage.records import TRAIN
    from rlf.reports.trace import calls_table, find, find_flipped, matches_table
    from rlf.runs.place import open_reader
    from rlf.runs.trajectories import find_calls, follow_trajectories, wanted_trajectories

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
    from rlf.reports.trace import heat_legend, heated
    from rlf.reports.trajectory import legend, trajectory_view
    from rlf.runs.trajectories import Openings, token_decoder

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
