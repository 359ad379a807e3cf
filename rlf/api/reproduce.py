"""Running a run again from its lineage, and holding the two against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.api.changes import as_they_are
from rlf.api.lineage import open_lineage
from rlf.api.replays import RECORDING
from rlf.api.restoring import Places, restore_plan, take_environment
from rlf.api.runs import Parent, RunOutcome, View, start
from rlf.core.inside import run_folder
from rlf.lineage.graph import NodeDifference, differing, read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.records import ParentKind
from rlf.plan import Plan
from rlf.spec.models import OUTSIDE, RunSpec


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a reproduction stands to its original."""

    original: str
    reproduction: str
    differences: tuple[NodeDifference, ...]
    """Every node of the lineage that differs: sources first, then steps in order."""

    @property
    def results_differ(self) -> bool:
        """Whether a step or an evaluation has other metrics than the original's."""
        return any(item.kind in ("step", "evaluation") for item in self.differences)


def reproduce(name: str, *, live: bool, runs_folder: Path, view: View, command: Sequence[str]) -> RunOutcome:
    """Runs a run's plan again as a run of its own whose parent it is.

    Args:
        live: whether tools are called anew; else their recorded responses are played back.

    Raises:
        RlfError: the files that the plan names are not there, or some trajectories were thinned.
    """
    with open_lineage(runs_folder) as store:
        record = Reader(store).get_run(name).record
        places = Places.of(record, store)
    take_environment(record, places)
    plan = as_they_are(_reported_here(restore_plan(record.plan, places)), places)
    recording = run_folder(runs_folder, record.id) / RECORDING
    replay = str(recording) if recording.is_file() else record.id
    return start(
        plan,
        warnings=(),
        runs_folder=runs_folder,
        view=view,
        command=command,
        parent=Parent(record.id, ParentKind.REPRODUCTION),
        cwd=places.cwd,
        replay=None if live else replay,
    )


def _reported_here(plan: Plan) -> Plan:
    """The plan, to be recorded where its original lies now and reported nowhere else."""
    spec = plan.spec.model_copy(update={name: RunSpec.model_fields[name].default for name in OUTSIDE})
    kept = tuple(item for item in plan.interpolated if item.path[0] not in OUTSIDE)
    return plan.model_copy(update={"spec": spec, "interpolated": kept})


def compare_with_original(reproduction: str, runs_folder: Path) -> Agreement:
    """Holds a reproduction against its parent."""
    with open_lineage(runs_folder) as store:
        reader = Reader(store)
        again = reader.get_run(reproduction).record
        assert again.parent_id is not None, f"run {again.id} has no original"
        found = differing(read_graph(reader, again.parent_id), read_graph(reader, again.id))
    return Agreement(again.parent_id, again.id, tuple(found))
