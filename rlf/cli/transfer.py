"""`rlf runs export|import`: runs from one machine to another, and to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunNames, RunsFolder
from rlf.cli.envelope import print_result
from rlf.reports.sheets import counted


def export_runs(
    names: RunNames,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="File, or folder of tables, to write.")],
    format_: Annotated[
        Literal["rlf", "jsonl", "parquet"],
        typer.Option("--format", help="A database for `rlf runs import`, or tables."),
    ] = "rlf",
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write runs to a file for another machine, or as tables of JSON lines or Parquet."""
    from rlf.api.lineage import open_reader
    from rlf.api.runs import transfer

    with open_reader(runs_folder) as reader:
        done = transfer.export_runs(reader, names, out, transfer.ExportFormat(format_))
    print_result("runs export", done, as_json, f"{counted(len(done.run_ids), 'run')} written to {out}")


def import_runs(
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="A file of `rlf runs export`, or any other lineage.")
    ],
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to import; default: all.")] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Take runs over from another lineage; those that are here already stay as they are."""
    from rlf.api.runs import transfer

    done = transfer.import_runs(source, names or (), runs_folder)
    words = f"{counted(len(done.imported), 'run')} imported, {len(done.present)} were here already"
    print_result("runs import", done, as_json, words)
