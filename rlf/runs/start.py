"""Starting, resuming and driving runs: the one place where spec, plan, engine and lineage meet, in one pass downwards.

Files are loaded and checked once, the plan is placed on this machine, the engine is opened with all that it needs, the
run is registered, and `drive` runs it to its end.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.algo.health import Action
from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.core.identity import new_run_id
from rlf.core.redact import REDACTED
from rlf.core.text import text_of
from rlf.engines.engine import Engine, EngineRun, Fit, Opening, Start, engine_of, load_inputs
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import Cost, FileRecord, ParentKind, RunRecord
from rlf.lineage.resumed import begin_resume, refuse_running, training_scores
from rlf.lineage.rows import encode_whole
from rlf.lineage.run import Heartbeat, start_run
from rlf.lineage.store import Store
from rlf.plan import Plan, plan_to_json
from rlf.plan.features import name_engines
from rlf.reports.verdict import RunVerdict, VerdictKind, read_verdict, signal_so_far
from rlf.runs.now import NowWriter
from rlf.runs.opening import certificate_notice, check_room, power_notices
from rlf.runs.place import RECORDING, REWARD_CALLS, Places, check_runs_folder, open_lineage, source_texts
from rlf.runs.plans import PlacedPlan, check_spec
from rlf.runs.provenance import ReadFiles, code_patch, declared, hide_secrets, made_here, recorded_files
from rlf.runs.sink import (
    Budget,
    BudgetSpent,
    HealthStop,
    RunInfo,
    RunOutcome,
    RunSink,
    SignalWatch,
    Tracking,
    View,
    open_budget,
)
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
        engine = _open_engine(placed, folder, sink, store, folder / RECORDING if record else None, played)
        sink.opening = [*placed.notices, certificate_notice(plan.spec, engine.chat, runs_folder)]
        if plan.spec.env is not None:
            from rlf.runs.worlds import page_notices

            sink.opening += page_notices(plan.spec, runs_folder)
        if parent is not None and parent.start is not None:
            sink.opening.insert(0, _start_from(parent.start, engine_of(plan.spec), engine, folder))
        info = _run_info(plan, run_id, folder, engine)
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


def resume(
    name: str,
    *,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
    accept_changes: bool = False,
    from_step: int | None = None,
    take_over: bool = False,
    max_usd: float | None = None,
) -> RunOutcome:
    """Continues a stopped run from its last complete checkpoint, to the numbers it would have had.

    Args:
        accept_changes: whether the run continues where its inputs are not what it was made from.
        from_step: the checkpoint to continue from, 0 for the run's beginning; None: the newest.
        take_over: whether a run is also taken from a process that seems to run it still.
        max_usd: what it may spend in all, in place of the plan's `limits.max_usd`.

    Raises:
        InputsChanged: inputs changed, and that was not accepted.
        RlfError: there is no such run, it still runs, it is finished, or its checkpoints are damaged.
    """
    from rlf.runs.changes import accept, change_notices, find_changes, refuse_changes
    from rlf.runs.restore import choose_start, kept_replay, restore_plan

    # The order is what a crash at any line relies on: all that may refuse comes first and writes nothing; then the
    # engine's files go back, which can be repeated; then the lineage goes back and becomes this process's, in one
    # transaction; and only then is anything recorded that assumes it.
    with open_lineage(runs_folder) as store:
        reader = Reader(store)
        stored = reader.get_run(name)
        record = stored.record
        if stored.status is RunStatus.FINISHED:
            raise RlfError(f"run {record.id}: finished already, at step {stored.last_step}; nothing is left to resume.")
        if not take_over:
            refuse_running(store, record.id)
        places = Places.of(record, store)
        plan = _with_its_secrets(restore_plan(record, places))
        # Before anything is said of the run: messages of damage and changes quote its files.
        hide_secrets(store, [plan])
        start_at = choose_start(reader, record, from_step)
        # A job of OpenRLHF continues from its own newest state, which is not behind the last step that is recorded.
        at_step = stored.last_step if engine_of(plan.spec).HAS_NEWER_STATE else start_at.step
        changes = find_changes(reader, record, plan, places, at_step=at_step)
        refuse_changes(record.id, changes, start_at.step, accepts=accept_changes)
        folder = run_folder(runs_folder.absolute(), record.id)
        # Read before `begin_resume` deletes the steps that are repeated: whether the run has ever had a signal.
        had_signal = signal_so_far(reader, record.id)
        signals = SignalWatch(plan.spec, record.id, runs_folder, store.redactor.text, had_signal=had_signal)
        costs, played = _costs_usd(reader.costs(record.id)), kept_replay(folder, runs_folder)
        budget = open_budget(plan, sum(costs.values()), max_usd, is_played=played is not None)
        sink = RunSink(plan.spec, signals, budget)
        if plan.spec.health.hidden is not None and plan.spec.health.hidden.action is Action.STOP:
            # Who resumes a run that a gap has stopped knows of the gap; `begin_resume` may delete the alarm.
            sink.hidden.raised |= {event.data["guard"] for event in reader.events(record.id) if "guard" in event.data}
        recording = folder / RECORDING
        engine = _open_engine(PlacedPlan(plan), folder, sink, store, recording if recording.is_file() else None, played)
        # The engine first: killed behind it, the lineage still names later steps, and the next resume does the same
        # again. The other way round, the engine's files would be ahead of a lineage that has forgotten their steps.
        engine.go_back(start_at, stored.last_step)
        # By the engine's own step: one that has newer state than its checkpoints continues from that.
        begin_resume(store, record.id, engine.step, take_over=take_over)
        if sink.hidden.terms:
            with store.read() as connection:
                sink.hidden.replay(training_scores(connection, record.id, sink.hidden.terms))
        # Behind it, for a change belongs to the step that the run continues from, and later ones were just deleted.
        accept(store, record, changes, places, step=engine.step)
        sink.files = ReadFiles(record, places, runs_folder)
        info = replace(_run_info(plan, record.id, folder, engine), resumed=True, costs_usd=costs)
        text = f"resumed after step {engine.step}: {shlex.join(command)}"
        certificate = certificate_notice(plan.spec, engine.chat, runs_folder)
        skipped = [Notice("warning", f"damaged checkpoint skipped: {line}", {}) for line in start_at.skipped]
        sink.opening = [Notice("info", text, {"step": engine.step}), *skipped]
        sink.opening += [*change_notices(changes, engine.step), certificate]
        return drive(store, plan, engine, sink, info, view)


def _costs_usd(costs: Sequence[Cost]) -> dict[str, float]:
    """Costs by name."""
    sums: dict[str, float] = {}
    for cost in costs:
        sums[cost.name] = sums.get(cost.name, 0.0) + cost.cost_usd
    return {name: cost_usd for name, cost_usd in sums.items() if cost_usd}


def _with_its_secrets(plan: Plan) -> Plan:
    """A restored plan that can be run. Raises RlfError where it was written with secrets, which nothing stores."""
    if REDACTED in json.dumps(declared(plan)):
        raise RlfError(
            "a tool or reward file of the run holds a secret, and secrets are not stored. Write "
            "`${oc.env:NAME}` there instead, and start a new run."
        )
    return plan


def _open_engine(
    placed: PlacedPlan, folder: Path, sink: RunSink, store: Store, record: Path | None, played: Tape | None
) -> EngineRun:
    plan, engine = placed.plan, engine_of(placed.plan.spec)
    check_room(plan.spec, folder)
    if (record is not None or played is not None) and Feature.RECORDED_CALLS in engine.LACKS:
        fix = name_engines(Feature.RECORDED_CALLS, "; use ")
        raise RlfError(f"--record and --replay: {engine.LACKS[Feature.RECORDED_CALLS]}{fix}.")
    traffic = Traffic(store.redactor.text, record, folder / REWARD_CALLS, played, sink.budget.meter)
    inputs, encode = placed.inputs or load_inputs(plan), partial(encode_whole, redactor=store.redactor)
    return engine.open(Opening(plan, inputs, folder, sink, sink.flush, traffic, placed.place, encode))


def _run_info(plan: Plan, run_id: str, folder: Path, engine: EngineRun) -> RunInfo:
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
    tracked = TrackedRun(info.run_id, info.name, info.folder, info.first_step, json.loads(plan_to_json(plan))["spec"])
    tracking = Tracking(spec.report_to, tracked, store.redactor)
    with Recorder(store, info.run_id, budget.unrecorded, is_played=budget.is_played) as recorder, tracking, chdir("."):
        sink.recorder, sink.tracking = recorder, tracking
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
