"""A run as a folder of pages to share: its report and its trajectories, which any browser shows without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import check_free, published
from rlf.core.plain_json import as_json
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectorySummary
from rlf.reports.pages.render import render_page, run_page, side
from rlf.reports.report import read_report
from rlf.reports.sheets import decimal
from rlf.reports.sweep import is_sweep
from rlf.runs.trajectories import Openings


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pages that were written."""

    run_id: str
    folder: Path
    num_trajectories: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Row:
    """A trajectory in the list."""

    name: str
    file: str
    reward: str
    stop: str
    question: str


def write_bundle(reader: Reader, name: str, target: Path, limit: int) -> Bundle:
    """Writes a run's report and its latest trajectories, each a page that loads nothing.

    Args:
        target: a folder that is not there yet.
        limit: trajectories at most.

    Raises:
        RlfError: there is no such run, it is a sweep, or `target` exists.
    """
    check_free(target)
    run = reader.get_run(name)
    run_id = run.record.id
    if is_sweep(run):
        raise RlfError(
            f"run {run_id}: is a sweep. Export its members, or write `rlf runs compare {run_id} --html FILE`."
        )
    report, openings = read_report(reader, run_id), Openings(run)
    heads = sorted(reader.trajectories(run_id), key=lambda one: (-one.step, one.phase, one.k))
    with published(target) as folder:
        for part in ("t", "data"):
            (folder / part).mkdir(parents=True)
        rows = _write_trajectories(reader, run_id, heads[:limit], openings, folder)
        title = f"{run.record.name} · {run_id}"
        _write_page(folder / "run.html", run_page(report, reader.evaluations(run_id), openings))
        _write_page(folder / "data/run.json", json.dumps(as_json(report), ensure_ascii=False))
        index = render_page("bundle.html", title=title, verdicts=[report.verdict.line], rows=rows, num_kept=len(heads))
        _write_page(folder / "index.html", index)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return Bundle(run_id, target, len(rows), size)


def _write_trajectories(
    reader: Reader, run_id: str, heads: Sequence[TrajectorySummary], openings: Openings, folder: Path
) -> list[_Row]:
    rows = []
    for head in heads:
        stored = reader.whole(run_id, head)
        if stored is not None:
            messages, name = stored.scored.trajectory.task.messages, f"{head.phase} {head.step} · {head.k}"
            file, asked = f"t/{head.phase}-{head.step}-{head.k}.html", messages[-1].content[:120] if messages else ""
            row = _Row(name, file, decimal(head.reward), str(head.stop), asked)
            shown = side("", stored, openings(stored.scored.trajectory))
            _write_page(folder / row.file, render_page("turns.html", title=f"{row.name} · {run_id}", side=shown))
            rows.append(row)
    return rows


def _write_page(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
