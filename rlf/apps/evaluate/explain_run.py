"""`rlf why RUN`: when a run's figures changed their level, and what is likely behind it."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import StatisticsError, correlation, fmean

from rlf.apps.evaluate.branches import find_trained_run
from rlf.apps.evaluate.breaks import SUCCESS, Break, fall_of, points_of, read_breaks
from rlf.apps.evaluate.findings import Findings
from rlf.apps.evaluate.suspects import Recorded, Suspect, find_suspects
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.lineage.reader import Reader
from rlf.lineage.records import TRAIN, StoredTrajectory, TrajectorySummary
from rlf.reports.sheets import Sheet, decimal, percent
from rlf.reports.verdict import RunVerdict, VerdictKind, read_verdict
from rlf.runs.place import Places, open_reader
from rlf.runs.restore import restore_plan
from rlf.runs.sink import diagnosis_setting

# What training moved: a kind that has nearly all of the advantages moved it, by elimination. Where several have some, a
# kind is named only if held-out success rose when it was trained on and not when others were.

_LEAST, _LEAST_Z = 0.1, 2.6
"""Change of held-out success, and its standard errors, from which it has moved."""
_ALONE = 0.9
"""Share of all advantages that leaves nothing for other kinds."""
_INTERVALS, _SHUFFLES = 6, 2000
"""Intervals between evaluations that a correlation needs, and shuffles that its chance is counted by."""


@dataclass(frozen=True, slots=True)
class Influence:
    """What moved a kind of held-out questions."""

    held_out: str
    before: float
    after: float
    trained: str | None
    """The kind of training tasks that moved it; None: cannot say."""
    seen: str
    refuted_by: str


def find_influences(trained: Sequence[StoredTrajectory], evaluated: Sequence[StoredTrajectory]) -> list[Influence]:
    """One for each kind of held-out questions that moved by more than chance explains."""
    curves: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in evaluated:
        if item.summary.reward is not None and item.summary.success is not None:
            curves[item.summary.kind or "all"][item.summary.step].append(item.summary.success)
    pulls = _pulls(trained)
    return [one for kind, curve in sorted(curves.items()) if pulls for one in _explain(kind, curve, pulls)]


def _pulls(trained: Sequence[StoredTrajectory]) -> dict[str, dict[int, float]]:
    """The sum of all advantages' sizes by kind and step; without advantages, of rewards from their group's mean."""
    groups: dict[tuple[str, int, str], list[StoredTrajectory]] = defaultdict(list)
    for item in trained:
        if item.summary.reward is not None:
            groups[item.summary.kind or "all", item.summary.step, item.summary.task_id].append(item)
    found: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (kind, step, _), group in groups.items():
        mean = fmean(item.summary.reward or 0.0 for item in group)
        for item in group:
            own = item.summary.advantage
            found[kind][step] += abs((item.summary.reward or 0.0) - mean if own is None else own)
    return found


def _explain(kind: str, curve: dict[int, list[float]], pulls: dict[str, dict[int, float]]) -> Iterator[Influence]:
    steps = sorted(curve)
    before, after = (fmean(curve[step]) for step in (steps[0], steps[-1]))
    spread = sum(_variance(curve[step]) / len(curve[step]) for step in (steps[0], steps[-1]))
    if abs(after - before) < max(_LEAST, _LEAST_Z * math.sqrt(spread)):
        return
    by_kind = {
        name: [sum(value for step, value in each.items() if low < step <= high) for low, high in pairwise(steps)]
        for name, each in pulls.items()
    }
    total = sum(map(sum, by_kind.values()))
    first = max(by_kind, key=lambda name: sum(by_kind[name]))
    share = sum(by_kind[first]) / total if total else 0.0
    named, seen = None, f"{len(by_kind)} kinds were trained on in the same steps"
    if share >= _ALONE:
        named, seen = first, f"{percent(share)} of all advantages before it are of {first!r}"
    elif len(steps) > _INTERVALS:
        rises = [fmean(curve[high]) - fmean(curve[low]) for low, high in pairwise(steps)]
        chances = {name: _chance(each, rises) for name, each in by_kind.items()}
        likely = [name for name, chance in chances.items() if chance < 0.05 / len(chances)]
        if len(likely) == 1:
            named = likely[0]
            seen = f"over {len(rises)} intervals it moved when {named!r} was trained on (p {chances[named]:.3f})"
    refuted = "it moves alike in a run without these tasks" if named else "runs that leave out one kind each would say"
    yield Influence(kind, before, after, named, seen, refuted)


def _variance(values: Sequence[float]) -> float:
    likely = (sum(values) + 1) / (len(values) + 2)  # all alike is no proof that there is no spread
    return likely * (1 - likely)


def _chance(pull: Sequence[float], rises: Sequence[float]) -> float:
    """How often shuffled intervals go together as well; the steps of a run are few, so no formula is used."""
    try:
        own = correlation(pull, rises)
    except StatisticsError:  # one of them is constant
        return 1.0
    draw, order = random.Random(0), list(rises)
    hits = 0
    for _ in range(_SHUFFLES):
        draw.shuffle(order)
        hits += correlation(pull, order) >= own - 1e-9
    return (hits + 1) / (_SHUFFLES + 1)


_MOST = 4000
"""Trajectories of training that are read, and as many of evaluations: of each step as many."""


@dataclass(frozen=True, slots=True)
class RunExplanation(Jsonable):
    """Why a run ended as it did."""

    run_id: str
    verdict: RunVerdict
    num_steps: int
    num_read: int
    """Trajectories that were looked at."""
    fall: Break | None
    """Of success; None where it did not fall."""
    breaks: tuple[Break, ...]
    """Of all figures, in the order of their steps."""
    suspects: tuple[Suspect, ...]
    """The likeliest first; none: nothing is suspected, or of a fall: cannot say."""
    influences: tuple[Influence, ...]
    """Which kinds of training tasks moved the kinds of held-out questions that moved."""


def explain_run(name: str, runs_folder: Path) -> RunExplanation:
    """Looks at what a run has recorded; plays nothing.

    Args:
        name: of a run, or the beginning of its id.

    Raises:
        RlfError: there is no such run, or it has made too few steps.
    """
    with open_reader(runs_folder) as reader:
        run = find_trained_run(reader, name)
        run_id, steps = run.record.id, reader.steps(run.record.id)
        if not steps:
            raise RlfError(f"run {run_id} has made no step of training: there is nothing to explain. Name another.")
        heads = reader.trajectories(run_id)
        trained = _read(reader, run_id, [head for head in heads if head.phase == TRAIN])
        modes = {evaluation.mode for evaluation in reader.evaluations(run_id)}
        evaluated = _read(reader, run_id, [head for head in heads if head.phase in modes])
        verdict = read_verdict(reader, run_id)
        spec = restore_plan(run.record, Places.of(run.record, reader.store)).spec
    breaks = read_breaks(trained, steps)
    success = points_of(trained, SUCCESS)
    fall = fall_of(breaks, success, is_worse=verdict.kind is VerdictKind.WORSE)
    settings = f"train.learning_rate {spec.train.learning_rate:g}"
    setting = diagnosis_setting(spec)
    recorded = Recorded(trained, evaluated, steps, breaks, fall, setting, settings)
    return RunExplanation(
        run_id=run_id,
        verdict=verdict,
        num_steps=len(steps),
        num_read=len(trained) + len(evaluated),
        fall=fall,
        breaks=tuple(sorted((one for each in breaks.values() for one in each), key=lambda one: one.step)),
        suspects=tuple(find_suspects(recorded)),
        influences=tuple(find_influences(trained, evaluated)),
    )


def _read(reader: Reader, run_id: str, heads: Sequence[TrajectorySummary]) -> list[StoredTrajectory]:
    """Trajectories in the order of their steps, the first of each step where there are many."""
    by_step: dict[tuple[str, int], list[TrajectorySummary]] = {}
    for head in sorted(heads, key=lambda one: (one.step, one.phase, one.k)):
        by_step.setdefault((head.phase, head.step), []).append(head)
    each = -(-_MOST // max(1, len(by_step)))
    wanted = [head for found in by_step.values() for head in found[:each]]
    return [stored for stored in reader.wholes(run_id, wanted) if stored is not None]


def show_run_explanation(found: RunExplanation, options: str) -> Findings:
    """For people. Args: options: what the commands in it need beside the run."""
    rows = tuple((str(one.step), one.figure, decimal(one.before), decimal(one.after)) for one in found.breaks)
    note = f"over {found.num_steps} steps; levels are means of the steps between two changes"
    sheets = [Sheet("Changes", note, ("step", "figure", "before", "after"), rows)] if rows else []
    return Findings(f"why {found.run_id}", sheets, list(_lines(found, options)), found.verdict.line)


def _lines(found: RunExplanation, options: str) -> Iterator[str]:
    if found.fall is not None:
        before, after = percent(found.fall.before), percent(found.fall.after)
        yield f"success fell at step {found.fall.step}: {before} before it, {after} after"
    if not found.num_read:
        yield "cannot say more: none of its trajectories is kept"
    elif not found.suspects:
        yield "cannot say why: tools, rewards, data and policy show nothing" if found.fall else "nothing is suspected"
    for at, one in enumerate(found.suspects, 1):
        since = f" since step {one.step}" if one.step > 1 else ""
        yield f"{at}. {one.kind.replace('_', ' ')}{since}: {one.seen}"
        yield f"   would be refuted by: {one.refuted_by}"
        yield f"   {one.advice}"
        for phase, step, k in one.shows:
            yield f"   rlf runs show {found.run_id} --phase {phase} --step {step} --trajectory {k}{options}"
    for moved in found.influences:
        if moved.trained is not None:
            change = f"{percent(moved.before)} to {percent(moved.after)}"
            yield f"held-out {moved.held_out!r}, {change}, was moved by training on {moved.trained!r}: {moved.seen}"
            yield f"   would be refuted by: {moved.refuted_by}"
    if unclear := [moved for moved in found.influences if moved.trained is None]:
        kinds = ", ".join(repr(moved.held_out) for moved in unclear)
        yield f"which training tasks moved held-out {kinds}: cannot say; {unclear[0].seen}, and {unclear[0].refuted_by}"
