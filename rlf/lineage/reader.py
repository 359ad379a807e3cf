"""Reading the lineage: frozen values out, no rows and no sessions. Works while a run writes.

Each method reads one consistent view. Run ids are whole ids here; `get_run` alone takes what a person types.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, case, func, select, tuple_

from rlf.core import RlfError
from rlf.core.redact import clean
from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.chain import Link, read_link
from rlf.lineage.lease import has_owner
from rlf.lineage.process import Process
from rlf.lineage.records import (
    EVALUATION,
    HIDDEN,
    TRAIN,
    AcceptedChange,
    Checkpoint,
    Evaluation,
    Export,
    FileRecord,
    LoggedEvent,
    Note,
    Run,
    RunLine,
    StepTotals,
    StoredTrajectory,
    TrainingStep,
    TrajectoryFilter,
    TrajectorySummary,
)
from rlf.lineage.rows import decode_task
from rlf.lineage.store import Store
from rlf.lineage.values import (
    AnyRow,
    filter_conditions,
    find_row,
    is_probe,
    match_name,
    metrics,
    read_wholes,
    run,
    run_line,
    summary,
    value,
)

_ANY = TrajectoryFilter()
_IS_WHOLE = tables.runs.c.status.not_in(HIDDEN)
_BEHIND_ALL_STEPS = 1 << 30
"""Higher than the number of any step."""
_FEW = 500
"""Runs whose ids a question may hold; databases bound the parameters of a statement."""


class Reader:
    """Typed questions to a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def list_runs(self, run_ids: Collection[str] | None = None) -> list[Run]:
        """Every run, or those of some ids, newest first."""
        columns = tables.runs.c
        newest_first = select(tables.runs).where(_IS_WHOLE).order_by(columns.started.desc(), columns.id.desc())
        if run_ids is not None:
            newest_first = newest_first.where(columns.id.in_(run_ids))
        with self.store.read() as connection:
            return self._read_runs(connection, newest_first)

    def get_run(self, name: str) -> Run:
        """The run whose id is `name` or alone begins with it; for `latest` the newest, for `latest~1` the one before.

        Forecasts, and continuations that `rlf why` and `rlf runs branch` played, come behind all others.

        Raises:
            RlfError: No run or several match; the message names the candidates.
        """
        ids, name = tables.runs.c.id, clean(name)
        with self.store.read() as connection:
            if found := self._read_runs(connection, select(tables.runs).where(_IS_WHOLE, ids == name)):
                return found[0]
            plan = case((tables.runs.c.engine == EVALUATION, tables.runs.c.plan), else_="{}")
            newest = select(ids, plan).where(_IS_WHOLE).order_by(tables.runs.c.started.desc(), ids.desc())
            rows = sorted(connection.execute(newest), key=lambda row: is_probe(json.loads(row[1])))
            run_id = match_name(name, [row[0] for row in rows])
            return self._read_runs(connection, select(tables.runs).where(ids == run_id))[0]

    def num_runs(self) -> int:
        """How many runs there are."""
        with self.store.read() as connection:
            return int(connection.execute(select(func.count()).select_from(tables.runs).where(_IS_WHOLE)).scalar_one())

    def run_lines(
        self,
        parent_id: str | None = None,
        run_id: str | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[RunLine]:
        """Runs, newest first, without what they were made from.

        Args:
            parent_id: those of a parent alone.
            run_id: one alone.
            name: those of a spec's name alone.
            after: those behind a run in this order.
            limit: so many of them.
        """
        table = tables.runs
        skipped = {"plan", "host", "packages", "command", "folder", "home", "cwd", "code_version", "patch_sha256"}
        query = (
            select(*(one for one in table.c if one.name not in skipped))
            .where(_IS_WHOLE)
            .order_by(table.c.started.desc(), table.c.id.desc())
        )
        for column, asked in (("parent_id", parent_id), ("id", run_id), ("name", name)):
            query = query if asked is None else query.where(table.c[column] == asked)
        if after is not None:
            last = select(table.c.started, table.c.id).where(table.c.id == after)
            query = query.where(tuple_(table.c.started, table.c.id) < last.scalar_subquery())
        query = query.limit(limit)
        lease_folder = self.store.lease_folder
        return [run_line(row, lease_folder) for row in self.fetch_all(query)]

    def owner(self, run_id: str) -> Process | None:
        """The process that runs a run; None where none does."""
        with self.store.read() as connection:
            row = connection.execute(select(tables.runs).where(tables.runs.c.id == run_id)).one_or_none()
        if row is None or not has_owner(row, self.store.lease_folder):
            return None
        return value(Process, row)

    def steps(self, run_id: str, after_s: float | None = None, stride: int = 1) -> list[TrainingStep]:
        """Training steps in order; with `after_s`, those that finished after that moment; every `stride`-th of them."""
        query = _select_of_run(tables.steps, run_id).order_by(tables.steps.c.step)
        query = query if stride == 1 else query.where(tables.steps.c.step % stride == 0)
        rows = self.fetch_all(query if after_s is None else query.where(tables.steps.c.finished > after_s))
        return [TrainingStep(row.step, metrics(row.metrics), row.finished) for row in rows]

    def evaluations(self, run_id: str, after_s: float | None = None) -> list[Evaluation]:
        """Evaluations in order of step, then mode; with `after_s`, those that finished after that moment."""
        table = tables.evaluations
        query = _select_of_run(table, run_id).order_by(table.c.step, table.c.mode)
        rows = self.fetch_all(query if after_s is None else query.where(table.c.finished > after_s))
        return list(map(_make_evaluation, rows))

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        """Complete checkpoints in order of step."""
        rows = self.fetch_all(_select_of_run(tables.checkpoints, run_id).order_by(tables.checkpoints.c.step))
        place = self.store.absolute
        return [value(Checkpoint, row, path=place(row.path)) for row in rows]

    def changes(self, run_id: str) -> list[AcceptedChange]:
        """Changes that were accepted when the run was resumed, in order of step."""
        table = tables.changes
        rows = self.fetch_all(_select_of_run(table, run_id).order_by(table.c.step, table.c.role, table.c.path))
        return [value(AcceptedChange, row) for row in rows]

    def texts(self, names: Collection[str]) -> dict[str, str]:
        """Texts of source files by the hash that names each, those that are kept."""
        with self.store.read() as connection:
            return {name: data.decode() for name, data in read_blobs(connection, names).items()}

    def exports(self, run_id: str) -> list[Export]:
        """Exported models, in order of step."""
        table = tables.exports
        rows = self.fetch_all(_select_of_run(table, run_id).order_by(table.c.step, table.c.path))
        place = self.store.absolute
        return [value(Export, row, path=place(row.path)) for row in rows]

    def link(self, run_id: str, sha256: str | None = None) -> Link | None:
        """The last link of a run's chain, which stands for all of the run; or the one of a hash, where there is one."""
        with self.store.read() as connection:
            return read_link(connection, run_id, sha256)

    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of every run that has some, in order of the alphabet."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in self.fetch_all(select(tables.tags).order_by(tables.tags.c.tag)):
            found[row.run_id].append(row.tag)
        return {run_id: tuple(tags) for run_id, tags in found.items()}

    def notes(self, run_id: str) -> list[Note]:
        """The remarks on a run, oldest first."""
        rows = self.fetch_all(_select_of_run(tables.notes, run_id).order_by(tables.notes.c.id))
        return [Note(row.time, row.text) for row in rows]

    def latest_evaluations(self, run_ids: Collection[str] | None = None) -> dict[str, Evaluation]:
        """Each run's latest sampled evaluation, or its latest of any mode, by run; of some runs, or of all."""
        table = tables.evaluations
        place = table.c.step + case((table.c.mode == "sampled", _BEHIND_ALL_STEPS), else_=0)
        ordered = select(table.c.run_id, func.max(place).label("last")).group_by(table.c.run_id)
        ordered = ordered if run_ids is None else ordered.where(table.c.run_id.in_(run_ids))
        latest = ordered.subquery()
        rows = self.fetch_all(
            select(table).join(latest, and_(latest.c.run_id == table.c.run_id, latest.c.last == place))
        )
        return {row.run_id: _make_evaluation(row) for row in rows}

    def events(self, run_id: str, num_before: int = 0) -> list[LoggedEvent]:
        """Notices in order, without the first `num_before`."""
        query = _select_of_run(tables.events, run_id).order_by(tables.events.c.id)
        rows = self.fetch_all(query.offset(num_before) if num_before else query)
        return [LoggedEvent(row.time, row.level, row.text, json.loads(row.data)) for row in rows]

    def rows(self, run_id: str, phase: str) -> dict[str, str]:
        """Hashes of the questions that were tried in a phase by their task's id, without the number of the pass."""
        columns = tables.trajectories.c
        query = select(columns.task_id, columns.task_sha256).where(columns.run_id == run_id, columns.phase == phase)
        return {row.task_id.partition("#")[0]: row.task_sha256 or "" for row in self.fetch_all(query.distinct())}

    def clusters(self, run: Run, phase: str) -> dict[str, str]:
        """What the questions of an evaluation have in common, by question; none where the plan names no column."""
        source = run.record.plan.get("spec", {}).get("data", {}).get("eval") or {}
        if source.get("cluster") is None:
            return {}
        rows = self.rows(run.record.id, phase)
        with self.store.read() as connection:
            blobs = read_blobs(connection, list(set(rows.values())))
        found = {name: decode_task(data, "", None).cluster for name, data in blobs.items()}
        return {task: cluster for task, name in rows.items() if (cluster := found.get(name)) is not None}

    def question(self, task_sha256: str) -> str:
        """The last message of a task that a row names; empty where its content is not kept."""
        with self.store.read() as connection:
            data = read_blobs(connection, [task_sha256]).get(task_sha256)
        return "" if data is None else decode_task(data, "", None).messages[-1].content

    def trajectories(self, run_id: str, wanted: TrajectoryFilter = _ANY) -> list[TrajectorySummary]:
        """Trajectories by phase, step and position, without tokens and turns."""
        columns = tables.trajectories.c
        query = select(tables.trajectories).where(columns.run_id == run_id, *filter_conditions(wanted))
        order = (
            (columns.advantage.desc(), columns.id) if wanted.best_first else (columns.phase, columns.step, columns.k)
        )
        rows = self.fetch_all(query.order_by(*order).limit(wanted.limit))
        return [summary(row) for row in rows]

    def trajectory(self, run_id: str, *, k: int, step: int | None = None, phase: str = TRAIN) -> StoredTrajectory:
        """The k-th trajectory of a step or evaluation; without `step`, of the latest one of that phase.

        Raises:
            RlfError: There is none; the message says what there is.
        """
        with self.store.read() as connection:
            row = find_row(connection, run_id, k, step, phase)
            stored = read_wholes(connection, [row])[0]
        if stored is None:
            raise RlfError(f"run {run_id}: {phase} trajectory {k} of step {row.step} was thinned by `rlf runs gc`.")
        return stored

    def whole(self, run_id: str, summary: TrajectorySummary) -> StoredTrajectory | None:
        """The whole trajectory of a summary; None when it was thinned."""
        with self.store.read() as connection:
            row = find_row(connection, run_id, summary.k, summary.step, summary.phase)
            return read_wholes(connection, [row])[0]

    def wholes(self, run_id: str, heads: Sequence[TrajectorySummary]) -> list[StoredTrajectory | None]:
        """The same of several, in their order."""
        table = tables.trajectories
        key = tuple_(table.c.phase, table.c.step, table.c.k)
        places = [(head.phase, head.step, head.k) for head in heads]
        found: dict[tuple[str, int, int], StoredTrajectory | None] = {}
        with self.store.read() as connection:
            for start in range(0, len(places), _FEW):
                here = key.in_(places[start : start + _FEW])
                rows = connection.execute(select(table).where(table.c.run_id == run_id, here)).all()
                stored = zip(rows, read_wholes(connection, rows), strict=True)
                found |= {(row.phase, row.step, row.k): one for row, one in stored}
        return [found.get(place) for place in places]

    def step_totals(self, run_id: str) -> list[StepTotals]:
        """Tokens and tool calls of the training steps, in order."""
        table = tables.collections
        query = _select_of_run(table, run_id).where(table.c.phase == TRAIN).order_by(table.c.step)
        return [value(StepTotals, row) for row in self.fetch_all(query)]

    def _read_runs(self, connection: Connection, query: Select[Any]) -> list[Run]:
        rows = connection.execute(query).all()
        files = _read_run_files(connection, [row.id for row in rows])
        lease_folder = self.store.lease_folder
        return [run(row, tuple(files[row.id]), self.store.absolute(row.folder), lease_folder) for row in rows]

    def fetch_all(self, query: Select[Any]) -> Sequence[AnyRow]:
        """The rows of a query."""
        with self.store.read() as connection:
            return connection.execute(query).all()


def _make_evaluation(row: AnyRow) -> Evaluation:
    return value(Evaluation, row, metrics=metrics(row.metrics))


def _select_of_run(table: Table, run_id: str) -> Select[Any]:
    return select(table).where(table.c.run_id == run_id)


def _read_run_files(connection: Connection, run_ids: list[str]) -> dict[str, list[FileRecord]]:
    table = tables.files
    by_run: dict[str, list[FileRecord]] = defaultdict(list)
    query = select(table).where(table.c.run_id.in_(run_ids)) if len(run_ids) <= _FEW else select(table)
    for row in connection.execute(query.order_by(table.c.role, table.c.path)):
        by_run[row.run_id].append(FileRecord(row.role, row.path, row.sha256, row.text_sha256))
    return by_run
