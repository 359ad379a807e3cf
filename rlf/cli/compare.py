"""`rlf runs compare`: how runs differ, in what and by how much."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader
from rlf.cli.output import stdout_console
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.reports.compare.comparison import Comparison

_PAGE_FLIPS = 100
"""Questions for each arm that a page holds in full."""


def compare_runs(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs, the first one the baseline; commas join the seeds of one arm; a sweep is an arm by setting.",
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
            help="Held-out success whose cost in steps, tokens and time is told.",
            show_default="nine tenths of the best",
        ),
    ] = None,
    flips: Annotated[
        int, typer.Option("--flips", min=0, help="Questions that came out differently to show, for each arm.")
    ] = 1,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write one self-contained page.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every curve as CSV.")] = False,
    as_json: AsJson = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Compare runs: what differs between them, how their results differ, and whether that is more than chance."""
    from rlf.reports.compare.arms import read_arms
    from rlf.reports.compare.comparison import compare
    from rlf.reports.compare.examples import read_examples
    from rlf.reports.compare.view import comparison_view

    if sum((as_markdown, as_csv, as_json)) > 1:
        raise RlfError("--md, --csv and --json each print the whole comparison. Write one of them.")
    with open_reader(runs_folder) as reader:
        found = compare(read_arms(reader, names), mode, threshold)
        shown = read_examples(reader, found, flips) if not (as_markdown or as_csv or as_json) else []
        if html is not None:
            _write_page(html, found, read_examples(reader, found, _PAGE_FLIPS))
    if as_json:
        print_envelope("runs compare", _told(found))
    elif as_csv or as_markdown:
        print(_text(found, as_csv=as_csv), end="")
    else:
        stdout_console().print(comparison_view(found, shown))


def _write_page(path: Path, found: Comparison, examples: Any) -> None:
    from rlf.reports.compare.page import page

    try:
        path.write_text(page(found, examples), encoding="utf-8")
    except OSError as error:
        raise RlfError(f"{path}: cannot be written: {error.strerror}. Name a file in a folder that is.") from error


def _text(found: Comparison, *, as_csv: bool) -> str:
    from rlf.reports.compare.sheets import markdown
    from rlf.reports.compare.table import csv_text

    return csv_text(found) if as_csv else markdown(found)


def _told(found: Comparison) -> dict[str, Any]:
    """The comparison without curves and tries, which `--csv` and `rlf runs show` have."""
    arms = [
        {"letter": arm.letter, "label": arm.label, "runs": [member.run.record.id for member in arm.members]}
        for arm in found.arms
    ]
    contrasts = [
        None if one is None else asdict(replace(one, flips=())) | {"flips": [flip.task_id for flip in one.flips]}
        for one in found.contrasts
    ]
    return {
        "arms": arms,
        "mode": found.mode,
        "threshold": found.threshold,
        "differences": found.differences,
        "outcomes": found.outcomes,
        "contrasts": contrasts,
        "verdicts": found.verdicts,
        "power": found.power,
    }
