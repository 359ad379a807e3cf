"""`rlf runs export|import`: runs from one machine to another, and to other tools."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope
from rlf.cli.lineage import open_reader


@dataclass(frozen=True, slots=True)
class ExportedRuns:
    """Runs that were written."""

    run_ids: tuple[str, ...]
    path: Path
    format: ExportFormat


@dataclass(frozen=True, slots=True)
class ImportedRuns:
    """What was done with the runs that were asked for."""

    imported: tuple[str, ...]
    """Ids of runs that are new here."""
    present: tuple[str, ...]
    """Ids of runs that were here already."""


class ExportFormat(StrEnum):
    """What a run is written as."""

    RLF = "rlf"
    """A database with these runs, which `rlf runs import` reads."""
    JSONL = "jsonl"
    """A folder with a file for each table, one object a line."""
    PARQUET = "parquet"
    """A folder with a file for each table."""


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
    from rlf.lineage.archive import write_archive
    from rlf.lineage.export import write_tables

    with open_reader(runs_folder) as reader:
        ids = list(dict.fromkeys(reader.get_run(name).record.id for name in names))
        if format_ is ExportFormat.RLF:
            write_archive(reader.store, ids, out)
        else:
            write_tables(reader, ids, out, parquet=format_ is ExportFormat.PARQUET)
    if as_json:
        print_envelope("runs export", ExportedRuns(tuple(ids), out, format_))
    else:
        print(f"{len(ids)} run{'' if len(ids) == 1 else 's'} written to {out}")


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
    from rlf.api.lineage import open_lineage
    from rlf.lineage.archive import open_archive
    from rlf.lineage.reader import Reader
    from rlf.lineage.transfer import copy_run

    with open_archive(source) as other, open_lineage(runs_folder, create=True) as here:
        reader = Reader(other)
        wanted = names or [run.record.id for run in reversed(reader.list_runs())]
        new = {run_id: copy_run(other, here, run_id) for run_id in [reader.get_run(name).record.id for name in wanted]}
    done = ImportedRuns(tuple(name for name in new if new[name]), tuple(name for name in new if not new[name]))
    if as_json:
        print_envelope("runs import", done)
    else:
        runs = "run" if len(done.imported) == 1 else "runs"
        print(f"{len(done.imported)} {runs} taken over, {len(done.present)} were here already")
