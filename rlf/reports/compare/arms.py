"""The arms of a comparison: each is one plan and its runs, one for each seed.

An arm is named by one run, by several with commas between them, or by a sweep, which stands for an arm for each of its
settings but the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from rlf.core.errors import RlfError
from rlf.lineage.records import (
    EVALUATION,
    Change,
    Evaluation,
    Run,
    Step,
    StepTotals,
    ToolCallSummary,
    TrajectoryFilter,
    TrajectorySummary,
)
from rlf.reports.quantities import letters_for
from rlf.reports.sweep import is_sweep

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class Member:
    """One run of an arm, with what a comparison needs of it."""

    run: Run
    steps: Sequence[Step]
    evaluations: Sequence[Evaluation]
    """All of them, every mode."""
    totals: Sequence[StepTotals]
    tools: Sequence[ToolCallSummary]
    tries: Mapping[tuple[str, int], Sequence[TrajectorySummary]]
    """Of the evaluations that are compared, by mode and step: each mode's last, and those that arms share."""
    changes: Sequence[Change] = ()
    """Inputs that were accepted as changed when the run was resumed."""

    def last_step(self, mode: str) -> int | None:
        """The updates before the last evaluation of a mode; None without one."""
        return max((found.step for found in self.evaluations if found.mode == mode), default=None)

    def curve(self, mode: str) -> list[Evaluation]:
        """The evaluations of one mode that could score a question, in order of step."""
        return [found for found in self.evaluations if found.mode == mode and "success" in found.metrics]


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs of one plan but for the seed."""

    letter: str
    label: str
    """The run's name, or what distinguishes the arm from the others of its sweep."""
    members: tuple[Member, ...] = field(metadata={"json": None})
    JSON_PROPERTIES: ClassVar = ("runs",)

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of its runs."""
        return tuple(member.run.record.id for member in self.members)

    @property
    def modes(self) -> list[str]:
        """The modes in which every run was evaluated, sampled first."""
        shared = set.intersection(*({found.mode for found in member.evaluations} for member in self.members))
        return sorted(shared, key=lambda mode: (mode != "sampled", mode))


def shared_step(arms: Sequence[Arm], mode: str) -> int | None:
    """The newest step after which every run of the arms was evaluated; None without one.

    Evaluations by `rlf eval` are of no training: the models were chosen, whatever steps they have seen.
    """
    members = [member for arm in arms for member in arm.members]
    if any(member.run.record.engine == EVALUATION for member in members):
        return None
    steps = [{found.step for found in member.curve(mode)} for member in members]
    return max(set.intersection(*steps), default=None)


def read_arms(reader: Reader, names: Sequence[str], least: int = 2) -> list[Arm]:
    """The arms that names stand for, the first one the baseline.

    Raises:
        RlfError: a run is not there, one is named twice, or there are fewer arms than `least`.
    """
    groups = [group for name in names for group in _find_groups(reader, name)]
    ids = [run.record.id for _, runs in groups for run in runs]
    repeated = [run_id for run_id in ids if ids.count(run_id) > 1]
    if repeated:
        raise RlfError(f"run {repeated[0]}: is named twice. Name each run once.")
    if len(groups) < least:
        raise RlfError(
            f"got {' '.join(names)}, which is one arm; expected two or more. Write two runs or a sweep, and commas "
            "between the seeds of one arm: `rlf runs compare A1,A2 B1,B2`."
        )
    arms = [
        Arm(letter, label, tuple(_read_member(reader, run) for run in runs))
        for letter, (label, runs) in zip(letters_for(len(groups)), groups, strict=True)
    ]
    return [_with_tries(reader, arms[0], arm, arms) for arm in arms]


def _with_tries(reader: Reader, baseline: Arm, arm: Arm, arms: Sequence[Arm]) -> Arm:
    """An arm with the tries of its last evaluations, and of those that it shares with the baseline."""
    others = arms if arm is baseline else [arm]
    members = []
    for member in arm.members:
        modes = {found.mode for found in member.evaluations}
        places = {(mode, member.last_step(mode)) for mode in modes}
        places |= {(mode, shared_step([baseline, other], mode)) for mode in modes for other in others}
        tries = {
            (mode, step): reader.trajectories(member.run.record.id, TrajectoryFilter(phase=mode, step=step))
            for mode, step in places
            if step is not None
        }
        members.append(replace(member, tries=tries))
    return replace(arm, members=tuple(members))


def _find_groups(reader: Reader, name: str) -> list[tuple[str, list[Run]]]:
    """Label and runs of each arm that one word of the command names."""
    runs = [reader.get_run(part) for part in name.split(",") if part]
    if len(runs) == 1 and is_sweep(runs[0]):
        return _sweep_groups(reader, runs[0])
    for run in runs:
        if is_sweep(run):
            raise RlfError(f"run {run.record.id}: a sweep has an arm for each setting. Name it without commas.")
    if not runs:
        raise RlfError(f"got {name!r}; expected a run's id, several with commas, or a sweep.")
    return [(runs[0].record.name, runs)]


def _sweep_groups(reader: Reader, sweep: Run) -> list[tuple[str, list[Run]]]:
    members = [line.id for line in reader.run_lines(parent_id=sweep.record.id)]
    run_by_hash = {run.record.plan_hash: run for run in reader.list_runs(members)}
    groups: dict[str, list[Run]] = {}
    for planned in sweep.record.plan["members"]:
        run = run_by_hash.get(planned["plan_hash"])
        settings = [word for word in planned["overrides"] if not word.startswith("seed=")]
        if run is not None:
            groups.setdefault(" ".join(settings) or sweep.record.name, []).append(run)
    if not groups:
        raise RlfError(f"sweep {sweep.record.id}: none of its members has started. `rlf resume` starts them.")
    return list(groups.items())


def _read_member(reader: Reader, run: Run) -> Member:
    run_id = run.record.id
    return Member(
        run=run,
        steps=reader.steps(run_id),
        evaluations=reader.evaluations(run_id),
        totals=reader.step_totals(run_id),
        tools=reader.tool_call_summary(run_id),
        tries={},
        changes=reader.changes(run_id),
    )
