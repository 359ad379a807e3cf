"""What the page shows of benchmarks, in a fork: the table over models of each one in the lineage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.run import SPEC_PREFIX, ModelScore, columns_of, score_model
from rlf.core.plain_json import Jsonable
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run
from rlf.reports.evaluations import is_evaluation, read_evaluations
from rlf.runs.place import open_reader

_MAX_RUNS = 200
"""Evaluations that are read, the newest ones."""


@dataclass(frozen=True, slots=True)
class BenchmarkTable(Jsonable):
    """The models that were tried on a benchmark's rows."""

    benchmark: str
    title: str
    folder: str
    """Of its spec and rows, named by their hash."""
    package: str
    """What judged, with its version; empty where no package does."""
    data_sha256: str
    """Of the rows."""
    columns: tuple[str, ...]
    models: tuple[ModelScore, ...]
    cells: tuple[tuple[str, ...], ...]
    """Of each model, a text for each column."""


def list_benchmarks(runs: str) -> list[BenchmarkTable]:
    """The tables of all benchmarks that were tried to an end, that of the newest evaluation first."""
    if not (Path(runs) / "rlf.db").is_file():
        return []
    with open_reader(Path(runs)) as reader:
        tried: dict[str, list[Run]] = {}
        found = [run for run in reader.list_runs() if is_evaluation(run) and _name_of(run.record.plan)]
        for run in sorted(found, key=lambda run: -run.record.started)[:_MAX_RUNS]:
            data = run.record.plan["spec"].get("data", {}).get("eval") or {}
            tried.setdefault(str(data.get("path", "")), []).append(run)
        tables = [_make_table(reader, rows, of_rows) for rows, of_rows in tried.items()]
        return [table for table in tables if table.models]


def _name_of(plan: Mapping[str, Any]) -> str:
    """The benchmark that a spec is of; empty for any other spec."""
    name = str(plan.get("spec", {}).get("name", ""))
    return name.removeprefix(SPEC_PREFIX) if name.startswith(SPEC_PREFIX) else ""


def _make_table(reader: Reader, rows: str, tried: list[Run]) -> BenchmarkTable:
    """Args: tried: the evaluations on the rows, the newest first."""
    record = tried[0].record
    name = _name_of(record.plan)
    kind = BENCHMARKS.get(name) if name in BENCHMARKS.names() else None
    models = tuple(_newest(reader, tried, None if kind is None else kind.model_construct()))
    columns, cells = columns_of(models)
    return BenchmarkTable(
        name,
        "" if kind is None else kind.title,
        Path(rows).parent.name,
        str((record.plan["spec"].get("env") or {}).get("judge", "")),
        next((file.sha256 for file in record.files if Path(file.path).name == Path(rows).name), ""),
        tuple(columns),
        models,
        tuple(tuple(row) for row in cells),
    )


def _newest(reader: Reader, tried: list[Run], benchmark: Any) -> Iterator[ModelScore]:
    """Each model's newest figures in each mode."""
    seen = set[tuple[str, str]]()
    for row in read_evaluations(reader, [run.record.id for run in tried]).rows:
        if (row.target, row.mode) not in seen:
            seen.add((row.target, row.mode))
            yield score_model(benchmark, row)


TASKS = (list_benchmarks,)
