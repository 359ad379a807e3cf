"""Runs from one machine to another, and to other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rlf.api.lineage import open_lineage
from rlf.apps.share.archive import copy_run, open_archive, write_archive
from rlf.apps.share.tables import write_tables
from rlf.lineage.reader import Reader


class ExportFormat(StrEnum):
    """The form that runs are written in."""

    RLF = "rlf"
    """A database with these runs, which `rlf runs import` reads."""
    JSONL = "jsonl"
    """A folder with a file for each table, one object a line."""
    PARQUET = "parquet"
    """A folder with a file for each table."""


@dataclass(frozen=True, slots=True)
class ExportedRuns:
    """Runs that were written."""

    run_ids: tuple[str, ...]
    path: Path
    format: ExportFormat


@dataclass(frozen=True, slots=True)
class ImportedRuns:
    """Runs that were imported, and runs that were there already."""

    imported: tuple[str, ...]
    """Ids of runs that are new here."""
    present: tuple[str, ...]
    """Ids of runs that were here already."""


def export_runs(reader: Reader, names: Sequence[str], out: Path, form: ExportFormat) -> ExportedRuns:
    """Writes runs to a file for another machine, or as tables."""
    ids = list(dict.fromkeys(reader.get_run(name).record.id for name in names))
    if form is ExportFormat.RLF:
        write_archive(reader.store, ids, out)
    else:
        write_tables(reader, ids, out, parquet=form is ExportFormat.PARQUET)
    return ExportedRuns(tuple(ids), out, form)


def import_runs(source: str, names: Sequence[str], runs_folder: Path) -> ImportedRuns:
    """Takes runs over from another lineage, all of them without names; those that are here already stay as they are."""
    with open_archive(source) as other, open_lineage(runs_folder, create=True) as here:
        reader = Reader(other)
        wanted = names or [run.record.id for run in reversed(reader.list_runs())]
        new = {run_id: copy_run(other, here, run_id) for run_id in [reader.get_run(name).record.id for name in wanted]}
    return ImportedRuns(tuple(name for name in new if new[name]), tuple(name for name in new if not new[name]))
