"""`rlf.run` and `rlf.resume`, and runs that are recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable, as_json
from rlf.lineage.calls import read_calls
from rlf.lineage.records import (
    TRAIN,
    Checkpoint,
    Evaluation,
    FoundCall,
    LoggedEvent,
    StoredTrajectory,
    TrainingStep,
    TrajectoryFilter,
    TrajectorySummary,
)
from rlf.lineage.records import Run as RecordedRun
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Overrides, Spec, as_command, to_command
from rlf.reports.overview import Overview, chosen, read_overviews
from rlf.reports.report import Report, read_report
from rlf.runs import start
from rlf.runs.place import open_reader
from rlf.runs.resume import resume as resume_run
from rlf.runs.sink import RunOutcome, View
from rlf.runs.trajectories import wanted_trajectories
from rlf.types import FailureClass, Outcome, RunEvent, RunStatus, Scored
from rlf.types.events import Notice

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Typed rows that become a table: of pandas, of Arrow, or of JSON.

T_co = TypeVar("T_co", covariant=True)


class Rows(Sequence[T_co]):
    """Frozen values of one type, in order; as a table, each field is a column.

    The fields of a value within a row have its name before theirs, as `evaluation.step`; metrics stand by themselves.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[T_co]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> Rows[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | Rows[T_co]:
        return Rows(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        kind = type(self._rows[0]).__name__ if self._rows else ""
        return f"Rows[{kind}]({len(self)})"

    def _repr_html_(self) -> str | None:
        """A table in a notebook; None, so that it shows the text, where pandas is not installed."""
        try:
            return str(self.to_pandas().to_html(max_rows=20, notebook=True))
        except RlfError:
            return None

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain JSON, as `rlf ... --json` prints them."""
        found: list[dict[str, Any]] = as_json(self._rows)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise RlfError(
                "to_pandas: pandas is not installed. Write `pip install pandas`, or use to_json()."
            ) from error
        return pd.DataFrame(self._flatten_rows())

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table; a column whose values are of several types holds JSON texts."""
        import pyarrow as pa

        flat = self._flatten_rows()
        names = dict.fromkeys(name for row in flat for name in row)
        return pa.table({name: _make_column([row.get(name) for row in flat]) for name in names})

    def _flatten_rows(self) -> list[dict[str, Any]]:
        return [dict(_flatten_row(row, "")) for row in self.to_json()]


def _flatten_row(row: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten_row(value, before if name == "metrics" else f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _make_column(values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values])


@dataclass(frozen=True, slots=True)
class Run(Jsonable):
    """A run as the lineage had it when it was loaded; its methods read the lineage as it is now."""

    id: str = field(metadata={"json": "run_id"})
    name: str
    status: RunStatus
    step: int
    """The last one that is finished."""
    error: str | None
    """Why it failed or was interrupted."""
    engine: str
    seed: int
    plan_hash: str
    spec: Mapping[str, Any] = field(repr=False)
    """The spec with every default, overrides included."""
    started: float
    """Unix time in seconds."""
    finished: float | None
    parent_id: str | None
    folder: Path
    """Where its checkpoints are."""
    runs_folder: Path

    def steps(self) -> Rows[TrainingStep]:
        """Training steps with their metrics."""
        with open_reader(self.runs_folder) as reader:
            return Rows(reader.steps(self.id))

    def evaluations(self) -> Rows[Evaluation]:
        """Evaluations with their metrics."""
        with open_reader(self.runs_folder) as reader:
            return Rows(reader.evaluations(self.id))

    def checkpoints(self) -> Rows[Checkpoint]:
        """Complete checkpoints, those that were dropped included."""
        with open_reader(self.runs_folder) as reader:
            return Rows(reader.checkpoints(self.id))

    def events(self) -> Rows[LoggedEvent]:
        """The run's notices: warnings, alarms, its verdict."""
        with open_reader(self.runs_folder) as reader:
            return Rows(reader.events(self.id))

    def trajectories(
        self,
        *,
        phase: str | None = None,
        step: int | None = None,
        task_id: str | None = None,
        succeeded: bool | None = None,
        failure: FailureClass | str | None = None,
        best_first: bool = False,
        limit: int | None = None,
    ) -> Rows[TrajectorySummary]:
        """Trajectories without tokens and turns, by phase, step and position.

        Args:
            phase: `train`, or an evaluation's `sampled` or `greedy`; None: all.
            failure: a class of parse failure that one of the turns has, e.g. `bad_json`.
            best_first: by advantage, highest first.
        """
        facts = {"task_id": task_id, "succeeded": succeeded, "best_first": best_first, "limit": limit}
        wanted = wanted_trajectories(failure, phase=phase, step=step, **facts)
        with open_reader(self.runs_folder) as reader:
            return Rows(reader.trajectories(self.id, wanted))

    def trajectory(self, k: int = 0, *, phase: str = TRAIN, step: int | None = None) -> StoredTrajectory:
        """The k-th trajectory of a step, of the latest one without `step`: tokens, masks, turns, calls and scores.

        Raises:
            RlfError: there is none; the message says what there is.
        """
        with open_reader(self.runs_folder) as reader:
            return reader.trajectory(self.id, k=k, step=step, phase=phase)

    def scored(self, *, phase: str = TRAIN, step: int | None = None) -> list[Scored]:
        """Every trajectory of a step, of the latest one without `step`, with its scores: what `rlf.score` takes.

        Raises:
            RlfError: none is kept.
        """
        from rlf.runs.declared import scored_step

        return scored_step(self.id, self.runs_folder, phase=phase, step=step)[2]

    def calls(
        self, tool: str | None = None, *, phase: str | None = None, step: int | None = None, limit: int = 1000
    ) -> Rows[FoundCall]:
        """Calls of a tool, or of all, with arguments, outcome and what the model read."""
        wanted = TrajectoryFilter(phase=phase, step=step)
        with open_reader(self.runs_folder) as reader:
            return Rows(read_calls(reader, self.id, wanted, tool=tool, outcomes=list(Outcome), limit=limit))

    def report(self) -> Report:
        """Its result, course, tools, judges and costs: what `rlf runs show` shows."""
        with open_reader(self.runs_folder) as reader:
            return read_report(reader, self.id)


def _make_run(run: RecordedRun, runs_folder: Path) -> Run:
    record = run.record
    return Run(
        id=record.id,
        name=record.name,
        status=run.status,
        step=run.last_step,
        error=run.error,
        engine=record.engine,
        seed=record.seed,
        plan_hash=record.plan_hash,
        spec=record.plan.get("spec", {}),
        started=record.started,
        finished=run.finished,
        parent_id=record.parent_id,
        folder=Path(record.folder),
        runs_folder=runs_folder,
    )


def load_run(name: str = "latest", *, runs_folder: AnyPath = DEFAULT_RUNS) -> Run:
    """A recorded run, by its id, the beginning of one, or `latest`. Raises RlfError where none or several match."""
    folder = Path(runs_folder)
    with open_reader(folder) as reader:
        return _make_run(reader.get_run(name), folder)


def list_runs(
    wanted: str | None = None, *, sort: str | None = None, runs_folder: AnyPath = DEFAULT_RUNS
) -> Rows[Overview]:
    """Runs at a glance, newest first.

    Args:
        wanted: a filter such as `success > 0.8 and spec == "search"`, as of `rlf runs list`.
        sort: the order, highest first: `success`, `time`, ...
    """
    with open_reader(Path(runs_folder)) as reader:
        return Rows(chosen(read_overviews(reader), wanted, sort))


def run(
    spec: Spec,
    overrides: Overrides = (),
    *,
    on_event: Callable[[RunEvent], None] | None = None,
    record: bool = False,
    replay: str | None = None,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> Run:
    """Trains a model as a spec says, to the end of the run: the same run that `rlf run` starts.

    Args:
        spec: a file, several, or a mapping. Functions among its `tools` and `rewards` are written to files in the
            runs folder, where a resumed run finds them.
        on_event: called with every step, evaluation, checkpoint and notice; to watch, `on_event=print`. None prints
            warnings on stderr.
        record: whether every tool call and its result are kept in a file in the run's folder.
        replay: a run, or such a file, whose results are played back in place of the tools.

    Raises:
        SpecError: the spec has faults.
        RunError: the run failed for a reason outside its input.
        KeyboardInterrupt: it was interrupted; everything is kept, and `rlf.resume` continues it.
    """
    folder = Path(runs_folder)
    files, texts = to_command(spec, overrides, folder)
    if record and replay is not None:
        raise RlfError("record and replay: a replay makes no tool calls to record. Remove one of the two.")
    command = ["rlf", "run", *map(str, files), *texts, "--runs", str(folder)]
    command += ["--record"] if record else []
    command += [] if replay is None else ["--replay", replay]
    with as_command(), stops.heeded():
        outcome = start.run(
            files, texts, runs_folder=folder, view=make_view(on_event), command=command, record=record, replay=replay
        )
    return _ended_run(outcome, folder)


def resume(
    run: Run | str = "latest",
    *,
    on_event: Callable[[RunEvent], None] | None = None,
    accept_changes: bool = False,
    from_step: int | None = None,
    take_over: bool = False,
    max_usd: float | None = None,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> Run:
    """Continues a run that was interrupted, killed or failed, to the numbers it would have had.

    Args:
        accept_changes: whether it continues where its inputs are not what it was made from.
        from_step: the checkpoint to continue from, 0 for the beginning; None: the newest.
        take_over: whether it is also taken from a process that seems to run it still.
        max_usd: what it may spend in all, in place of the spec's `limits.max_usd`.

    Raises:
        RlfError: it still runs, is finished, its inputs changed, or its checkpoints are damaged.
    """
    name, folder = (run.id, run.runs_folder) if isinstance(run, Run) else (run, Path(runs_folder))
    with as_command(), stops.heeded():
        outcome = resume_run(
            name,
            runs_folder=folder,
            view=make_view(on_event),
            command=["rlf", "resume", name, "--runs", str(folder)],
            accept_changes=accept_changes,
            from_step=from_step,
            take_over=take_over,
            max_usd=max_usd,
        )
    return _ended_run(outcome, folder)


def make_view(on_event: Callable[[RunEvent], None] | None) -> View:
    """A view that calls `on_event`; None prints warnings on stderr."""

    def show(event: RunEvent) -> None:
        if on_event is not None:
            on_event(event)
        elif isinstance(event, Notice) and event.level != "info":
            sys.stderr.write(f"{event.level}: {event.text}\n")

    return lambda info: show


def _ended_run(outcome: RunOutcome, folder: Path) -> Run:
    """The run as it ended. Raises KeyboardInterrupt where it was stopped, so that the program stops too."""
    if outcome.status is RunStatus.INTERRUPTED and outcome.spent is None:
        where = "" if str(folder) == DEFAULT_RUNS else f", runs_folder={str(folder)!r}"
        again = f"rlf.resume({outcome.run_id!r}{where})"
        raise KeyboardInterrupt(f"run {outcome.run_id} stopped at step {outcome.step}; continue it with {again}")
    return load_run(outcome.run_id, runs_folder=folder)
