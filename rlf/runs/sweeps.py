"""Sweeps: many runs of one spec, each with overrides of its own, one after the other, under one run of the lineage.

Every member is checked before the first starts. A member that fails does not stop the others; Ctrl-C stops them all.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.core.identity import hash_json, new_run_id
from rlf.core.text import describe
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import SWEEP, FileRecord, ParentKind, RunRecord
from rlf.lineage.run import Heartbeat, begin_resume, start_run
from rlf.lineage.store import Store
from rlf.plan import Plan, plan_to_json
from rlf.runs.changes import accept, as_they_are, find_changes, refuse_changes
from rlf.runs.place import check_runs_folder, open_lineage, open_reader
from rlf.runs.plans import PlacedPlan, check_members
from rlf.runs.provenance import code_patch, hide_secrets, made_here
from rlf.runs.restore import Places, restore_plan, source_texts
from rlf.runs.sink import RunOutcome, View
from rlf.runs.start import Parent, resume, start
from rlf.spec.overrides import Overrides
from rlf.types.events import RunFinished, RunStatus

logger = logging.getLogger(__name__)

_GRAVEST_FIRST = (RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.FINISHED)


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a sweep, before it runs."""

    number: int
    """Counts from 1."""
    total: int
    overrides: Overrides
    """What it has of its own."""


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """How one run of a sweep ended."""

    overrides: Overrides
    run_id: str | None
    """None where it failed before it was registered."""
    status: RunStatus
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """How a sweep ended."""

    run_id: str
    """The sweep's own."""
    status: RunStatus
    """FAILED when a member failed."""
    num_members: int
    members: tuple[MemberOutcome, ...]
    """Those that were tried or had finished before, in order."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """The view of a sweep."""

    view: View
    """Called for each member, as for a run."""
    begin: Callable[[Member], None]
    """Called before a member starts."""
    end: Callable[[Member, MemberOutcome], None]
    """Called after it ended."""


def run_sweep(
    files: Sequence[Path],
    overrides: Sequence[str],
    members: Sequence[Overrides],
    *,
    runs_folder: Path,
    watcher: Watcher,
    command: Sequence[str],
) -> SweepOutcome:
    """Checks every member of a sweep and runs them.

    Args:
        overrides: what all members share.
        members: what each one has of its own.

    Raises:
        SpecError: a member's input is wrong; nothing was started.
    """
    check_runs_folder(runs_folder)
    placed = [found.fit_here() for _, found in check_members(files, overrides, members)]
    plans = [found.plan for found in placed]
    base = ["rlf", "run", *map(str, files), *overrides]
    with open_lineage(runs_folder, create=True, url=plans[0].spec.lineage.url) as store:
        hide_secrets(store, plans)
        record = _make_record(plans, members, base, runs_folder, command, store)
        start_run(store, record, code_patch(), source_texts(record.files, Places.of(record, store)))

        def work(member: Member) -> RunOutcome:
            return start(
                placed[member.number - 1],
                runs_folder=runs_folder,
                view=watcher.view,
                command=[*base, *member.overrides],
                parent=Parent(record.id, ParentKind.SWEEP),
            )

        return _drive_sweep(store, record.id, members, work, watcher, {})


def resume_sweep(
    name: str,
    *,
    runs_folder: Path,
    watcher: Watcher,
    command: Sequence[str],
    accept_changes: bool = False,
    take_over: bool = False,
) -> SweepOutcome:
    """Runs what is unfinished of a sweep: continues members that stopped, starts those that never did.

    Args:
        accept_changes: whether it continues where its inputs are not what it was made from.
        take_over: whether it and its members are also taken from a process that seems to run them still.

    Raises:
        InputsChanged: inputs changed, and that was not accepted.
        RlfError: there is no such sweep, it still runs, or it is finished.
    """
    with open_lineage(runs_folder) as store:
        reader = Reader(store)
        stored = reader.get_run(name)
        sweep_id = stored.record.id
        if stored.status is RunStatus.FINISHED:
            raise RlfError(f"sweep {sweep_id}: finished already; nothing is left to resume.")
        planned: list[dict[str, Any]] = stored.record.plan["members"]
        own = [run for run in reversed(reader.list_runs()) if run.record.parent_id == sweep_id]
        run_by_hash = {run.record.plan_hash: run for run in own if run.record.parent_kind is ParentKind.SWEEP}
        places = Places.of(stored.record, store)
        changes = find_changes(reader, stored.record, None, places, at_step=stored.last_step)
        refuse_changes(sweep_id, changes, 0, accepts=accept_changes)
        begin_resume(store, sweep_id, 0, take_over=take_over)
        accept(store, stored.record, changes, places, step=0)
        members = [tuple(item["overrides"]) for item in planned]

        def work(member: Member) -> RunOutcome:
            item = planned[member.number - 1]
            begun = run_by_hash.get(item["plan_hash"])
            if begun is not None:
                return resume(
                    begun.record.id,
                    runs_folder=runs_folder,
                    view=watcher.view,
                    command=command,
                    accept_changes=accept_changes,
                    take_over=take_over,
                )
            return start(
                PlacedPlan(as_they_are(restore_plan(stored.record, places, item["plan"]), places)),
                runs_folder=runs_folder,
                view=watcher.view,
                command=shlex.split(item["command"]),
                parent=Parent(sweep_id, ParentKind.SWEEP),
                cwd=places.cwd,
            )

        done = {
            number: MemberOutcome(members[number - 1], begun.record.id, RunStatus.FINISHED)
            for number, item in enumerate(planned, start=1)
            if (begun := run_by_hash.get(item["plan_hash"])) is not None and begun.status is RunStatus.FINISHED
        }
        return _drive_sweep(store, sweep_id, members, work, watcher, done)


def is_sweep(name: str, runs_folder: Path) -> bool:
    """Whether a run is a sweep; false where there is none of that name, which a resume reports."""
    try:
        with open_reader(runs_folder) as reader:
            return reader.get_run(name).record.engine == SWEEP
    except RlfError:
        return False


def _drive_sweep(
    store: Store,
    sweep_id: str,
    members: Sequence[Overrides],
    work: Callable[[Member], RunOutcome],
    watcher: Watcher,
    done: dict[int, MemberOutcome],
) -> SweepOutcome:
    """Runs the members that are not done, and writes down how the sweep ended."""
    outcomes: list[MemberOutcome] = []
    status = RunStatus.INTERRUPTED
    lost: list[LeaseLost] = []
    try:
        with Heartbeat(store, sweep_id, lost.append):
            for number, own in enumerate(members, start=1):
                if lost:
                    raise lost[0]
                outcomes.append(done.get(number) or _run_member(Member(number, len(members), own), work, watcher))
                if not _is_over(outcomes[-1]):
                    break
            else:
                ends = {outcome.status for outcome in outcomes}
                status = next(end for end in _GRAVEST_FIRST if end in ends)
    except KeyboardInterrupt:
        logger.info("sweep %s: interrupted between the steps of two runs", sweep_id)
    finally:
        finished = sum(outcome.status is RunStatus.FINISHED for outcome in outcomes)
        with Recorder(store, sweep_id) as recorder:
            recorder(RunFinished(status, finished, _explain_end(status, outcomes, len(members), finished)))
    return SweepOutcome(sweep_id, status, len(members), tuple(outcomes))


def _explain_end(
    status: RunStatus, outcomes: Sequence[MemberOutcome], num_members: int, num_finished: int
) -> str | None:
    """Why a sweep ended before all of its runs were finished."""
    if status is RunStatus.FINISHED:
        return None
    if status is RunStatus.FAILED:
        failed = sum(outcome.status is RunStatus.FAILED for outcome in outcomes)
        return f"{failed} of {num_members} runs failed"
    is_through = len(outcomes) == num_members and all(map(_is_over, outcomes))
    return (
        f"limits.max_usd is spent in {num_members - num_finished} of {num_members} runs"
        if is_through
        else stops.reason()
    )


def _is_over(outcome: MemberOutcome) -> bool:
    """Whether the next member's turn comes: a budget is a run's own, and stops no other."""
    return outcome.status is not RunStatus.INTERRUPTED or outcome.error is not None


def _run_member(member: Member, work: Callable[[Member], RunOutcome], watcher: Watcher) -> MemberOutcome:
    """Runs one member; its failure is reported and ends no other."""
    watcher.begin(member)
    try:
        ended = work(member)
        outcome = MemberOutcome(member.overrides, ended.run_id, ended.status, ended.spent)
    except BrokenPipeError:  # nobody reads what the views print any more
        raise
    except RlfError as error:
        outcome = MemberOutcome(member.overrides, None, RunStatus.FAILED, str(error))
    except Exception as error:
        logger.exception("member %d of the sweep: a defect of rlf or of the user's code", member.number)
        outcome = MemberOutcome(member.overrides, None, RunStatus.FAILED, describe(error))
    watcher.end(member, outcome)
    return outcome


def _make_record(
    plans: Sequence[Plan],
    members: Sequence[Overrides],
    base: Sequence[str],
    runs_folder: Path,
    command: Sequence[str],
    store: Store,
) -> RunRecord:
    """The sweep as a run: its plan holds the members' plans, so that it can continue without their specs."""
    planned = [
        {
            "overrides": list(own),
            "command": shlex.join([*base, *own]),
            "plan_hash": plan.plan_hash,
            "plan": json.loads(plan_to_json(plan)),
        }
        for own, plan in zip(members, plans, strict=True)
    ]
    run_id = new_run_id()
    return RunRecord(
        name=f"{plans[0].spec.name}-sweep",
        engine=SWEEP,
        seed=plans[0].spec.seed,
        plan={"members": planned},
        plan_hash=hash_json([plan.plan_hash for plan in plans]),
        files=_file_records(plans),
        **made_here(run_id, runs_folder / run_id, store, command, Path.cwd(), plans),
    )


def _file_records(plans: Sequence[Plan]) -> tuple[FileRecord, ...]:
    """The files that any member was made from."""
    records = [FileRecord(file.role, file.path, file.sha256) for plan in plans for file in plan.files]
    return tuple({(record.role, record.path): record for record in records}.values())
