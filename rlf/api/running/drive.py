"""A registered run, driven to its end: recorded, shown and tracked, while this process owns it and its budget lasts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.algo.health import Action
from rlf.api.running.budgets import Budget, BudgetSpent
from rlf.api.running.checkpoints import drop_checkpoints
from rlf.api.running.now import NowWriter
from rlf.api.running.sink import HealthStop, RunSink
from rlf.api.running.tracking import Tracking
from rlf.core import process as stops
from rlf.core.text import text_of
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import Heartbeat
from rlf.lineage.store import Store
from rlf.lineage.upkeep import parse_keep, thin
from rlf.plan import Plan, plan_to_json
from rlf.reports.summary import Verdict, VerdictKind, read_verdict
from rlf.trackers import Tracked
from rlf.types.events import EventSink, Notice, RunFinished, RunStatus

if TYPE_CHECKING:
    from rlf.engines.engine import EngineRun

_SPENDING_S = 1.0
"""Between two looks at what was spent."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts of a run before its first event."""

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


View = Callable[[RunInfo], EventSink]
"""Called once, when the run is checked and registered; what it returns sees every event."""


def drive(store: Store, plan: Plan, engine: EngineRun, sink: RunSink, info: RunInfo, view: View) -> RunOutcome:
    """Runs an engine to its end, however it ends, and records the end.

    Raises:
        HealthStop: a guard of the spec's `health` ended it.
        LeaseLost: another process owns the run now.
        BaseException: whatever the engine raised, once it is recorded.
    """
    spec, budget, error, spent = plan.spec, sink.budget, None, None
    tracked = Tracked(info.run_id, info.name, info.folder, info.first_step, json.loads(plan_to_json(plan))["spec"])
    tracking = Tracking(spec.report_to, tracked, store.redactor)
    with Recorder(store, info.run_id, budget.unrecorded, is_played=budget.is_played) as recorder, tracking:
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
            verdict = _report_verdict(store, sink, info)
            recorder(RunFinished(RunStatus.FAILED, stop.alarms[0].step, str(stop)))
            recorder.flush()
            since = [alarm.since for alarm in stop.alarms if alarm.action is Action.ROLLBACK]
            if since:
                drop_checkpoints(store, info.run_id, info.folder, from_step=min(since))
            raise HealthStop(stop.alarms, verdict) from stop
        verdict = _report_verdict(store, sink, info)
        sink(RunFinished(status, engine.step, error))
    if spec.lineage.keep is not None and status is RunStatus.FINISHED:
        thin(store, info.run_id, parse_keep(spec.lineage.keep))
    return RunOutcome(info.run_id, status, engine.step, verdict, spent)


@contextmanager
def recording_failure(recorder: Recorder, step: Callable[[], int]) -> Iterator[None]:
    """Records how a run ended that the block ends by an error of its own, which is raised again."""
    try:
        yield
    except (KeyboardInterrupt, BudgetSpent, HealthStop, LeaseLost):  # the caller's to record, or another process's
        raise
    except BrokenPipeError:  # nobody reads what is printed any more
        recorder(RunFinished(RunStatus.INTERRUPTED, step(), "its output pipe was closed"))
        raise
    except BaseException as failure:
        recorder(RunFinished(RunStatus.FAILED, step(), text_of(failure)))
        raise


def _report_verdict(store: Store, sink: RunSink, info: RunInfo) -> Verdict:
    """Judges the run by what is recorded of it, and records that too."""
    sink.flush()
    verdict = read_verdict(Reader(store), info.run_id)
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
