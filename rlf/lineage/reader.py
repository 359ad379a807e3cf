"""Reading the lineage: frozen values out, no rows and no sessions. Works while a run writes.

Each method reads one consistent view. Run ids are whole ids here; `get_run` alone takes what a person types.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, case, func, literal, select, text, tuple_

from rlf.core import RlfError
from rlf.core.text import clean
from rlf.lineage import tables
from rlf.lineage.blobs import read_blobs
from rlf.lineage.chain import Link, read_link
from rlf.lineage.costs import costs_of
from rlf.lineage.lease import has_owner
from rlf.lineage.process import Process
from rlf.lineage.records import (
    EVALUATION,
    HIDDEN,
    INTERRUPTED,
    TRAIN,
    AcceptedChange,
    Checkpoint,
    Cost,
    Evaluation,
    Export,
    FileRecord,
    FoundCall,
    LoggedEvent,
    Note,
    Pay,
    Run,
    RunLine,
    StepTotals,
    StoredTrajectory,
    ToolCallSummary,
    TrainingStep,
    TrajectoryFilter,
    TrajectoryLine,
    TrajectoryOrder,
    TrajectorySummary,
)
from rlf.lineage.rows import decode_task, inner_names
from rlf.lineage.store import Store
from rlf.lineage.values import (
    AnyRow,
    blob_names,
    filter_conditions,
    find_row,
    found_calls,
    is_probe,
    match_name,
    metrics,
    order_query,
    paid_conditions,
    read_asked,
    read_wholes,
    run,
    run_line,
    summary,
    tool_summary,
    value,
)
from rlf.types import Outcome

_ANY = TrajectoryFilter()
_IS_WHOLE = tables.runs.c.status.not_in(HIDDEN)
_BEHIND_ALL_STEPS = 1 << 30
"""Higher than the number of any step."""
_ROWS = 200
"""Rows of calls that are read at once."""
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

    def plans(self, run_ids: Collection[str]) -> dict[str, str]:
        """The plans of runs as JSON, by id."""
        columns = tables.runs.c
        rows = self._fetch_all(select(columns.id, columns.plan).where(_IS_WHOLE, columns.id.in_(run_ids)))
        return {row.id: row.plan for row in rows}

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
        return [run_line(row, lease_folder) for row in self._fetch_all(query)]

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
        rows = self._fetch_all(query if after_s is None else query.where(tables.steps.c.finished > after_s))
        return [TrainingStep(row.step, metrics(row.metrics), row.finished) for row in rows]

    def evaluations(self, run_id: str, after_s: float | None = None) -> list[Evaluation]:
        """Evaluations in order of step, then mode; with `after_s`, those that finished after that moment."""
        table = tables.evaluations
        query = _select_of_run(table, run_id).order_by(table.c.step, table.c.mode)
        rows = self._fetch_all(query if after_s is None else query.where(table.c.finished > after_s))
        return list(map(_make_evaluation, rows))

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        """Complete checkpoints in order of step."""
        rows = self._fetch_all(_select_of_run(tables.checkpoints, run_id).order_by(tables.checkpoints.c.step))
        place = self.store.absolute
        return [value(Checkpoint, row, path=place(row.path)) for row in rows]

    def changes(self, run_id: str) -> list[AcceptedChange]:
        """Changes that were accepted when the run was resumed, in order of step."""
        table = tables.changes
        rows = self._fetch_all(_select_of_run(table, run_id).order_by(table.c.step, table.c.role, table.c.path))
        return [value(AcceptedChange, row) for row in rows]

    def texts(self, names: Collection[str]) -> dict[str, str]:
        """Texts of source files by the hash that names each, those that are kept."""
        with self.store.read() as connection:
            return {name: data.decode() for name, data in read_blobs(connection, names).items()}

    def exports(self, run_id: str) -> list[Export]:
        """Exported models, in order of step."""
        table = tables.exports
        rows = self._fetch_all(_select_of_run(table, run_id).order_by(table.c.step, table.c.path))
        place = self.store.absolute
        return [value(Export, row, path=place(row.path)) for row in rows]

    def link(self, run_id: str, sha256: str | None = None) -> Link | None:
        """The last link of a run's chain, which stands for all of the run; or the one of a hash, where there is one."""
        with self.store.read() as connection:
            return read_link(connection, run_id, sha256)

    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of every run that has some, in order of the alphabet."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in self._fetch_all(select(tables.tags).order_by(tables.tags.c.tag)):
            found[row.run_id].append(row.tag)
        return {run_id: tuple(tags) for run_id, tags in found.items()}

    def notes(self, run_id: str) -> list[Note]:
        """The remarks on a run, oldest first."""
        rows = self._fetch_all(_select_of_run(tables.notes, run_id).order_by(tables.notes.c.id))
        return [Note(row.time, row.text) for row in rows]

    def latest_evaluations(self, run_ids: Collection[str] | None = None) -> dict[str, Evaluation]:
        """Each run's latest sampled evaluation, or its latest of any mode, by run; of some runs, or of all."""
        table = tables.evaluations
        place = table.c.step + case((table.c.mode == "sampled", _BEHIND_ALL_STEPS), else_=0)
        ordered = select(table.c.run_id, func.max(place).label("last")).group_by(table.c.run_id)
        ordered = ordered if run_ids is None else ordered.where(table.c.run_id.in_(run_ids))
        latest = ordered.subquery()
        rows = self._fetch_all(
            select(table).join(latest, and_(latest.c.run_id == table.c.run_id, latest.c.last == place))
        )
        return {row.run_id: _make_evaluation(row) for row in rows}

    def events(self, run_id: str, num_before: int = 0) -> list[LoggedEvent]:
        """Notices in order, without the first `num_before`."""
        query = _select_of_run(tables.events, run_id).order_by(tables.events.c.id)
        rows = self._fetch_all(query.offset(num_before) if num_before else query)
        return [LoggedEvent(row.time, row.level, row.text, json.loads(row.data)) for row in rows]

    def row_hashes(self, run_id: str) -> dict[str, list[str]]:
        """Hashes of the questions that were tried, sorted, by phase."""
        columns = tables.trajectories.c
        counted = (columns.run_id == run_id, columns.phase != INTERRUPTED)
        query = select(columns.phase, columns.task_sha256).where(*counted).distinct()
        found: dict[str, list[str]] = defaultdict(list)
        for row in self._fetch_all(query.order_by(columns.phase, columns.task_sha256)):
            if row.task_sha256 is not None:
                found[row.phase].append(row.task_sha256)
        return dict(found)

    def rows(self, run_id: str, phase: str) -> dict[str, str]:
        """Hashes of the questions that were tried in a phase by their task's id, without the number of the pass."""
        columns = tables.trajectories.c
        query = select(columns.task_id, columns.task_sha256).where(columns.run_id == run_id, columns.phase == phase)
        return {row.task_id.partition("#")[0]: row.task_sha256 or "" for row in self._fetch_all(query.distinct())}

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
        rows = self._fetch_all(query.order_by(*order).limit(wanted.limit))
        return [summary(row) for row in rows]

    def page(
        self,
        run_id: str,
        wanted: TrajectoryFilter,
        order: TrajectoryOrder,
        after: tuple[str, int, int] | None,
        limit: int,
    ) -> list[TrajectoryLine]:
        """Trajectories from behind one on, with their questions; `limit` of the filter is not looked at.

        Args:
            after: phase, step and position of the one before the first that is wanted.
        """
        table = tables.trajectories
        query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted))
        with self.store.read() as connection:
            last = None if after is None else find_row(connection, run_id, after[2], after[1], after[0])
            return read_asked(connection, connection.execute(order_query(query, order, last).limit(limit)).all())

    def with_words(self, run_id: str, heads: Sequence[TrajectorySummary], text: str) -> list[TrajectorySummary]:
        """Those of a run's trajectories that can hold a text, in their order; all where no index can be kept."""
        file = self.store.index_file
        if file is None:
            return list(heads)

        from rlf.lineage.text_index import TextIndex, all_text

        def read(head: TrajectorySummary) -> str | None:
            stored = self.whole(run_id, head)
            return None if stored is None else all_text(stored)

        return list(TextIndex(file).narrow(run_id, heads, text, read))

    def pay(self, run_id: str, phase: str) -> list[Pay]:
        """Reward and success of the trajectories of each step that have both, in order."""
        table = tables.trajectories.c
        right = table.success >= 1.0
        query = (
            select(
                table.step,
                func.avg(table.reward).label("reward"),
                func.avg(table.success).label("success"),
                func.sum(case((right, 1), else_=0)).label("num_right"),
                func.sum(case((right, 0), else_=1)).label("num_wrong"),
                func.sum(case((right, table.reward), else_=0.0)).label("right_reward"),
            )
            .where(table.run_id == run_id, table.phase == phase, table.reward.is_not(None), table.success.is_not(None))
            .group_by(table.step)
            .order_by(table.step)
        )
        return [value(Pay, row) for row in self._fetch_all(query)]

    def paid_by_step(self, run_id: str, phase: str, threshold: float) -> dict[int, int]:
        """How many trajectories of each step did not succeed and have at least a reward."""
        table = tables.trajectories.c
        query = select(table.step, func.count().label("number")).where(*paid_conditions(run_id, phase, threshold))
        return {row.step: row.number for row in self._fetch_all(query.group_by(table.step))}

    def paid(self, run_id: str, phase: str, threshold: float, limit: int) -> list[TrajectoryLine]:
        """Those trajectories, the highest reward first, then the latest."""
        table = tables.trajectories
        query = select(table).where(*paid_conditions(run_id, phase, threshold))
        with self.store.read() as connection:
            rows = connection.execute(query.order_by(table.c.reward.desc(), table.c.step.desc()).limit(limit)).all()
            return read_asked(connection, rows)

    def neighbours(
        self, run_id: str, wanted: TrajectoryFilter, place: tuple[str, int, int]
    ) -> tuple[TrajectorySummary | None, TrajectorySummary | None]:
        """The trajectories before and behind a place among those that a filter wants."""
        table = tables.trajectories
        key, here = tuple_(table.c.phase, table.c.step, table.c.k), tuple_(*place)
        query = select(table).where(table.c.run_id == run_id, *filter_conditions(wanted)).limit(1)
        order = (table.c.phase, table.c.step, table.c.k)
        with self.store.read() as connection:
            before = connection.execute(query.where(key < here).order_by(*(one.desc() for one in order))).first()
            behind = connection.execute(query.where(key > here).order_by(*order)).first()
        return (None if before is None else summary(before), None if behind is None else summary(behind))

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

    def calls(
        self, run_id: str, wanted: TrajectoryFilter, *, tool: str | None, outcomes: Collection[Outcome], limit: int
    ) -> list[FoundCall]:
        """The calls of a tool, or of all, that ended in one of the outcomes, in the order of their trajectories.

        Calls inside of agents' calls are among them, behind the agent's.
        """
        calls, of = tables.tool_calls.c, tables.trajectories.c
        wanted_here = (
            calls.outcome.in_(outcomes) if tool is None else (calls.outcome.in_(outcomes) & (calls.name == tool))
        )
        query = (
            select(tables.tool_calls, of.phase, of.step, of.k, of.trajectory_id)
            .join(tables.trajectories, of.id == calls.trajectory_ref)
            .where(of.run_id == run_id, wanted_here | calls.inner.is_not(None), *filter_conditions(wanted))
            .order_by(of.phase, of.step, of.k, calls.turn, calls.position)
        )
        if Outcome.OK not in outcomes:  # few: found by their indexes, in any run
            failed = select(calls.trajectory_ref).where(text(tables.CALL_FAILED), wanted_here)
            inside = select(calls.trajectory_ref).where(text(tables.CALL_OF_AGENT))
            query = query.where(of.id.in_(failed) | of.id.in_(inside))
        found = list[FoundCall]()
        with self.store.read() as connection:
            for rows in connection.execute(query).partitions(_ROWS):
                blobs = read_blobs(connection, blob_names([], rows))
                every = (call for row in rows for call in found_calls(row, blobs))
                found += [call for call in every if tool in (None, call.name) and call.outcome in outcomes]
                if len(found) >= limit:
                    break
        return found[:limit]

    def latencies(self, run_id: str) -> list[tuple[int, str, float]]:
        """Step, tool and seconds of each training call that was made, the caller's wait in; no tool: a trajectory."""
        of, calls = tables.trajectories.c, tables.tool_calls.c
        here = select(of.step).where(of.run_id == run_id, of.phase == TRAIN)
        called = here.join(tables.tool_calls, calls.trajectory_ref == of.id).where(calls.cached.is_(False))
        rows = called.add_columns(calls.name, calls.queue_s + calls.run_s)
        with self.store.read() as connection:
            found = [*connection.execute(here.add_columns(literal(""), of.duration_s)), *connection.execute(rows)]
        return [(step, name, seconds) for step, name, seconds in found]

    def costs(self, run_id: str) -> list[Cost]:
        """Costs of a run's tools and judges, by name, the dearest first."""
        rows = self._fetch_all(_select_of_run(tables.costs, run_id))
        return costs_of((row.phase, row.kind, row.name, row.usage) for row in rows)

    def names_inside(self, run_id: str) -> set[str]:
        """Names of the tools that agents called."""
        of, calls = tables.trajectories.c, tables.tool_calls.c
        here = select(of.id).where(of.id == calls.trajectory_ref, of.run_id == run_id).exists()
        rows = self._fetch_all(select(calls.inner).where(text(tables.CALL_OF_AGENT), here))
        return {name for row in rows for name in inner_names(json.loads(row.inner))}

    def step_totals(self, run_id: str) -> list[StepTotals]:
        """Tokens and tool calls of the training steps, in order."""
        table = tables.collections
        query = _select_of_run(table, run_id).where(table.c.phase == TRAIN).order_by(table.c.step)
        return [value(StepTotals, row) for row in self._fetch_all(query)]

    def tool_call_summary(self, run_id: str) -> list[ToolCallSummary]:
        """Outcomes of each tool's calls, over training and evaluations; most called first."""
        columns = tables.tool_totals.c
        added = ("num_calls", "num_cached", "num_truncated", "run_s", "queue_s")
        query = (
            select(
                columns.name,
                columns.outcome,
                func.max(columns.max_run_s).label("max_run_s"),
                *(func.sum(columns[name]).label(name) for name in added),
            )
            .where(columns.run_id == run_id)
            .group_by(columns.name, columns.outcome)
        )
        by_name: dict[str, list[AnyRow]] = defaultdict(list)
        for row in self._fetch_all(query):
            by_name[row.name].append(row)
        found = [tool_summary(name, rows) for name, rows in by_name.items()]
        return sorted(found, key=lambda tool: (-tool.num_calls, tool.name))

    def _read_runs(self, connection: Connection, query: Select[Any]) -> list[Run]:
        rows = connection.execute(query).all()
        files = _read_run_files(connection, [row.id for row in rows])
        lease_folder = self.store.lease_folder
        return [run(row, tuple(files[row.id]), self.store.absolute(row.folder), lease_folder) for row in rows]

    def _fetch_all(self, query: Select[Any]) -> Sequence[AnyRow]:
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
