"""Child runs: from a checkpoint of a run, with changes of its spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlf.api.lineage import open_reader
from rlf.api.running.changed_plan import check_changed
from rlf.api.running.checkpoints import choose_start, kept_checkpoints
from rlf.api.running.drive import RunOutcome, View
from rlf.api.running.restoring import Places
from rlf.api.running.start import Parent, start
from rlf.api.specs.plans import check_spec
from rlf.core.errors import RlfError
from rlf.engines.engine import Fit, recorded_engine
from rlf.lineage.records import SWEEP, ParentKind, RunRecord
from rlf.spec.models import EngineSpec, Feature


def fork(
    name: str,
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
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
