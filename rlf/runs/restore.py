"""A run's plan as it is now, its checkpoints, and the tool results that it plays back: what a resume begins with."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, Place, RlfError, SpecError
from rlf.core.files import run_folder, scratch, shown_path
from rlf.engines.engine import Engine, Start
from rlf.lineage.reader import Reader
from rlf.lineage.records import INTERRUPTED, Checkpoint, RunRecord
from rlf.lineage.store import Store
from rlf.plan import Plan, plan_from_json
from rlf.runs.place import RECORDING, REWARD_CALLS, YAML_ROLES, Places, open_reader
from rlf.runs.plans import CheckedSpec, check_spec
from rlf.spec import InputFile
from rlf.spec.engines import ENGINES
from rlf.spec.nodes import OVERRIDE, KeyPath, dotted
from rlf.spec.reader import forget_env_files, take_env_file
from rlf.tools.execution.tape import AnsweredCall, Tape, arguments_text, read_tape, read_taped_calls
from rlf.types import Outcome, ToolResult


def restore_plan(record: RunRecord, places: Places, values: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a recorded run, where it finds its modules and variables; of a sweep, of the member with `values`.

    Raises RlfError where a variable is not set, and for an evaluation.
    """
    refuse_evaluation(record)
    take_environment(record, places)
    # Modules that were edited since they were imported, by a page or a notebook, are imported again: their hash is
    # compared with what the run recorded, and the code that runs must be the one that was compared.
    forget_edited()
    values = record.plan if values is None else values
    return plan_from_json(json.dumps({**values, "spec": places.values(values["spec"])}))


def check_changed(record: RunRecord, places: Places, overrides: Sequence[str], *, trains: bool = True) -> CheckedSpec:
    """A run's plan with overrides. It is read again as a spec, so that every check is made, as by `check_spec`.

    Raises:
        SpecError: with the places where the run's own files have what is wrong.
    """
    take_environment(record, places)
    values, known = places.values(record.plan["spec"]), record.plan["origins"]
    with scratch("rlf-spec") as folder:
        file = folder / f"{record.id}.yaml"
        file.write_text(json.dumps(_keep_written(values, known)))
        try:
            checked = check_spec([file], overrides, trains=trains)
        except SpecError as error:
            raise SpecError([_place_fault(fault, file, record.id, known) for fault in error.faults]) from error
    own = checked.plan.origins
    origins = {key: place if place == OVERRIDE else known.get(key, f"run {record.id}") for key, place in own.items()}
    inputs = [item for item in checked.plan.files if item.role not in YAML_ROLES]
    plan = checked.plan.model_copy(update={"files": (*_yaml_files(record, places), *inputs), "origins": origins})
    return replace(checked, plan=plan)


def _place_fault(fault: Fault, file: Path, run_id: str, known: Mapping[str, str]) -> Fault:
    """A fault where the run's files have it, and not in the file that holds its plan for a moment."""
    if Path(fault.place.file).name != file.name:
        return fault
    return Fault(Place(known.get(fault.path, f"run {run_id}")), fault.path, fault.message)


def _keep_written(value: Any, origins: Collection[str], path: KeyPath = ()) -> Any:
    """The written keys of a stored spec, without defaults: some keys are faults where nothing reads them."""
    if path and not any(key.startswith((f"{dotted(path)}.", f"{dotted(path)}[")) for key in origins):
        return value
    if isinstance(value, dict):
        items = [(key, child, (*path, key)) for key, child in value.items()]
        return {key: _keep_written(child, origins, at) for key, child, at in items if _is_written(dotted(at), origins)}
    if isinstance(value, list):
        return [_keep_written(child, origins, (*path, number)) for number, child in enumerate(value)]
    return value


def _is_written(key: str, origins: Collection[str]) -> bool:
    return key in origins or any(other.startswith((f"{key}.", f"{key}[")) for other in origins)


def _yaml_files(record: RunRecord, places: Places) -> list[InputFile]:
    """The files that the plan was read from, as they were then."""
    found = [(file, places.file(file.role, file.path)) for file in record.files if file.role in YAML_ROLES]
    return [InputFile(file.role, shown_path(place), file.sha256) for file, place in found if place is not None]


def take_environment(record: RunRecord, places: Places) -> None:
    """Lets a run find its modules and the variables of the `.env` files beside its specs, as where it was started.

    Raises:
        SpecError: a `.env` file is wrong.
    """
    if str(places.cwd) not in sys.path:
        sys.path.insert(0, str(places.cwd))
    faults: list[Fault] = []
    # Of another run of this process: its variables must not fill in for one that this run's files lack.
    forget_env_files()
    for file in record.files:
        found = places.file(file.role, file.path) if file.role == "spec" else None
        if found is not None:
            take_env_file(found.parent, faults)
    if faults:
        raise SpecError(faults)


# Checkpoints of runs: which are undamaged, where a run continues, and how to remove some.


def drop_checkpoints(store: Store, run_id: str, folder: Path, *, from_step: int) -> None:
    """Removes a run's checkpoints of that step and later, so that it resumes before them.

    Args:
        folder: the run's.

    Raises:
        RlfError: a checkpoint's path leads out of the folder that the run saves in, and nothing was deleted.
    """
    from rlf.core.files import path_inside

    reader = Reader(store)
    record = reader.get_run(run_id).record
    root = recorded_engine(record).checkpoints_in(folder)
    saved = [item for item in reader.checkpoints(run_id) if item.step >= from_step]
    places = [path_inside(root, Path(item.path).absolute()) for item in saved]
    # Rows first: killed in between, folders are left that nothing names, and no row names a folder that is gone.
    from rlf.lineage.upkeep import forget_checkpoints

    forget_checkpoints(store, run_id, [item.step for item in saved])
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def kept_checkpoints(reader: Reader, run_id: str) -> list[Checkpoint]:
    """Those that `checkpoint.keep` has not taken away, in order of step."""
    return [saved for saved in reader.checkpoints(run_id) if saved.dropped is None]


def find_checkpoint_damage(record: RunRecord, saved: Checkpoint) -> str | None:
    """The damage of a checkpoint in words; None where it is whole, or on a disk that is not seen from here."""
    try:
        return recorded_engine(record).find_damage(_checkpoint_path(record, saved), saved.sha256)
    except RlfError as error:
        return str(error)


def _checkpoint_path(record: RunRecord, saved: Checkpoint) -> Path:
    """Where a checkpoint is. Raises RlfError where its path leads out of the folder that the run saves in."""
    from rlf.core.files import check_run_id, path_inside

    # Both from the database, which may be a stranger's: neither the run's folder nor the checkpoint's path may lead to
    # a file outside, for what is there is loaded, copied and at last removed.
    folder = Path(record.folder)
    if folder.name != check_run_id(record.id):
        raise RlfError(f"the folder {folder} does not have the run's id as its name: nothing was read there")
    return path_inside(recorded_engine(record).checkpoints_in(folder), Path(saved.path).absolute())


def choose_start(reader: Reader, record: RunRecord, wanted: int | None = None) -> Start:
    """The newest whole checkpoint of a run, or that of a step that was asked for; 0 is the run's beginning.

    One damaged checkpoint is skipped; where more would be lost, the caller has to name the step.

    Raises:
        RlfError: there is no whole checkpoint of that step, or too many are damaged.
    """
    kept = kept_checkpoints(reader, record.id)
    if wanted is not None:
        return _start_at(record, kept, wanted)
    # The newest may be damaged by the very crash that the run is resumed from. Two in a row are a failing disk or a
    # wrong folder, and going back further than one checkpoint is for a person to decide.
    skipped: list[str] = []
    for saved in reversed(kept):
        damage = find_checkpoint_damage(record, saved)
        if damage is None:
            break
        skipped.append(f"step {saved.step}: {damage}: {saved.path}")
    found = kept[-len(skipped) - 1] if len(skipped) < len(kept) else None
    place = None if found is None else _checkpoint_path(record, found)
    start = Start(0 if found is None else found.step, place, tuple(skipped))
    if len(skipped) > 1 or (skipped and found is None):
        raise RlfError(_too_far(record, start, kept[-1].step))
    return start


def _start_at(record: RunRecord, kept: Sequence[Checkpoint], wanted: int) -> Start:
    if wanted == 0:
        return Start(0, None, named=True)
    saved = next((item for item in kept if item.step == wanted), None)
    damage = "there is none" if saved is None else find_checkpoint_damage(record, saved)
    if saved is None or damage is not None:
        there = ", ".join(str(item.step) for item in kept) or "none"
        raise RlfError(
            f"run {record.id}: the checkpoint of step {wanted}: {damage}. Checkpoints are kept of steps: {there}; 0 is "
            "the beginning of the run. Name one of these."
        )
    return Start(wanted, _checkpoint_path(record, saved), named=True)


def _too_far(record: RunRecord, start: Start, newest: int) -> str:
    lines = "\n".join(f"  {line}" for line in start.skipped)
    back = f"step {start.step}" if start.step else "the beginning of the run, step 0"
    return (
        f"run {record.id}: {len(start.skipped)} damaged checkpoints are refused:\n{lines}\nThe newest whole state is "
        f"that of {back}: steps {start.step + 1} to {newest} and later would be trained again. Restore a checkpoint, "
        f"or accept that with `rlf resume {record.id} --from {start.step}`."
    )


# Tool results of an earlier run, to play back in place of the tools.

_PLAYED = "replay.txt"
"""The file in a run's folder that names what its tool calls are answered from."""


def keep_replay(folder: Path, name: str, reader: Reader) -> None:
    """Writes the recording that answers a run's calls into its folder, so that a resume uses it too.

    A run by its id: `latest` and tags may be another one's by then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = str(Path(name).absolute()) if Path(name).is_file() else reader.get_run(name).record.id
    (folder / _PLAYED).write_text(kept, encoding="utf-8")


def kept_replay(folder: Path, runs_folder: Path) -> Tape | None:
    """The recording that `keep_replay` named; None for a run that calls its tools.

    Raises:
        RlfError: it is gone.
    """
    path = folder / _PLAYED
    return find_replay(path.read_text(encoding="utf-8"), runs_folder) if path.is_file() else None


def find_replay(name: str, runs_folder: Path) -> Tape:
    """The calls of a recording's file, or of a run: as its lineage has them, and those of its reward terms.

    Raises:
        RlfError: there is neither, or the run's trajectories are not all kept.
    """
    path = Path(name)
    if path.is_file():
        return read_tape(path)
    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        path = run_folder(runs_folder, run_id) / REWARD_CALLS
        return Tape([*_recorded_calls(reader, run_id), *(read_taped_calls(path) if path.is_file() else ())])


def _recorded_calls(reader: Reader, run_id: str) -> Iterator[tuple[AnsweredCall, ToolResult]]:
    """Every call that reached the executor in a trajectory that counts, in the order of its trajectory."""
    for summary in reader.trajectories(run_id):
        if summary.phase == INTERRUPTED:
            continue
        stored = reader.whole(run_id, summary)
        if stored is None:
            fix = f"Replay a file that `rlf run --record` wrote (RUNS/{run_id}/{RECORDING})."
            raise RlfError(f"run {run_id}: trajectory {summary.trajectory_id} is kept without its calls. {fix}")
        for record in stored.scored.trajectory.calls:
            # Those that a limit refused never reached a tool, and in the replay the same limit refuses them again.
            if record.result.outcome is not Outcome.LIMIT_REACHED:
                text = arguments_text(record.call.arguments)
                yield AnsweredCall(summary.trajectory_id, record.call.name, text), record.result


def recorded_engine(record: RunRecord) -> Engine:
    """The engine of a recorded run, as it was set. Raises RlfError where it is no longer installed, or is no engine."""
    refuse_evaluation(record)
    kind, settings = ENGINES.get(record.engine), record.plan.get("spec", {}).get("engine", {})
    known = {key: value for key, value in settings.items() if key in kind.model_fields}  # an older rlf had others too
    engine = kind.model_validate(known | {"kind": record.engine})
    assert isinstance(engine, Engine), f"{engine} opens no runs"
    return engine


def refuse_evaluation(record: RunRecord) -> None:
    """Raises RlfError for an evaluation, where a run that trains is needed."""
    from rlf.lineage.records import EVALUATION  # which `rlf check` does not load

    if record.engine == EVALUATION:
        of = "" if record.parent_id is None else f" of run {record.parent_id}"
        raise RlfError(
            f"run {record.id}: is an evaluation{of}, which trains no model. `rlf eval {record.id}` continues it if it "
            "was stopped, and repeats it otherwise."
        )
