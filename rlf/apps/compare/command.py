"""`rlf runs compare`: how runs differ, in what and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, HtmlFile, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_result
from rlf.cli.output import write_page
from rlf.core.errors import RlfError


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
    from rlf.apps.compare.comparison import MATRIX_FLIPS, read_examples
    from rlf.apps.compare.views import (
        compare_runs,
        comparison_page,
        comparison_view,
        csv_text,
        figures,
        openings_of,
        tex,
    )
    from rlf.runs.place import open_reader

    if sum((as_markdown, as_csv, as_tex, as_json)) > 1:
        raise RlfError("--md, --csv, --tex and --json each print the whole comparison. Write one of them.")
    with open_reader(runs_folder) as reader:
        found = compare_runs(reader, names, mode, threshold, at_ends=ends)
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
