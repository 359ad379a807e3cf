"""Starting and resuming runs: the one place where spec, plan, engine and lineage meet."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.algo.health import Action
from rlf.api.lineage import check_runs_folder, open_lineage
from rlf.api.running.budgets import BudgetSpent, open_budget
from rlf.api.running.changes import InputsChanged, accept, change_notices, find_changes, source_texts
from rlf.api.running.checkpoints import choose_start, drop_checkpoints
from rlf.api.running.provenance import code_patch, code_version, host, packages
from rlf.api.running.replays import RECORDING, find_replay, keep_replay, kept_replay
from rlf.api.running.restoring import Places, restore_plan, take_environment
from rlf.api.running.signals import SignalWatch, show_command
from rlf.api.running.sink import HealthStop, RunSink
from rlf.api.running.tracking import Tracking
from rlf.api.specs.certificates import certificate_notice
from rlf.api.specs.inputs import builtin_files, model_files, source_files
from rlf.api.specs.places import Fitted, fit_here
from rlf.api.specs.planning import power_notices
from rlf.api.specs.plans import check_spec
from rlf.core import stops
from rlf.core.errors import Fault, RlfError
from rlf.core.ids import new_run_id
from rlf.core.inside import run_folder
from rlf.core.redact import REDACTED
from rlf.engines.engine import Start, engine_of, load_inputs
from rlf.lineage.heartbeat import Heartbeat
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import Cost, FileRecord, ParentKind, RunRecord
from rlf.lineage.run import begin_resume, refuse_running, start_run
from rlf.lineage.store import Store
from rlf.lineage.upkeep import parse_keep, thin
from rlf.plan import Plan, plan_to_json
from rlf.plan.features import name_engines
from rlf.reports.verdict import Verdict, VerdictKind, read_verdict, signal_so_far
from rlf.spec.engine import Feature
from rlf.spec.reading.dotenv import mentioned
from rlf.trackers import Tracked
from rlf.training.harness import Traffic
from rlf.types.events import (
    CheckpointSaved,
    EventSink,
    Notice,
    RunStatus,
)

_SPENDING_S = 1.0
"""Between two looks at what was spent."""

if TYPE_CHECKING:
    from rlf.engines.engine import EngineRun


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known of a run before its first event."""

    run_id: str
    name: str
    folder: Path
    total_steps: int
    first_step: int
    """1, or the step a resume starts with."""
    seed: int
    plan_hash: str
    device: str
    model: str
    resumed: bool
    specs: tuple[str, ...]
    costs_usd: Mapping[str, float] = field(default_factory=dict)
    """What was spent before a resume, by tool and judged term."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run, or this part of it, ended."""

    run_id: str
    status: RunStatus
    step: int
    verdict: Verdict
    """What the run came to."""
    spent: str | None = None
    """Why it stopped, where its budget is spent."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The run that another descends from."""

    run_id: str
    kind: ParentKind
    step: int | None = None
    """Of a fork: the step of the checkpoint that it starts from."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The checkpoint of another run that a run starts from."""

    step: int
    checkpoint: Path


View = Callable[[RunInfo], EventSink]
"""Called once, when the run is checked and registered; what it returns sees every event."""


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
    checked = check_spec(files, overrides, runs_folder=runs_folder)
    fitted = fit_here(files, overrides, checked) if place is None else Fitted(checked, place)
    return start(
        fitted.checked.plan,
        warnings=fitted.checked.warnings,
        notices=[*fitted.notices, *power_notices(fitted.checked)],
        runs_folder=runs_folder,
        view=view,
        command=command,
        place=fitted.place,
        record=record,
        replay=replay,
    )


def start(
    plan: Plan,
    *,
    warnings: Sequence[Fault],
    notices: Sequence[Notice] = (),
    runs_folder: Path,
    view: View,
    command: Sequence[str],
    parent: Parent | None = None,
    origin: Origin | None = None,
    cwd: Path | None = None,
    place: object | None = None,
    record: bool = False,
    replay: str | None = None,
) -> RunOutcome:
    """Runs a plan to its end.

    Args:
        warnings: what is unwise about it, reported before the first step.
        notices: what else is reported then.
        parent: the run that it descends from; None: it has no parent.
        origin: the checkpoint that it starts from; None: its model as the spec names it.
        cwd: the folder that relative paths of the plan's files start at; None: the current one.
        place: the engine's own word for where it runs, as of a `Fit`; None: here.
        record: whether every tool call and its result are written to a file in the run's folder.
        replay: a run, or such a file, whose results are played back in place of the tools.
    """
    run_id = new_run_id()
    folder = runs_folder / run_id
    played = None if replay is None else find_replay(replay, runs_folder)
    with open_lineage(runs_folder, create=True, url=plan.spec.lineage.url) as store:
        store.hide(environment(plan), declared(plan))
        show, options = show_command(run_id, runs_folder)
        signals = SignalWatch(plan.spec, show, store.redactor.text, options=options)
        budget = open_budget(plan, is_played=played is not None)
        sink = RunSink(plan.spec, signals, budget)
        traffic = Traffic(store.redactor.text, folder / RECORDING if record else None, played, budget.meter)
        engine = _open(plan, folder, sink, traffic, place)
        unwise = [Notice("warning", str(warning), {"path": warning.path}) for warning in warnings]
        sink.opening = [*notices, *unwise, certificate_notice(plan.spec, engine.chat, runs_folder)]
        if origin is not None:
            sink.opening.insert(0, _start_from(origin, plan, engine, folder))
        record_of_run = _record(plan, run_id, folder, engine, command, cwd or Path.cwd(), store)
        if parent is not None:
            record_of_run = replace(
                record_of_run, parent_id=parent.run_id, parent_kind=parent.kind, parent_step=parent.step
            )
        places = Places.of(record_of_run, store)
        start_run(store, record_of_run, code_patch(), source_texts(record_of_run.files, places))
        if replay is not None:
            keep_replay(folder, replay)
        info = _info(plan, run_id, folder, engine, resumed=False)
        return _to_the_end(store, plan, engine, sink, info, view)


def _start_from(origin: Origin, plan: Plan, engine: EngineRun, folder: Path) -> CheckpointSaved:
    """Puts an engine where a checkpoint of another run left it; the run has that as its own first checkpoint."""
    try:
        copy, sha256 = engine_of(plan.spec).copy_checkpoint(origin.checkpoint, folder)
        engine.go_back(Start(origin.step, copy), 0)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return CheckpointSaved(origin.step, str(copy), sha256, (origin.step,))


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
    with open_lineage(runs_folder) as store:
        reader = Reader(store)
        stored = reader.get_run(name)
        record = stored.record
        if stored.status is RunStatus.FINISHED:
            raise RlfError(f"run {record.id}: finished already, at step {stored.last_step}; nothing is left to resume.")
        if not take_over:
            refuse_running(store, record.id)
        places = Places.of(record, store)
        take_environment(record, places)
        plan = _with_its_secrets(restore_plan(record.plan, places))
        store.hide(environment(plan), declared(plan))
        start_at = choose_start(reader, record, from_step)
        at_step = stored.last_step if engine_of(plan.spec).HAS_NEWER_STATE else start_at.step
        changes = find_changes(reader, record, plan, places, at_step=at_step)
        if any(change.used for change in changes) and not accept_changes:
            raise InputsChanged(record.id, changes, start_at.step)
        folder = run_folder(runs_folder, record.id)
        recording = folder / RECORDING
        show, options = show_command(record.id, runs_folder)
        had_signal = signal_so_far(reader, record.id)
        signals = SignalWatch(plan.spec, show, store.redactor.text, options=options, had_signal=had_signal)
        costs = reader.costs(record.id)
        played = kept_replay(folder, runs_folder)
        budget = open_budget(plan, sum(cost.cost_usd for cost in costs), max_usd, is_played=played is not None)
        sink = RunSink(plan.spec, signals, budget)
        record_to = recording if recording.is_file() else None
        engine = _open(plan, folder, sink, Traffic(store.redactor.text, record_to, played, budget.meter))
        engine.go_back(start_at, stored.last_step)
        begin_resume(store, record.id, engine.step, take_over=take_over)
        accept(store, record, changes, places, step=engine.step)
        info = replace(_info(plan, record.id, folder, engine, resumed=True), costs_usd=_costs_usd(costs))
        text = f"resumed after step {engine.step}: {shlex.join(command)}"
        certificate = certificate_notice(plan.spec, engine.chat, runs_folder)
        skipped = [Notice("warning", f"damaged checkpoint skipped: {line}", {}) for line in start_at.skipped]
        sink.opening = [Notice("info", text, {"step": engine.step}), *skipped]
        sink.opening += [*change_notices(changes, engine.step), certificate]
        return _to_the_end(store, plan, engine, sink, info, view)


def _costs_usd(costs: Sequence[Cost]) -> dict[str, float]:
    """What was spent, by name."""
    sums: dict[str, float] = {}
    for cost in costs:
        sums[cost.name] = sums.get(cost.name, 0.0) + cost.cost_usd
    return {name: cost_usd for name, cost_usd in sums.items() if cost_usd}


def _with_its_secrets(plan: Plan) -> Plan:
    """A restored plan that can be run. Raises RlfError where it was written with secrets, which nothing stores."""
    if REDACTED in json.dumps(declared(plan)):
        raise RlfError(
            "a tool or reward of the run has a secret in its file, which is not stored. Write "
            "`${oc.env:NAME}` there in its place, and start a new run."
        )
    return plan


def environment(plan: Plan) -> set[str]:
    """The variables that tools and rewards are filled in with: credentials and addresses."""
    return mentioned(item.text for item in plan.interpolated)


def declared(plan: Plan) -> list[Any]:
    """The tools and rewards as JSON values, filled in: what their headers and addresses hold is secret."""
    return [item.model_dump(mode="json") for item in (*plan.spec.tools, *plan.spec.rewards)]


def _to_the_end(store: Store, plan: Plan, engine: EngineRun, sink: RunSink, info: RunInfo, view: View) -> RunOutcome:
    """Runs an engine to its end, telling of it as the spec's `report_to` and `lineage` say."""
    tracked = Tracked(info.run_id, info.name, info.folder, info.first_step, json.loads(plan_to_json(plan))["spec"])
    outcome = _drive(store, engine, sink, info, view, Tracking(plan.spec.report_to, tracked, store.redactor))
    if plan.spec.lineage.keep is not None and outcome.status is RunStatus.FINISHED:
        thin(store, info.run_id, parse_keep(plan.spec.lineage.keep))
    return outcome


def _drive(store: Store, engine: EngineRun, sink: RunSink, info: RunInfo, view: View, tracking: Tracking) -> RunOutcome:
    """Runs an engine to its end, whatever that is, and writes the end down."""
    budget = sink.budget
    with Recorder(store, info.run_id, budget.unrecorded, is_played=budget.is_played) as recorder, tracking:
        sink.recorder, sink.tracking = recorder, tracking
        try:
            sink.shown = view(info)
            for event in sink.opening:
                sink(event)
            asyncio.run(_run_owned(store, engine, sink, info.run_id))
        except KeyboardInterrupt:
            verdict = _report_verdict(store, sink, info)
            sink(sink.end(RunStatus.INTERRUPTED, engine.step, stops.reason()))
            return RunOutcome(info.run_id, RunStatus.INTERRUPTED, engine.step, verdict)
        except BudgetSpent as spent:
            verdict = _report_verdict(store, sink, info)
            words = str(spent).replace("RUN", info.run_id, 1)
            sink(sink.end(RunStatus.INTERRUPTED, engine.step, words))
            return RunOutcome(info.run_id, RunStatus.INTERRUPTED, engine.step, verdict, words)
        except BrokenPipeError:  # nobody reads what the view prints any more
            recorder(sink.end(RunStatus.INTERRUPTED, engine.step, "nothing reads its output any more"))
            raise
        except LeaseLost:
            raise
        except HealthStop as stop:
            verdict = _report_verdict(store, sink, info)
            recorder(sink.end(RunStatus.FAILED, stop.alarms[0].step, str(stop)))
            recorder.flush()
            since = [alarm.since for alarm in stop.alarms if alarm.action is Action.ROLLBACK]
            if since:
                drop_checkpoints(store, info.run_id, info.folder, from_step=min(since))
            raise HealthStop(stop.alarms, verdict) from stop
        except BaseException as error:
            recorder(sink.end(RunStatus.FAILED, engine.step, str(error) or type(error).__name__))
            raise
        verdict = _report_verdict(store, sink, info)
        sink(sink.end(RunStatus.FINISHED, engine.step))
        return RunOutcome(info.run_id, RunStatus.FINISHED, engine.step, verdict)


def _report_verdict(store: Store, sink: RunSink, info: RunInfo) -> Verdict:
    """Judges the run by what is recorded of it, and records that too."""
    sink.flush()
    verdict = read_verdict(Reader(store), info.run_id)
    level = "warning" if verdict.kind in (VerdictKind.NO_SIGNAL, VerdictKind.WORSE) else "info"
    sink(Notice(level, verdict.line, {"verdict": verdict.kind, "reason": verdict.reason}))
    return verdict


async def _run_owned(store: Store, engine: EngineRun, sink: RunSink, run_id: str) -> None:
    """Runs an engine while this process owns the run and its budget lasts. Raises LeaseLost, BudgetSpent soon after."""
    task, loop, recorder = asyncio.current_task(), asyncio.get_running_loop(), sink.recorder
    assert task is not None and recorder is not None, "a run outside of a task, or not registered"
    lost: list[LeaseLost] = []
    spent: list[BudgetSpent] = []

    def stop_spending() -> None:
        spent.append(sink.budget.spent())
        loop.call_soon_threadsafe(task.cancel)

    def lose(error: LeaseLost) -> None:
        recorder.fail(error)
        lost.append(error)
        if error.is_taken_over:
            engine.leave_job()
        loop.call_soon_threadsafe(task.cancel)

    noting = loop.create_task(_note_spending(recorder))
    try:
        with Heartbeat(store, run_id, lose), sink.budget.watched(stop_spending):
            await engine.run()
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


def _open(plan: Plan, folder: Path, sink: RunSink, traffic: Traffic, place: object | None = None) -> EngineRun:
    engine = engine_of(plan.spec)
    if (traffic.record is not None or traffic.replay is not None) and Feature.RECORDED_CALLS in engine.LACKS:
        mend = name_engines(Feature.RECORDED_CALLS, "; use ")
        raise RlfError(f"--record and --replay: {engine.LACKS[Feature.RECORDED_CALLS]}{mend}.")
    inputs = load_inputs(plan)
    return engine.open(plan, inputs, folder, emit=sink, flush=sink.flush, traffic=traffic, place=place)


def _record(
    plan: Plan, run_id: str, folder: Path, engine: EngineRun, command: Sequence[str], cwd: Path, store: Store
) -> RunRecord:
    return RunRecord(
        id=run_id,
        name=plan.spec.name,
        engine=plan.spec.engine.kind,
        seed=plan.spec.seed,
        plan=json.loads(plan_to_json(plan)),
        plan_hash=plan.plan_hash,
        code_version=code_version(),
        host=host(device=engine.place, threads=engine.threads),
        packages=packages(),
        command=shlex.join(command),
        folder=str(folder.resolve()),
        home=None if store.base is None else str(store.base),
        cwd=str(cwd),
        files=(
            *(FileRecord(file.role, file.path, file.sha256) for file in plan.files),
            *builtin_files(plan),
            *model_files(plan),
            *source_files(plan, cwd),
        ),
    )


def _info(plan: Plan, run_id: str, folder: Path, engine: EngineRun, *, resumed: bool) -> RunInfo:
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
        resumed=resumed,
        specs=tuple(str(file.path) for file in plan.files if file.role == "spec"),
    )
