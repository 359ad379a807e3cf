"""Continuing runs that were stopped: what was recorded is checked and restored, then driven as a run that starts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlf.algo.health import Action
from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.core.redact import REDACTED
from rlf.engines.engine import engine_of
from rlf.lineage.calls import read_costs
from rlf.lineage.reader import Reader
from rlf.lineage.records import Cost
from rlf.lineage.upkeep import begin_resume, refuse_running, training_scores
from rlf.plan import Plan
from rlf.reports.verdict import compares_groups
from rlf.rollout.signal import Signal, step_signal
from rlf.runs.changes import accept, change_notices, find_changes, refuse_changes
from rlf.runs.opening import certificate_notice
from rlf.runs.place import RECORDING, Places, open_lineage
from rlf.runs.plans import PlacedPlan
from rlf.runs.provenance import ReadFiles, declared, hide_secrets
from rlf.runs.restore import choose_start, kept_replay, restore_plan
from rlf.runs.sink import RunOutcome, RunSink, SignalWatch, View, open_budget
from rlf.runs.start import drive, open_engine, run_info
from rlf.types.events import Notice, RunStatus


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
        had_signal = _had_signal(reader, record.id)
        signals = SignalWatch(plan.spec, record.id, runs_folder, store.redactor.text, had_signal=had_signal)
        costs, played = _costs_usd(read_costs(reader, record.id)), kept_replay(folder, runs_folder)
        budget = open_budget(plan, sum(costs.values()), max_usd, is_played=played is not None)
        sink = RunSink(plan.spec, signals, budget)
        if sink.hidden and plan.spec.health.hidden and plan.spec.health.hidden.action is Action.STOP:
            # Who resumes a run that a gap has stopped knows of the gap; `begin_resume` may delete the alarm.
            sink.hidden.raised |= {event.data["guard"] for event in reader.events(record.id) if "guard" in event.data}
        recording = folder / RECORDING
        engine = open_engine(PlacedPlan(plan), folder, sink, store, recording if recording.is_file() else None, played)
        # The engine first: killed behind it, the lineage still names later steps, and the next resume does the same
        # again. The other way round, the engine's files would be ahead of a lineage that has forgotten their steps.
        engine.go_back(start_at, stored.last_step)
        # By the engine's own step: one that has newer state than its checkpoints continues from that.
        begin_resume(store, record.id, engine.step, take_over=take_over)
        if sink.hidden:
            with store.read() as connection:
                sink.hidden.replay(training_scores(connection, record.id, sink.hidden.terms))
        # Behind it, for a change belongs to the step that the run continues from, and later ones were just deleted.
        accept(store, record, changes, places, step=engine.step)
        sink.files = ReadFiles(record, places, runs_folder)
        info = replace(run_info(plan, record.id, folder, engine), resumed=True, costs_usd=costs)
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


def _had_signal(reader: Reader, run_id: str) -> bool:
    """Whether any step of a run held something to learn from."""
    by_group = compares_groups(reader.get_run(run_id).record.plan.get("spec", {}))
    return any(step_signal(step.metrics, by_group=by_group) is Signal.SOME for step in reader.steps(run_id))
