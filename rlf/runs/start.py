"""Starting and driving runs: the one place where spec, plan, engine and lineage meet, in one pass downwards.

Files are loaded and checked once, the plan is placed on this machine, the engine is opened with all that it needs, the
run is registered, and `drive` runs it to its end.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.algo.health import Action
from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.core.identity import new_run_id
from rlf.core.text import text_of
from rlf.engines.engine import Engine, EngineRun, Fit, Opening, Start, engine_of, load_inputs
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import FileRecord, ParentKind, RunRecord
from rlf.lineage.rows import encode_whole
from rlf.lineage.run import Heartbeat, start_run
from rlf.lineage.store import Store
from rlf.plan import Plan, plan_to_json
from rlf.plan.features import name_engines
from rlf.reports.verdict import RunVerdict, VerdictKind, read_verdict
from rlf.runs.now import NowWriter
from rlf.runs.opening import certificate_notice, check_room, power_notices
from rlf.runs.place import RECORDING, REWARD_CALLS, Places, check_runs_folder, open_lineage, source_texts
from rlf.runs.plans import PlacedPlan, check_spec
from rlf.runs.provenance import ReadFiles, code_patch, hide_secrets, made_here, recorded_files
from rlf.runs.sink import Budget, BudgetSpent, HealthStop, RunInfo, RunOutcome, RunSink, SignalWatch, View, open_budget
from rlf.spec.engines import Feature
from rlf.trackers import TrackedRun
from rlf.training.harness import Traffic
from rlf.types.events import CheckpointSaved, Notice, RunFinished, RunStatus

if TYPE_CHECKING:
    from rlf.tools.execution.tape import Tape


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of a run."""

    run_id: str
    kind: ParentKind
    start: Start | None = None
    """Of a fork: the parent's checkpoint that it starts from."""


def run(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
    place: object | None = None,
    record: bool = False,
    replay: str | None = None,
) -> RunOutcome:
    """Checks a spec and runs it to its end. Nothing is written before everything has been checked and loaded.

    Args:
        place: the engine's own word for where it runs, as of a `Fit`; None: here.
        record: whether every tool call and its result are written to a file in the run's folder.
        replay: a run, or such a file, whose results are played back in place of the tools.

    Raises:
        SpecError, RlfError: the input is wrong.
        RunError: the run failed for a reason outside its input.
    """
    check_runs_folder(runs_folder)
    checked = check_spec(files, overrides)
    notices = power_notices(checked)
    placed = checked.fit_here(notices) if place is None else checked.fit(Fit(place=place), notices)
    return start(placed, runs_folder=runs_folder, view=view, command=command, record=record, replay=replay)


def start(
    placed: PlacedPlan,
    *,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
    parent: Parent | None = None,
    cwd: Path | None = None,
    also: Sequence[FileRecord] = (),
    record: bool = False,
    replay: str | None = None,
) -> RunOutcome:
    """Runs a plan to its end.

    Args:
        parent: the run that it descends from; None: it has no parent.
        cwd: the folder that relative paths of the plan's files start at; None: the current one.
        also: files that the run is made from beside those that its plan names.
        record, replay: as for `run`.
    """
    plan, run_id, cwd = placed.plan, new_run_id(), cwd or Path.cwd()
    folder = runs_folder.absolute() / run_id  # a tool in this process may change the current folder
    played = None
    if replay is not None:
        from rlf.runs.restore import find_replay, keep_replay

        played = find_replay(replay, runs_folder)
    # Of groups that are filtered out no trajectory is kept, so that a reproduction finds their calls there alone.
    is_filtered = plan.spec.train.dynamic_filtering is not None and Feature.RECORDED_CALLS not in plan.spec.engine.LACKS
    record = played is None and (record or is_filtered)
    with open_lineage(runs_folder, create=True, url=plan.spec.lineage.url) as store:
        hide_secrets(store, [plan])
        signals = SignalWatch(plan.spec, run_id, runs_folder, store.redactor.text)
        sink = RunSink(plan.spec, signals, open_budget(plan, is_played=played is not None))
        # Loaded before the run is registered: what does not load leaves no run behind.
        engine = open_engine(placed, folder, sink, store, folder / RECORDING if record else None, played)
        sink.opening = [*placed.notices, certificate_notice(plan.spec, engine.chat, runs_folder)]
        if plan.spec.env is not None:
            from rlf.runs.worlds import page_notices

            sink.opening += page_notices(plan.spec, runs_folder)
        if parent is not None and parent.start is not None:
            sink.opening.insert(0, _start_from(parent.start, engine_of(plan.spec), engine, folder))
        info = run_info(plan, run_id, folder, engine)
        made = RunRecord(
            name=plan.spec.name,
            engine=plan.spec.engine.kind,
            seed=plan.spec.seed,
            plan=json.loads(plan_to_json(plan)),
            plan_hash=plan.plan_hash,
            parent_id=None if parent is None else parent.run_id,
            parent_kind=None if parent is None else parent.kind,
            parent_step=None if parent is None or parent.start is None else parent.start.step,
            **made_here(run_id, folder, store, command, cwd, [plan], device=info.device, threads=engine.threads),
            files=(*recorded_files(plan, cwd), *also),
        )
        # Before the run is registered: killed in between, a resume would call tools for real, or record nothing.
        if replay is not None:
            keep_replay(folder, replay, Reader(store))
        if record:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / RECORDING).touch()
        places = Places.of(made, store)
        start_run(store, made, code_patch(), source_texts(made.files, places))
        sink.files = ReadFiles(made, places, runs_folder)
        return drive(store, plan, engine, sink, info, view)


def _start_from(start: Start, kind: Engine, engine: EngineRun, folder: Path) -> CheckpointSaved:
    """Puts an engine where a checkpoint of another run left it; the run has that as its own first checkpoint."""
    assert start.checkpoint is not None, "a start without a checkpoint"
    try:
        copy, sha256 = kind.copy_checkpoint(start.checkpoint, folder)
        engine.go_back(Start(start.step, copy), 0)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return CheckpointSaved(start.step, str(copy), sha256, (start.step,))


def open_engine(
    placed: PlacedPlan, folder: Path, sink: RunSink, store: Store, record: Path | None, played: Tape | None
) -> EngineRun:
    """Opens the engine of a plan with all that it needs. Raises RlfError for what it lacks."""
    plan, engine = placed.plan, engine_of(placed.plan.spec)
    check_room(plan.spec, folder)
    if (record is not None or played is not None) and Feature.RECORDED_CALLS in engine.LACKS:
        fix = name_engines(Feature.RECORDED_CALLS, "; use ")
        raise RlfError(f"--record and --replay: {engine.LACKS[Feature.RECORDED_CALLS]}{fix}.")
    traffic = Traffic(store.redactor.text, record, folder / REWARD_CALLS, played, sink.budget.meter)
    inputs, encode = placed.inputs or load_inputs(plan), partial(encode_whole, redactor=store.redactor)
    return engine.open(Opening(plan, inputs, folder, sink, sink.flush, traffic, placed.place, encode))


def run_info(plan: Plan, run_id: str, folder: Path, engine: EngineRun) -> RunInfo:
    """What views are given of a run that begins."""
    return RunInfo(
        run_id=run_id,
        name=plan.spec.name,
        folder=folder,
        total_steps=plan.spec.train.steps,
        first_step=engine.step + 1,
        seed=plan.spec.seed,
        plan_hash=plan.plan_hash,
        device=engine.place,
        model=plan.spec.model.path,
        resumed=False,
        specs=tuple(str(file.path) for file in plan.files if file.role == "spec"),
    )


_SPENDING_S = 1.0
"""Between two looks at what was spent."""


def drive(store: Store, plan: Plan, engine: EngineRun, sink: RunSink, info: RunInfo, view: View) -> RunOutcome:
    """Runs an engine to its end, however it ends, and records the end.

    Raises:
        HealthStop: a guard of the spec's `health` ended it.
        LeaseLost: another process owns the run now.
        BaseException: whatever the engine raised, once it is recorded.
    """
    spec, budget, error, spent = plan.spec, sink.budget, None, None
    if spec.report_to:
        from rlf.runs.tracking import Tracking

        shown = json.loads(plan_to_json(plan))["spec"]
        tracked = TrackedRun(info.run_id, info.name, info.folder, info.first_step, shown)
        sink.tracking = Tracking(spec.report_to, tracked, store.redactor)
    opened = Recorder(store, info.run_id, budget.unrecorded, is_played=budget.is_played)
    with opened as recorder, sink.tracking or nullcontext(), chdir("."):
        sink.recorder = recorder
        try:
            with recording_failure(recorder, lambda: engine.step):
                sink.shown = view(info)
                for event in sink.opening:
                    sink(event)
                asyncio.run(run_owned(store, info.run_id, budget, recorder, engine.run, engine.leave_job, info.folder))
            status = RunStatus.FINISHED
        except KeyboardInterrupt:
            status, error = RunStatus.INTERRUPTED, stops.reason()
        except BudgetSpent as stop:
            status, error = RunStatus.INTERRUPTED, str(stop).replace("RUN", info.run_id, 1)
            spent = error
        except HealthStop as stop:
            # To the recorder alone, and flushed: the checkpoints go only once the lineage says why the run ended.
            verdict = _report_verdict(store, sink, info, RunStatus.FAILED)
            recorder(RunFinished(RunStatus.FAILED, stop.alarms[0].step, str(stop)))
            recorder.flush()
            since = [alarm.since for alarm in stop.alarms if alarm.action is Action.ROLLBACK]
            if since:
                from rlf.runs.restore import drop_checkpoints

                drop_checkpoints(store, info.run_id, info.folder, from_step=min(since))
            raise HealthStop(stop.alarms, verdict) from stop
        verdict = _report_verdict(store, sink, info, status)
        sink(RunFinished(status, engine.step, error))
    if spec.lineage.keep is not None and status is RunStatus.FINISHED:
        from rlf.lineage.upkeep import parse_keep, thin

        thin(store, info.run_id, parse_keep(spec.lineage.keep))
    return RunOutcome(info.run_id, status, engine.step, verdict, spent)


@contextmanager
def recording_failure(recorder: Recorder, step: Callable[[], int]) -> Iterator[None]:
    """Records how a run ended that the block ends by an error of its own, which is raised again."""
    try:
        yield
    except (KeyboardInterrupt, BudgetSpent, HealthStop, LeaseLost):  # the caller's to record, or another process's
        raise
    except (BrokenPipeError, stops.RefusedOutput):  # nobody reads what is printed any more
        recorder(RunFinished(RunStatus.INTERRUPTED, step(), "its output was closed, or could not be written"))
        raise
    except BaseException as failure:
        recorder(RunFinished(RunStatus.FAILED, step(), text_of(failure)))
        raise


def _report_verdict(store: Store, sink: RunSink, info: RunInfo, ended: RunStatus) -> RunVerdict:
    """Judges the run by what is recorded of it, and records that too."""
    sink.flush()
    verdict = read_verdict(Reader(store), info.run_id, ended)
    level = "warning" if verdict.kind in (VerdictKind.NO_SIGNAL, VerdictKind.WORSE) else "info"
    sink(Notice(level, verdict.line, {"verdict": verdict.kind, "reason": verdict.reason}))
    return verdict


async def run_owned(
    store: Store,
    run_id: str,
    budget: Budget,
    recorder: Recorder,
    work: Callable[[], Awaitable[None]],
    leave_job: Callable[[], None] | None,
    folder: Path,
) -> None:
    """Does the work of a run while this process owns the run and its budget lasts.

    Args:
        leave_job: called where another process has taken the run over.
        folder: of the run, where it is written what it does.

    Raises:
        LeaseLost, BudgetSpent: soon after it is so.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "a run outside of a task"
    lost: list[LeaseLost] = []
    spent: list[BudgetSpent] = []

    def stop_spending() -> None:
        spent.append(budget.spent())
        loop.call_soon_threadsafe(task.cancel)

    def lose(error: LeaseLost) -> None:
        recorder.fail(error)
        lost.append(error)
        if error.is_taken_over and leave_job is not None:
            leave_job()
        loop.call_soon_threadsafe(task.cancel)

    noting = loop.create_task(_note_spending(recorder))
    try:
        with Heartbeat(store, run_id, lose), budget.watched(stop_spending), NowWriter(folder):
            await work()
    except asyncio.CancelledError:
        for reason in (*lost, *spent):
            raise reason from None
        raise
    finally:
        noting.cancel()


async def _note_spending(recorder: Recorder) -> None:
    """Records what is spent on the way, so that a process that is killed loses a second of it at most."""
    while True:
        await asyncio.sleep(_SPENDING_S)
        recorder.note_spending()
