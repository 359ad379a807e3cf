"""Sweeps: many runs of one spec, each with overrides of its own, under one run of the lineage.

Every member is checked before the first starts. A member that fails does not stop the others; Ctrl-C stops them all.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlf.apps.sweep.axes import INTERRUPTED, check_members, find_gpus, refuse_too_many, run_members
from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.core.identity import hash_json, new_run_id
from rlf.core.text import describe
from rlf.lineage.lease import LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import SWEEP, FileRecord, ParentKind, Run, RunRecord
from rlf.lineage.run import Heartbeat, start_run
from rlf.lineage.store import Store
from rlf.lineage.upkeep import begin_resume
from rlf.plan import Plan, plan_to_json
from rlf.processes.child import describe_exit
from rlf.processes.forking import die_with
from rlf.runs.changes import accept, as_they_are, find_changes, refuse_changes
from rlf.runs.place import Places, check_runs_folder, open_lineage, source_texts
from rlf.runs.plans import PlacedPlan
from rlf.runs.provenance import code_patch, hide_secrets, made_here
from rlf.runs.restore import restore_plan
from rlf.runs.resume import resume
from rlf.runs.sink import RunOutcome, View
from rlf.runs.start import Parent, start
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
    at_once: int = 1,
) -> SweepOutcome:
    """Checks every member of a sweep and runs them.

    Args:
        overrides: what all members share.
        members: what each one has of its own.
        at_once: how many run side by side; more than one in processes of their own, whose events no view sees.

    Raises:
        SpecError: a member's input is wrong; nothing was started.
    """
    check_runs_folder(runs_folder)
    placed = [found.fit_here() for _, found in check_members(files, overrides, members)]
    plans = [found.plan for found in placed]
    refuse_too_many(at_once, plans)
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

        run = partial(_run_members, work, watcher)
        if at_once > 1:
            run = partial(_run_members_apart, Reader(store), record, at_once, find_gpus(plans), watcher)
        return _drive_sweep(store, record.id, members, run, {})


def resume_sweep(
    name: str,
    *,
    runs_folder: Path,
    watcher: Watcher,
    command: Sequence[str],
    accept_changes: bool = False,
    take_over: bool = False,
    at_once: int = 1,
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
        run_by_hash = _runs_by_hash(reader, sweep_id)
        places = Places.of(stored.record, store)
        changes = find_changes(reader, stored.record, None, places, at_step=stored.last_step)
        refuse_changes(sweep_id, changes, 0, accepts=accept_changes)
        plans = [restore_plan(stored.record, places, item["plan"]) for item in planned] if at_once > 1 else []
        refuse_too_many(at_once, plans)
        begin_resume(store, sweep_id, 0, take_over=take_over)
        accept(store, stored.record, changes, places, step=0)
        members = [tuple(item["overrides"]) for item in planned]

        given = {"accept_changes": accept_changes, "take_over": take_over}

        def work(member: Member) -> RunOutcome:
            return run_stored_member(runs_folder, sweep_id, member.number, watcher.view, command, **given)

        done = {
            number: MemberOutcome(members[number - 1], begun.record.id, RunStatus.FINISHED)
            for number, item in enumerate(planned, start=1)
            if (begun := run_by_hash.get(item["plan_hash"])) is not None and begun.status is RunStatus.FINISHED
        }
        run = partial(_run_members, work, watcher)
        if at_once > 1:
            run = partial(_run_members_apart, reader, stored.record, at_once, find_gpus(plans), watcher)
        return _drive_sweep(store, sweep_id, members, run, done)


def run_stored_member(
    runs_folder: Path,
    sweep_id: str,
    number: int,
    view: View = lambda info: lambda event: None,
    command: Sequence[str] = (),
    **given: bool,
) -> RunOutcome:
    """Starts a member as its sweep's record has it, or continues it where it has begun, as `resume` is given."""
    with open_lineage(runs_folder) as store:
        reader = Reader(store)
        sweep = reader.get_run(sweep_id).record
        item, places = sweep.plan["members"][number - 1], Places.of(sweep, store)
        begun = _runs_by_hash(reader, sweep_id).get(item["plan_hash"])
        plan = as_they_are(restore_plan(sweep, places, item["plan"]), places)
    if begun is not None:
        return resume(begun.record.id, runs_folder=runs_folder, view=view, command=command, **given)
    return start(
        PlacedPlan(plan),
        runs_folder=runs_folder,
        view=view,
        command=shlex.split(item["command"]),
        parent=Parent(sweep_id, ParentKind.SWEEP),
        cwd=places.cwd,
    )


def _runs_by_hash(reader: Reader, sweep_id: str) -> dict[str, Run]:
    """The members that have begun, by the hash of their plan."""
    own = [run.record for run in reversed(reader.list_runs()) if run.record.parent_id == sweep_id]
    return {record.plan_hash: reader.get_run(record.id) for record in own if record.parent_kind is ParentKind.SWEEP}


def _drive_sweep(
    store: Store,
    sweep_id: str,
    members: Sequence[Overrides],
    run: Callable[[Sequence[Member]], Iterator[tuple[int, MemberOutcome]]],
    done: Mapping[int, MemberOutcome],
) -> SweepOutcome:
    """Runs the members that are not done, and writes down how the sweep ended."""
    ended = dict(done)
    left = [Member(at, len(members), own) for at, own in enumerate(members, start=1) if at not in done]
    status = RunStatus.INTERRUPTED
    lost: list[LeaseLost] = []
    try:
        with Heartbeat(store, sweep_id, lost.append), closing(run(left)) as running:  # type: ignore[type-var]
            for number, outcome in running:
                ended[number] = outcome
                if lost:
                    raise lost[0]
                if not _is_over(outcome):
                    break
            else:
                ends = {outcome.status for outcome in ended.values()}
                status = next(end for end in _GRAVEST_FIRST if end in ends)
    except KeyboardInterrupt:
        logger.info("sweep %s: interrupted between the steps of two runs", sweep_id)
    finally:
        outcomes = [ended[number] for number in sorted(ended)]
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


def _run_members(
    work: Callable[[Member], RunOutcome], watcher: Watcher, members: Sequence[Member]
) -> Iterator[tuple[int, MemberOutcome]]:
    """Runs members one after the other; the failure of one is reported and ends no other."""
    for member in members:
        watcher.begin(member)
        try:
            ended = work(member)
            outcome = MemberOutcome(member.overrides, ended.run_id, ended.status, ended.spent)
        except (BrokenPipeError, stops.RefusedOutput):  # nobody reads what the views print any more
            raise
        except RlfError as error:
            outcome = MemberOutcome(member.overrides, None, RunStatus.FAILED, str(error))
        except Exception as error:
            logger.exception("member %d of the sweep: a defect of rlf or of the user's code", member.number)
            outcome = MemberOutcome(member.overrides, None, RunStatus.FAILED, describe(error))
        watcher.end(member, outcome)
        yield member.number, outcome


def _run_members_apart(
    reader: Reader, sweep: RunRecord, at_once: int, gpus: Sequence[str], watcher: Watcher, members: Sequence[Member]
) -> Iterator[tuple[int, MemberOutcome]]:
    """Runs members side by side, in processes; how one ended is read from the lineage."""
    by_number = {member.number: member for member in members}
    runs_folder = Path(sweep.folder).parent
    for number, code in run_members(sweep.id, list(by_number), at_once, gpus, runs_folder):
        member = by_number[number]
        if code is None:
            watcher.begin(member)
            continue
        run = _runs_by_hash(reader, sweep.id).get(sweep.plan["members"][number - 1]["plan_hash"])
        error = f"its process ended with {describe_exit(code)}" if code and code != INTERRUPTED else None
        if run is None or run.status is RunStatus.RUNNING:
            outcome = MemberOutcome(member.overrides, None if run is None else run.record.id, RunStatus.FAILED, error)
        else:
            error = None if code == INTERRUPTED else run.error or error
            outcome = MemberOutcome(member.overrides, run.record.id, run.status, error)
        watcher.end(member, outcome)
        yield number, outcome


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


def main(arguments: Sequence[str]) -> int:
    """Runs, or continues, one member to its end in this process; 0 unless it failed or was interrupted."""
    runs_folder, sweep_id, number, parent, *cores = arguments
    die_with(int(parent))
    if cores:
        os.sched_setaffinity(0, map(int, cores))
    stops.configure()
    try:
        with stops.heeded():
            outcome = run_stored_member(Path(runs_folder), sweep_id, int(number))
    except RlfError as error:
        logger.error("member %s: %s", number, error)
        return error.exit_code
    if outcome.status is RunStatus.INTERRUPTED and outcome.spent is None:
        return INTERRUPTED
    return int(outcome.status is RunStatus.FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
