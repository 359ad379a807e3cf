"""Runs from one machine to another, and to other tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Float, Integer

from rlf import __version__
from rlf.apps.keep.archive import copy_run, open_archive, write_archive
from rlf.core.files import published
from rlf.core.identity import hash_path
from rlf.lineage import tables
from rlf.lineage.reader import Reader
from rlf.lineage.records import StoredTrajectory, TrajectorySummary
from rlf.runs.place import open_lineage
from rlf.types.written import NUMBERS, to_row

# Runs as tables for other tools: JSON lines, or Parquet.

Row = dict[str, Any]
_BATCH = 500
"""Rows written at once, so that a long run never lies in memory whole."""


def write_tables(reader: Reader, run_ids: Sequence[str], folder: Path, *, parquet: bool) -> None:
    """Writes `runs`, `steps`, `evaluations`, `trajectories`, `tool_calls` and `scores` into a new folder.

    The folder appears whole or not at all, with a `manifest.json` of the rows and hash of each file. `scored` of a
    trajectory is all of it but its numbers, in the written form. One that was thinned has none, no tokens, and no rows
    in the last two tables.

    Raises:
        RlfError: the folder exists already.
    """
    with published(folder) as temporary:
        temporary.mkdir()
        tables = _write_tables(reader, run_ids, temporary, parquet=parquet)
        files = {
            table.path.name: {"num_rows": table.num_rows, "sha256": hash_path(table.path)}
            for table in tables
            if table.path.exists()
        }
        heads = {run_id: head.sha256 for run_id in run_ids if (head := reader.link(run_id)) is not None}
        manifest = {"rlf": __version__, "run_ids": list(run_ids), "heads": heads, "files": files}
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _write_tables(reader: Reader, run_ids: Sequence[str], folder: Path, *, parquet: bool) -> list[_Table]:
    written = []
    rows_of = {"runs": _export_run_rows, "steps": _step_rows, "evaluations": _evaluation_rows}
    for name, rows in rows_of.items():
        with _Table(folder, name, parquet=parquet) as table:
            for run_id in run_ids:
                table.write(rows(reader, run_id))
        written.append(table)
    names = ("trajectories", "tool_calls", "scores")
    trajectories, calls, scores = (_Table(folder, name, parquet=parquet) for name in names)
    with trajectories, calls, scores:
        for run_id in run_ids:
            for summary in reader.trajectories(run_id):
                stored = reader.whole(run_id, summary)
                trajectories.write([_trajectory_row(run_id, summary, stored)])
                if stored is not None:
                    calls.write(_call_rows(run_id, stored))
                    scores.write(_export_score_rows(run_id, stored))
    return [*written, trajectories, calls, scores]


def _parquet_schema(row: Row) -> Any:
    """Parquet types of columns, since a batch of nulls says nothing: those of the lineage, and text for all others."""
    import pyarrow as pa

    types = {name: pa.list_(kind) for name, kind in zip(NUMBERS, (pa.int64(), pa.bool_(), pa.float32()), strict=True)}
    types["cost_usd"] = pa.float64()
    for kind, arrow_type in ((Integer, pa.int64()), (Float, pa.float64()), (Boolean, pa.bool_())):
        columns = (column for table in tables.metadata.sorted_tables for column in table.columns)
        types |= {column.name: arrow_type for column in columns if isinstance(column.type, kind)}
    return pa.schema([(name, types.get(name, pa.string())) for name in row])


class _Table:
    """One file, written batch by batch."""

    def __init__(self, folder: Path, name: str, *, parquet: bool) -> None:
        self.path = folder / f"{name}.{'parquet' if parquet else 'jsonl'}"
        self._parquet = parquet
        self.num_rows = 0
        self._rows: list[Row] = []
        self._writer: Any = None

    def write(self, rows: Iterable[Row]) -> None:
        self._rows += rows
        if len(self._rows) >= _BATCH:
            self._flush_rows()

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush_rows()
        if self._writer is not None:
            self._writer.close()

    def _flush_rows(self) -> None:
        if not self._parquet:
            self._writer = self._writer or self.path.open("w", encoding="utf-8")
            self._writer.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows)
        elif self._rows:
            import pyarrow
            import pyarrow.parquet

            batch = pyarrow.Table.from_pylist(self._rows, _parquet_schema(self._rows[0]))
            self._writer = self._writer or pyarrow.parquet.ParquetWriter(self.path, batch.schema)
            self._writer.write_table(batch)
        self.num_rows += len(self._rows)
        self._rows = []


def _export_run_rows(reader: Reader, run_id: str) -> list[Row]:
    run = reader.get_run(run_id)
    record = asdict(run.record)
    texts = ("plan", "host", "packages", "files")
    return [
        {
            "run_id": record.pop("id"),
            **record,
            **{name: json.dumps(record[name]) for name in texts},
            "status": str(run.status),
        }
    ]


def _step_rows(reader: Reader, run_id: str) -> list[Row]:
    return [
        row for step in reader.steps(run_id) for row in _export_metric_rows(run_id, "train", step.step, step.metrics)
    ]


def _evaluation_rows(reader: Reader, run_id: str) -> list[Row]:
    return [
        row
        for done in reader.evaluations(run_id)
        for row in _export_metric_rows(run_id, done.mode, done.step, done.metrics)
    ]


def _export_metric_rows(run_id: str, phase: str, step: int, metrics: Mapping[str, float]) -> Iterator[Row]:
    for name, value in metrics.items():
        yield {"run_id": run_id, "phase": phase, "step": step, "metric": name, "value": value}


def _trajectory_row(run_id: str, summary: TrajectorySummary, stored: StoredTrajectory | None) -> Row:
    row = {"run_id": run_id, **asdict(summary), "stop": str(summary.stop), "gold": json.dumps(summary.gold)}
    trajectory = None if stored is None else stored.scored.trajectory
    return row | {
        **to_row(None if stored is None else stored.scored),
        "messages": json.dumps([] if trajectory is None else [asdict(m) for m in trajectory.messages]),
        "turns": json.dumps([] if trajectory is None else [turn.text for turn in trajectory.turns]),
    }


def _call_rows(run_id: str, stored: StoredTrajectory) -> list[Row]:
    place = _place_row(run_id, stored)
    return [
        {
            **place,
            "turn": number,
            "position": position,
            "name": record.call.name,
            "arguments": json.dumps(dict(record.call.arguments)),
            "outcome": str(record.result.outcome),
            "text": record.result.text,
            "queue_s": record.result.queue_s,
            "run_s": record.result.run_s,
            "cached": record.result.cached,
        }
        for number, turn in enumerate(stored.scored.trajectory.turns)
        for position, record in enumerate(turn.calls)
    ]


def _export_score_rows(run_id: str, stored: StoredTrajectory) -> list[Row]:
    place = _place_row(run_id, stored)
    return [
        {
            **place,
            "term": score.term,
            "value": score.value,
            "weight": score.weight,
            "reason": score.reason,
            "state": str(score.state),
            "elapsed_s": score.elapsed_s,
            "num_tokens": None if score.usage is None else score.usage.num_tokens,
            "cost_usd": None if score.usage is None else score.usage.cost_usd,
        }
        for score in stored.scored.scores
    ]


def _place_row(run_id: str, stored: StoredTrajectory) -> Row:
    summary = stored.summary
    return {"run_id": run_id, "phase": summary.phase, "step": summary.step, "k": summary.k}


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
