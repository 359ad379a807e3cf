"""`rlf runs compare`: how runs differ, in what and by how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, HtmlFile, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_result
from rlf.cli.output import write_page
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.reports.arms import Arm


def compare_runs(
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
        bool,
        typer.Option("--ends", help="Compare each run's last evaluation, also after different numbers of steps."),
    ] = False,
    flips: Annotated[
        int, typer.Option("--flips", min=0, help="How many questions with different outcomes to show for each arm.")
    ] = 1,
    html: HtmlFile = None,
    as_markdown: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every curve as CSV.")] = False,
    as_json: AsJson = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Compare runs: what differs between them, how their results differ, and whether that is more than chance."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs import compare
    from rlf.api.runs.openings import openings_of
    from rlf.reports.arms import read_arms
    from rlf.reports.comparison import MATRIX_FLIPS, read_examples
    from rlf.reports.comparison_views import comparison_view, csv_text, page, seeds_page
    from rlf.reports.sweep import SeedReport, seeds_view

    if sum((as_markdown, as_csv, as_json)) > 1:
        raise RlfError("--md, --csv and --json each print the whole comparison. Write one of them.")
    with open_reader(runs_folder) as reader:
        found = compare.compare_runs(reader, names, mode, threshold, at_ends=ends)
        view: Callable[[], RenderableType]
        if isinstance(found, SeedReport):
            arms: Sequence[Arm] = read_arms(reader, names, least=1) if as_csv or html is not None else []
            view, as_page = partial(seeds_view, found), partial(seeds_page, found, arms)
        else:
            quiet = (as_markdown or as_csv or as_json) and html is None
            examples = [] if quiet else read_examples(reader, found, max(flips, MATRIX_FLIPS))
            arms, openings = found.arms, openings_of(found)
            view = partial(comparison_view, found, examples, flips, openings)
            as_page = partial(page, found, examples, openings)
    if html is not None:
        write_page(html, as_page())
    if as_csv or as_markdown:
        print(csv_text(arms) if as_csv else found.markdown, end="")
    else:
        print_result("runs compare", found, as_json, view)
