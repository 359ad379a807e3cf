"""`rlf eval`: targets tried on the same questions, each an evaluation of its own in the lineage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rlf.apps.evaluate.play import EvaluationProgress, Loaded, Spool, SpoolEntry, load, play_modes
from rlf.apps.evaluate.prepare import EvaluationOptions, PlannedEvaluation, prepare
from rlf.core import process as stops
from rlf.core.errors import OutageError, RlfError
from rlf.core.files import run_folder
from rlf.core.identity import new_run_id
from rlf.endpoints.spec import EndpointSpec
from rlf.lineage.calls import read_costs
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import EVALUATION, FileRecord, ParentKind, Run, RunRecord
from rlf.lineage.run import start_run
from rlf.lineage.store import Store
from rlf.lineage.upkeep import begin_resume
from rlf.plan import plan_to_json
from rlf.runs.place import Places, check_runs_folder, open_lineage, source_texts
from rlf.runs.players import EVALUATION_SECTION
from rlf.runs.provenance import ReadFiles, code_patch, hide_secrets, made_here, recorded_files
from rlf.runs.sink import BudgetSpent, open_budget
from rlf.runs.start import recording_failure, run_owned
from rlf.runs.targets import NO_TARGET
from rlf.training.counting import find_cause
from rlf.training.harness import Traffic
from rlf.types import EvaluationFinished, RunEvent, RunFinished, RunStatus

_SPOOL = "played.jsonl"


@dataclass(frozen=True, slots=True)
class EvaluationStart:
    """An evaluation that begins, or continues."""

    run_id: str
    target: str
    name: str
    """Of the spec."""
    num_questions: int
    resumed: bool
    plan_hash: str


Shown = EvaluationStart | EvaluationProgress | RunEvent
Show = Callable[[Shown], None]
"""Takes what happens, in order."""


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """Evaluations that were made, one per target."""

    run_ids: tuple[str, ...]
    status: RunStatus
    """`finished`, or how the last that did not finish ended."""
    original_by_id: Mapping[str, str]
    """Of those that repeat an evaluation: the run that it is of."""
    reason: str | None = None
    """Why it ended early."""


def try_targets(
    names: Sequence[str],
    asked: EvaluationOptions,
    *,
    endpoint: EndpointSpec | None = None,
    runs_folder: Path,
    command: Sequence[str],
    show: Show,
    again: bool = True,
) -> EvaluationResults:
    """Tries targets on the same questions, one after the other. All are checked before the first is tried.

    An evaluation of the same that was stopped is continued.

    Args:
        names: runs, steps of runs, folders, ids, or evaluations to be repeated.
        endpoint: a further target: a model behind a server.
        again: whether one of the same that is over is played again; else what it has is kept, and where it may cost
            more now, what is missing is played; so is what a model behind a server left without a value.

    Raises:
        RlfError: a target is no model, or nothing says what it is tried on.
        SpecError: the spec is wrong.
    """
    if not names and endpoint is None:
        raise RlfError(NO_TARGET)
    check_runs_folder(runs_folder)
    with ExitStack() as stack:
        prepared = [stack.enter_context(prepare(name, asked, runs_folder=runs_folder)) for name in names]
        if endpoint is not None:
            prepared.append(stack.enter_context(prepare(None, asked, runs_folder=runs_folder, endpoint=endpoint)))
        url = prepared[0].plan.spec.lineage.url
        store = stack.enter_context(open_lineage(runs_folder, create=True, url=url))
        hide_secrets(store, [item.plan for item in prepared])
        run_ids, originals, ends = list[str](), dict[str, str](), list[RunFinished]()
        for item in prepared:
            run_id, end = _evaluate_one(store, item, runs_folder, command, show, again=again)
            run_ids.append(run_id)
            if item.repeats is not None and item.repeats.record.id != run_id:
                originals[run_id] = item.repeats.record.id
            ends.append(end)
            if ends[-1].status is RunStatus.INTERRUPTED:
                break
    worst = next((end for end in reversed(ends) if end.status is not RunStatus.FINISHED), ends[-1])
    return EvaluationResults(tuple(run_ids), worst.status, originals, worst.error)


def _evaluate_one(
    store: Store, prepared: PlannedEvaluation, runs_folder: Path, command: Sequence[str], show: Show, *, again: bool
) -> tuple[str, RunFinished]:
    """The id of an evaluation, and how it ended. Its model is gone from memory then."""
    reader = Reader(store)
    same = [] if again else _list_same(reader, prepared)
    before = next((run for run in same if run.status is RunStatus.FINISHED), None)
    kept, is_whole = ([], True) if before is None else _read_over(reader, before)
    is_whole = is_whole or prepared.target.endpoint is None
    if before is not None and is_whole and not _may_cost_more(prepared, before):
        return before.record.id, RunFinished(RunStatus.FINISHED, prepared.settings.step)
    loaded = load(prepared)  # before anything is written: it may fail
    run_id, over = _register_evaluation(store, prepared, runs_folder, command, show)
    spool = Spool(run_folder(runs_folder, run_id) / _SPOOL, store.redactor)
    if kept and not spool.path.exists():  # else a kill has left it
        spool.add(kept)
    return run_id, _drive_evaluation(store, run_id, prepared, loaded, over, runs_folder, show)


def _read_over(reader: Reader, before: Run) -> tuple[list[SpoolEntry], bool]:
    """What an evaluation that is over has, and whether none of it broke in a way that may pass."""
    stored = reader.wholes(before.record.id, reader.trajectories(before.record.id))
    played = [one.scored for one in stored if one is not None]
    kept = [SpoolEntry(one, {}) for one in played if (cause := find_cause(one)) is None or not cause.may_pass]
    missing = {one.trajectory.id for one in played} - {one.scored.trajectory.id for one in kept}
    return kept, not missing


def _may_cost_more(prepared: PlannedEvaluation, before: Run) -> bool:
    """Whether what ended an evaluation of the same, with a part of its trajectories, would not end it there now."""
    then = before.record.plan["spec"]["limits"]["max_usd_per_evaluation"]
    now = prepared.plan.spec.limits.max_usd_per_evaluation
    return then is not None and (now is None or now > then)


def _register_evaluation(
    store: Store, prepared: PlannedEvaluation, runs_folder: Path, command: Sequence[str], show: Show
) -> tuple[str, list[str]]:
    """The evaluation in the lineage, new or continued, with the modes of it that are over."""
    stopped = _find_stopped(store, prepared)
    if stopped is None:
        run_id, over = new_run_id(), list[str]()
        made = _make_record(prepared, run_id, runs_folder, store, command)
        start_run(store, made, code_patch(), source_texts(made.files, Places.of(made, store)))
    else:
        run_id = stopped
        over = [item.mode for item in Reader(store).evaluations(run_id)]
        begin_resume(store, run_id, prepared.settings.step)
    spec = prepared.plan.spec
    num = len(prepared.tasks)
    show(EvaluationStart(run_id, prepared.target.name, spec.name, num, stopped is not None, prepared.identity))
    return run_id, over


def _list_same(reader: Reader, prepared: PlannedEvaluation) -> list[Run]:
    """The evaluations of the same, the newest first."""
    runs = (run for run in reader.list_runs() if run.record.engine == EVALUATION)
    return [run for run in runs if run.record.plan_hash == prepared.identity]


def _find_stopped(store: Store, prepared: PlannedEvaluation) -> str | None:
    """The newest evaluation of the same, where it was stopped before its end and no process plays it."""
    run = next(iter(_list_same(Reader(store), prepared)), None)
    if run is None or run.status in (RunStatus.FINISHED, RunStatus.RUNNING):
        return None
    is_over = any(is_unscored(item.metrics) for item in Reader(store).evaluations(run.record.id))
    return None if is_over else run.record.id


def is_unscored(metrics: Mapping[str, float]) -> bool:
    """Whether every trajectory of a mode broke, so that it says nothing of the model."""
    return not metrics.get("num_questions")


@contextmanager
def _noting_outage() -> Iterator[list[str]]:
    """Ends the block where an outage stops the evaluation; gives the reason, in a list that is empty without one."""
    reasons = list[str]()
    try:
        yield reasons
    except OutageError as stop:
        reasons.append(str(stop))


def _make_record(
    prepared: PlannedEvaluation, run_id: str, runs_folder: Path, store: Store, command: Sequence[str]
) -> RunRecord:
    plan, target, cwd = prepared.plan, prepared.target, Path.cwd()
    files = [file for file in recorded_files(plan, cwd) if file.role != "model"]
    if target.sha256 is not None:
        files.append(FileRecord("model", "model", target.sha256))
    parent, device = target.record, "endpoint"
    if target.endpoint is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return RunRecord(
        name=plan.spec.name,
        engine=EVALUATION,
        seed=plan.spec.seed,
        plan={**json.loads(plan_to_json(plan)), EVALUATION_SECTION: asdict(prepared.settings)},
        plan_hash=prepared.identity,
        parent_id=None if parent is None else parent.id,
        parent_kind=None if parent is None else ParentKind.EVALUATION,
        parent_step=target.step,
        **made_here(run_id, run_folder(runs_folder, run_id), store, command, cwd, [plan], device=device),
        files=tuple(files),
    )


def _drive_evaluation(
    store: Store,
    run_id: str,
    prepared: PlannedEvaluation,
    loaded: Loaded | None,
    over: Sequence[str],
    runs_folder: Path,
    show: Show,
) -> RunFinished:
    """Plays an evaluation to its end, whatever that is, and writes the end down."""
    step = prepared.settings.step
    spent_usd = sum(cost.cost_usd for cost in read_costs(Reader(store), run_id))
    budget = open_budget(prepared.plan, spent_usd)
    spool = Spool(run_folder(runs_folder, run_id) / _SPOOL, store.redactor)
    unscored: list[str] = []
    record = Reader(store).get_run(run_id).record
    files = ReadFiles(record, Places.of(record, store), runs_folder)
    with Recorder(store, run_id, budget.unrecorded) as recorder:

        def emit(event: RunEvent) -> None:
            budget.note(event)
            if isinstance(event, EvaluationFinished | RunFinished):
                for notice in files.record_into(recorder):
                    emit(notice)
            recorder(event)
            show(event)
            if isinstance(event, EvaluationFinished) and is_unscored(event.metrics):
                tried = f"{prepared.target.name}, {event.mode}"
                unscored.append(f"{tried}: none of {len(event.trajectories)} trajectories could be scored")

        for notice in prepared.notices:
            emit(notice)
        traffic = Traffic(redact=store.redactor.text, meter=budget.meter)
        work = partial(play_modes, prepared, loaded, over=over, spool=spool, traffic=traffic, emit=emit, show=show)
        try:
            with recording_failure(recorder, lambda: step), _noting_outage() as outages:
                asyncio.run(run_owned(store, run_id, budget, recorder, work, None, run_folder(runs_folder, run_id)))
            why = "; ".join([*unscored, *outages])
            ended = RunFinished(RunStatus.FAILED if why else RunStatus.FINISHED, step, why or None)
        except KeyboardInterrupt:
            ended = RunFinished(RunStatus.INTERRUPTED, step, stops.reason())
        except BudgetSpent as stop:
            spent = str(stop).partition(". ")[0]
            ended = RunFinished(RunStatus.INTERRUPTED, step, f"{spent}. Set a larger `limits.max_usd=N` to continue")
        emit(ended)
    if ended.status is RunStatus.FINISHED or (unscored and not outages):
        spool.remove()
    return ended
