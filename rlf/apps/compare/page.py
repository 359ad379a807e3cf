"""What the page shows of comparisons, from an open lineage: arms beside one another, and one question of two arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlf.apps.compare.arms import Arm, read_arms, shared_step
from rlf.apps.compare.comparison import Comparison, ComparisonExample, KindRows, flip_matrix, read_examples, title_of
from rlf.apps.compare.views import compare_runs, openings_of, page_values, sheets
from rlf.core.errors import NotFoundError, RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, StoredTrajectory, TrajectoryFilter
from rlf.reports.pages.render import SidePair
from rlf.reports.sheets import Sheet
from rlf.runs.trajectories import Openings

TASKS = ()
"""None in a fork: a comparison is read in the server."""
_MATRIX_FLIPS = 20
"""Questions of each arm whose trajectories are read for the first turn that differs."""
_STEPS = 400
"""Steps of a curve at most."""


@dataclass(frozen=True, slots=True)
class MemberCurve:
    """The curves of one run of an arm."""

    run_id: str
    seed: int
    steps: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]
    evaluations: tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True)
class ArmCurves:
    """The curves of an arm."""

    letter: str
    label: str
    members: tuple[MemberCurve, ...]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Everything that the page of a comparison shows."""

    title: str
    comparison: Comparison
    results: tuple[Sheet, ...]
    origins: tuple[Sheet, ...]
    kinds: tuple[KindRows, ...]
    """Every question by arm."""
    curves: tuple[ArmCurves, ...]


@dataclass(frozen=True, slots=True)
class QuestionView:
    """One question as two arms answered it at the evaluation that is compared."""

    task_id: str
    question: str
    left: str
    right: str
    """Letters of the arms."""
    pair: SidePair
    first_difference: int | None
    """The first turn that differs."""


def view_comparison(reader: Reader, names: Sequence[str], mode: str | None) -> ComparisonView | None:
    """A comparison with its tables, questions and curves; None where no run is named."""
    if not names:
        return None
    found = compare_runs(reader, names, mode)
    tables = sheets(found)
    return ComparisonView(
        title=title_of(found),
        comparison=found,
        results=tuple(tables.results),
        origins=tuple(tables.origins),
        kinds=tuple(flip_matrix(found, read_examples(reader, found, _MATRIX_FLIPS))),
        curves=tuple(map(_arm_curves, found.arms)),
    )


def _arm_curves(arm: Arm) -> ArmCurves:
    members = []
    for member in arm.members:
        steps = list(member.steps)[:: -max(1, math.ceil(len(member.steps) / _STEPS))][::-1]
        names = sorted({name for step in steps for name in step.metrics})
        values = {name: tuple(step.metrics.get(name) for step in steps) for name in names}
        numbers = tuple(step.step for step in steps)
        record = member.run.record
        members.append(MemberCurve(record.id, record.seed, numbers, values, tuple(member.evaluations)))
    return ArmCurves(arm.letter, arm.label, tuple(members))


def view_question(
    reader: Reader,
    names: Sequence[str],
    mode: str | None,
    task_id: str,
    letters: tuple[str, str],
    openings: Callable[[str], Openings],
) -> QuestionView:
    """One question as the first runs of two arms answered it."""
    if not names:
        raise RlfError("arm: name the runs that are compared.")
    arms = {arm.letter: arm for arm in read_arms(reader, names)}
    for letter in letters:
        if letter not in arms:
            raise RlfError(f"arm: got {letter!r}; expected one of {', '.join(arms)}.")
    both = [arms[letter] for letter in letters]
    step = shared_step(both, mode or next(iter(both[0].modes), "sampled"))
    stored = [_compared_answer(reader, arm, mode, task_id, step) for arm in both]
    example = ComparisonExample(task_id, letters[0], stored[0], letters[1], stored[1])
    pair = example.pair({letter: openings(arms[letter].runs[0]) for letter in letters})
    return QuestionView(task_id, example.question, *letters, pair, pair.first_difference)


def _compared_answer(reader: Reader, arm: Arm, mode: str | None, task_id: str, step: int | None) -> StoredTrajectory:
    run_id, chosen = arm.runs[0], mode or next(iter(arm.modes), "sampled")
    found = reader.trajectories(run_id, TrajectoryFilter(phase=chosen, task_id=task_id, step=step))
    last = max(found, key=lambda one: (one.step, -one.sample_index), default=None)
    stored = None if last is None else reader.whole(run_id, last)
    if stored is None:
        raise NotFoundError(f"run {run_id}: no {chosen} answer to {task_id!r} is kept.")
    return stored


def template_values(reader: Reader, names: Sequence[str], mode: str | None) -> dict[str, Any]:
    """Values of the template of a comparison."""
    found = compare_runs(reader, names, mode)
    modes = {e.mode for arm in found.arms for m in arm.members for e in m.evaluations}
    values = page_values(found, read_examples(reader, found), openings_of(found), asdict)
    return values | {"modes": sorted(modes, reverse=True)}
