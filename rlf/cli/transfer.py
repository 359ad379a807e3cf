"""`rlf runs export|import`: runs from one machine to another, and to other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader


class ExportFormat(StrEnum):
    """What a run is written as, as `rlf.api.runs.transfer` has it."""

    RLF = "rlf"
    JSONL = "jsonl"
    PARQUET = "parquet"


def export_runs(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to export.", autocompletion=complete_run)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="File, or folder of tables, to write.")],
    format_: Annotated[
        ExportFormat, typer.Option("--format", help="A database for `rlf runs import`, or tables.")
    ] = ExportFormat.RLF,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write runs to a file for another machine, or as tables of JSON lines or Parquet."""
    from rlf.api.runs import transfer

    with open_reader(runs_folder) as reader:
        done = transfer.export_runs(reader, names, out, transfer.ExportFormat(format_))
    if as_json:
        print_envelope("runs export", done)
    else:
        print(f"{len(done.run_ids)} run{'' if len(done.run_ids) == 1 else 's'} written to {out}")


def import_runs(
    source: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="What `rlf runs export` wrote, or any other lineage.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs to take; all of them without any.")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Take runs over from another lineage; those that are here already stay as they are."""
    from rlf.api.runs import transfer

    done = transfer.import_runs(source, names or (), runs_folder)
    if as_json:
        print_envelope("runs import", done)
    else:
        runs = "run" if len(done.imported) == 1 else "runs"
        print(f"{len(done.imported)} {runs} taken over, {len(done.present)} were here already")
