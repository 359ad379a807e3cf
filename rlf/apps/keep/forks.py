"""Child runs, from a checkpoint with changes of its spec or once more as they were, and in what two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.core.text import show_value
from rlf.engines.engine import Fit, Start
from rlf.lineage.graph import NodeDifference, differing, read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.records import SWEEP, FileRecord, ParentKind, RunRecord
from rlf.plan import Plan
from rlf.plan.compiler import hash_plan
from rlf.runs.changes import as_they_are, find_changes
from rlf.runs.place import RECORDING, Places, open_reader
from rlf.runs.plans import PlacedPlan, check_spec
from rlf.runs.provenance import builtin_files, model_files
from rlf.runs.restore import check_changed, choose_start, kept_checkpoints, recorded_engine, restore_plan
from rlf.runs.sink import RunOutcome, View
from rlf.runs.start import Parent, start
from rlf.spec.engines import EngineSpec, Feature
from rlf.spec.models import OUTSIDE, RunSpec
from rlf.spec.paths import identity
from rlf.types.events import Notice


def fork_checkpoint(
    name: str, files: Sequence[Path], overrides: Sequence[str], *, runs_folder: Path, view: View, command: Sequence[str]
) -> RunOutcome:
    """Starts a run from a checkpoint of another one.

    Args:
        name: `RUN@STEP`, or `RUN` for its newest whole checkpoint.
        files: specs of the child; without any it has the parent's plan, as the lineage keeps it.
        overrides: what the child changes.

    Raises:
        RlfError: there is no such checkpoint, or an engine cannot start from it.
        SpecError: the changed spec is wrong.
    """
    run_name, at, text = name.partition("@")
    if at and not text.isdecimal():
        raise RlfError(f"{name}: got the step {text!r}; expected a number. Write e.g. `{run_name}@6`.")
    with open_reader(runs_folder) as reader:
        record = reader.get_run(run_name).record
        _check_can_fork(record, None)
        places = Places.of(record, reader.store)
        start_at = choose_start(reader, record, int(text) if at else None)
        kept = [str(saved.step) for saved in kept_checkpoints(reader, record.id)]
    if start_at.checkpoint is None:
        raise RlfError(
            f"run {record.id}: step {start_at.step} has no checkpoint to start from. Name one of the steps "
            f"{', '.join(kept) or '(none)'}, or start a new run with `rlf run`."
        )
    checked = check_spec(files, overrides) if files else check_changed(record, places, overrides)
    spec = checked.plan.spec
    _check_can_fork(record, spec.engine)
    if spec.train.steps <= start_at.step:
        raise RlfError(
            f"train.steps: got {spec.train.steps}; the checkpoint is of step {start_at.step}, and the child run "
            f"counts from there. Write e.g. `train.steps={start_at.step * 2}`."
        )
    parent = Parent(record.id, ParentKind.FORK, start_at)
    return start(checked.fit(Fit()), runs_folder=runs_folder, view=view, command=command, parent=parent)


def _check_can_fork(record: RunRecord, engine: EngineSpec | None) -> None:
    """Args: engine: the child's; None: that of the run itself."""
    if record.engine == SWEEP:
        raise RlfError(f"run {record.id}: is a sweep and has no checkpoints. Name one of its runs.")
    engine = engine or recorded_engine(record)
    why = engine.LACKS.get(Feature.BRANCHES)
    if why is not None:
        fault = f"cannot start a run from another run's checkpoint: {why}"
    elif engine.kind != record.engine:
        fault = f"does not read the checkpoints of engine {record.engine}"
    else:
        return
    raise RlfError(
        f"run {record.id}: engine {engine.kind} {fault}. Export the model with `rlf export RUN FOLDER --step N`, and "
        "start a new run with `model.path=FOLDER`."
    )


# Runs a run again from its lineage and compares the two.

_RESULTS = ("step", "evaluation")


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a reproduction compares with its original."""

    original: str
    reproduction: str
    differences: tuple[NodeDifference, ...]
    """Every node of the lineage that differs: sources first, then steps in order."""

    @property
    def results(self) -> list[NodeDifference]:
        """Steps and evaluations that have other metrics than the original's."""
        return [item for item in self.differences if item.kind in _RESULTS]

    @property
    def inputs(self) -> list[NodeDifference]:
        """Inputs that differ from those of the original; the machine does not count."""
        return [item for item in self.differences if item.kind not in (*_RESULTS, "host")]


def reproduce(name: str, *, live: bool, runs_folder: Path, view: View, command: Sequence[str]) -> RunOutcome:
    """Runs a run's plan again as a new run, a child of the first.

    Args:
        live: whether tools are called again; else their recorded responses are played back.

    Raises:
        RlfError: the files that the plan names are not there, some trajectories were thinned, or the checkpoint that
            the run was forked from is gone.
    """
    with open_reader(runs_folder) as reader:
        record = reader.get_run(name).record
        places = Places.of(record, reader.store)
        restored = restore_plan(record, places)
        start_at = _find_start(reader, record)
        changes = find_changes(reader, record, restored, places, at_step=0)
    spec = restored.spec.model_copy(update={name: RunSpec.model_fields[name].default for name in OUTSIDE})
    kept = tuple(item for item in restored.interpolated if item.path[0] not in OUTSIDE)
    plan = _keep_plan(restored.model_copy(update={"spec": spec, "interpolated": kept}), places)
    differing_inputs = (
        Notice("warning", f"differs from the original: {change.words}", {"role": change.role, "path": change.path})
        for change in changes
        if change.used
    )
    recording = run_folder(runs_folder, record.id) / RECORDING
    replay = str(recording) if recording.is_file() else record.id
    return start(
        PlacedPlan(plan, tuple(differing_inputs)),
        runs_folder=runs_folder,
        view=view,
        command=command,
        parent=Parent(record.id, ParentKind.REPRODUCTION, start_at),
        cwd=places.cwd,
        also=opened_before(record, restored, places),
        replay=None if live else replay,
    )


def _find_start(reader: Reader, record: RunRecord) -> Start | None:
    """The checkpoint that a fork began with, its own copy or its parent's; None for a run that began at step 0."""
    step, parent_id = record.parent_step, record.parent_id
    if step is None or parent_id is None:
        return None
    has_copy = any(saved.step == step for saved in kept_checkpoints(reader, record.id))
    return choose_start(reader, record if has_copy else reader.get_run(parent_id).record, step)


def _keep_plan(plan: Plan, places: Places) -> Plan:
    """The plan with what its files hold now; its hash is another one where that is not what they held."""
    now = as_they_are(plan, places)
    if [file.sha256 for file in now.files] == [file.sha256 for file in plan.files]:
        return now
    return now.model_copy(update={"plan_hash": hash_plan(now.spec, now.interpolated, now.files, places.cwd)})


def compare_with_original(reproduction: str, runs_folder: Path) -> Agreement:
    """Compares a reproduction with its parent."""
    with open_reader(runs_folder) as reader:
        again = reader.get_run(reproduction).record
        assert again.parent_id is not None, f"run {again.id} has no original"
        original = reader.get_run(again.parent_id).record
        places = Places.of(original, reader.store)
        before = read_graph(reader, original.id)
        nodes = tuple(replace(node, name=places.text(node.name)) for node in before.nodes)
        found = differing(replace(before, nodes=nodes), read_graph(reader, again.id))
        spelt_out = explain_differences(reader, original.id, again.id, found)
    return Agreement(original.id, again.id, tuple(spelt_out))


def opened_before(record: RunRecord, plan: Plan, places: Places) -> list[FileRecord]:
    """The files that a run's own code opened, as they are now: its plan does not name them."""
    named = {(file.role, file.path) for file in plan.files}
    named |= {(file.role, file.path) for file in (*builtin_files(plan), *model_files(plan))}
    opened = [file for file in record.files if file.role in ("code", "data") and (file.role, file.path) not in named]
    now = [(file, places.file(file.role, file.path)) for file in opened]
    hashes = [(file, identity(place)) for file, place in now if place is not None]
    return [FileRecord(file.role, places.text(file.path), sha256) for file, sha256 in hashes if sha256 is not None]


# In what two runs differ.

_QUESTION_CHARS = 60


def explain_differences(reader: Reader, left: str, right: str, found: Sequence[NodeDifference]) -> list[NodeDifference]:
    """The differences between two runs, with kinds that stand for many things replaced by those that differ."""
    return [item for difference in found for item in _explain_difference(reader, left, right, difference)]


def _explain_difference(reader: Reader, left: str, right: str, found: NodeDifference) -> Iterator[NodeDifference]:
    records = [reader.get_run(run_id).record for run_id in (left, right)]
    match found.kind:
        case "packages":
            yield from _compare_entries("package", *(record.packages for record in records))
        case "host":
            yield from _compare_entries("host", *(record.host for record in records))
        case "rows":
            yield from _compare_rows(reader, left, right, found.name)
        case _:
            yield found


def _compare_entries(kind: str, left: Mapping[str, object], right: Mapping[str, object]) -> Iterator[NodeDifference]:
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield NodeDifference(kind, name, *(str(side.get(name, "")) for side in (left, right)))


def _compare_rows(reader: Reader, left: str, right: str, phase: str) -> Iterator[NodeDifference]:
    """Rows of one phase by their task's id, with the beginning of the question."""
    sides = [reader.rows(run_id, phase) for run_id in (left, right)]
    for task_id in sorted(sides[0].keys() | sides[1].keys()):
        names = [side.get(task_id, "") for side in sides]
        if names[0] != names[1]:
            question = reader.question(names[0] or names[1])
            yield NodeDifference("row", f"{phase} {task_id} {show_value(question, _QUESTION_CHARS)}", *names)


def diff_runs(reader: Reader, names: Sequence[str], step: int | None) -> list[NodeDifference]:
    """The nodes of two runs that differ; with `step`, that step's trajectories, calls and scores too."""
    ids = [reader.get_run(name).record.id for name in names]
    left, right = (read_graph(reader, run_id, step) for run_id in ids)
    return explain_differences(reader, ids[0], ids[1], differing(left, right))
