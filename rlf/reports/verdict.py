"""The verdict on a run: its result in one word and one sentence, and what that does not rest on.

By the statistics that a comparison uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rlf.algo import ESTIMATORS
from rlf.reports.sheets import percent, visible
from rlf.reports.success import is_same, kind_words, missing_by_kind
from rlf.reports.summary import EvaluationChange, read_changes, shift_lines, shifts
from rlf.rollout.signal import Signal, step_signal
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader
    from rlf.lineage.records import LeftOut, LoggedEvent, Run, TrainingStep


class VerdictKind(StrEnum):
    """The result of a run."""

    LEARNED = "learned"
    """Held-out success rose by more than chance explains."""
    NO_CHANGE = "no change"
    """No change of held-out success is shown."""
    WORSE = "worse"
    """Held-out success fell by more than chance explains."""
    RUNNING = "running"
    """It has not ended, and who looks at each evaluation would find a change of nothing in up to a third of the runs:
    no claim is made yet."""
    NO_SIGNAL = "no signal"
    """No step's rewards held anything to learn success from."""
    NOT_MEASURED = "not measured"
    """There are no two evaluations to compare."""


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """A run's result."""

    kind: VerdictKind
    reason: str
    """The sentence behind it, with figures."""

    @property
    def line(self) -> str:
        """`verdict: learned: sampled: success rose by 6.1 points (...)`."""
        return f"verdict: {self.kind}: {self.reason}"


def read_verdict(reader: Reader, run_id: str, ended: RunStatus | None = None) -> RunVerdict:
    """The verdict on a run. Args: ended: as in `read_changes`."""
    run, changes = reader.get_run(run_id), read_changes(reader, run_id, ended)
    return judge_record(reader, run, reader.steps(run_id), changes, reader.events(run_id))


def judge_record(
    reader: Reader,
    run: Run,
    steps: Sequence[TrainingStep],
    changes: Sequence[EvaluationChange],
    events: Sequence[LoggedEvent],
) -> RunVerdict:
    """The verdict on a run from what is read of it already. Trajectories are counted where some have no reward."""
    is_lost = any(step.metrics.get("unscorable") for step in steps)
    left_out = None
    if is_lost:
        from rlf.lineage.calls import read_left_out

        left_out = read_left_out(reader.store, run.record.id)
    found = judge_run(steps, changes, by_group=compares_groups(run.record.plan.get("spec", {})))
    cause = _likely_cause(events) if found.kind is VerdictKind.NO_SIGNAL else ""
    if found.kind is VerdictKind.NO_CHANGE and all(
        change.after is not None and is_same(change.before.tries, change.after.tries) for change in changes
    ):
        cause = "every answer is as before training, so the weights hardly moved (train.learning_rate)"
    reported = {event.data["cause"] for event in events if "missing" in event.data and "cause" in event.data}
    parts = [found.reason, cause and f"likely: {cause}", *_left_out_words(steps, changes, left_out, reported)]
    return replace(found, reason="; ".join(filter(None, parts)))


def _left_out_words(
    steps: Sequence[TrainingStep], changes: Sequence[EvaluationChange], left_out: LeftOut | None, reported: Set[str]
) -> Iterator[str]:
    """What a result rests on less than it seems: rollouts and questions without a value, and which kinds they are.

    Args:
        reported: causes that the run warned of.
    """
    num_by_kind, causes = ({}, {}) if left_out is None else (left_out.num_by_kind, left_out.causes)
    num_lost, num_all = (sum(number[at] for number in num_by_kind.values()) for at in (0, 1))
    if num_lost:
        words = ", ".join(f"{cause} {number:,}" for cause, number in Counter(causes).most_common())
        yield f"training left out {num_lost:,} of {num_all:,} rollouts ({words}){kind_words(num_by_kind)}"
    for cause in sorted(reported - causes.keys()):  # terms that rewards were summed without
        name = f"rewards/{cause.removeprefix('reward term ')[1:-1]}/unscorable"
        if number := sum(step.metrics.get(name, 0.0) for step in steps):
            yield f"{cause} had no value for {number:,.0f} trajectories of training"
    if share := sum(step.metrics.get("left_out/length", 0.0) for step in steps) / max(1, len(steps)):
        yield f"steps left out {percent(share)} of their rollouts for their length, in the mean"
    for change in changes[:1]:
        if change.after is not None and (lost := missing_by_kind(change.before.tries, change.after.tries)):
            num_lost, num_all = (sum(number[at] for number in lost.values()) for at in (0, 1))
            yield f"{num_lost} of {num_all} questions have no value in both evaluations{kind_words(lost)}"


def _likely_cause(events: Sequence[LoggedEvent]) -> str:
    """The sign of the cause that most of the run's diagnoses name first; empty without any."""
    firsts = [event.data["causes"][0] for event in events if event.data.get("causes")]
    if not firsts:
        return ""
    (kind, _), *_ = Counter(cause["kind"] for cause in firsts).most_common(1)
    seen: str = next(cause["seen"] for cause in reversed(firsts) if cause["kind"] == kind)
    return seen


def verdict_text(verdict: RunVerdict) -> Text:
    """The verdict's line, coloured by what it says."""
    return Text(visible(verdict.line), f"bold {_STYLES[verdict.kind]}")


_STYLES = {
    VerdictKind.LEARNED: "green",
    VerdictKind.NO_CHANGE: "default",
    VerdictKind.WORSE: "red",
    VerdictKind.RUNNING: "default",
    VerdictKind.NO_SIGNAL: "yellow",
    VerdictKind.NOT_MEASURED: "default",
}


def compares_groups(spec: dict[str, Any]) -> bool:
    """Whether the estimator of a stored spec compares the rollouts of one task."""
    kind = spec.get("train", {}).get("algorithm", {}).get("kind", "")
    return kind not in ESTIMATORS.names() or ESTIMATORS.get(kind).needs_group


def judge_run(steps: Sequence[TrainingStep], changes: Sequence[EvaluationChange], *, by_group: bool) -> RunVerdict:
    """The verdict: a shown change first, the absence of a signal next; the first mode that shows one decides."""
    found = shifts(changes)
    lines = list(shift_lines(changes, found))
    present = [shift for shift in found if shift is not None]
    for shift, line in zip(present, lines, strict=True):
        if shift.finding is not None and shift.finding.shown:
            return RunVerdict(VerdictKind.LEARNED if shift.difference > 0 else VerdictKind.WORSE, line)
    without = Counter(step_signal(step.metrics, by_group=by_group) for step in steps)
    num_some = without.pop(Signal.SOME, 0)
    if steps and not num_some:
        num_steps = len(steps)
        each = [f"{_WORDS[signal]} in {number} of {num_steps} steps" for signal, number in without.most_common()]
        return RunVerdict(VerdictKind.NO_SIGNAL, ", ".join(each))
    if not lines:
        return RunVerdict(VerdictKind.NOT_MEASURED, "no two evaluations to compare")
    rest = f"; {len(steps) - num_some} of {len(steps)} steps had no signal" if without else ""
    running = any(shift.finding is None for shift in present)
    return RunVerdict(VerdictKind.RUNNING if running else VerdictKind.NO_CHANGE, f"{lines[0]}{rest}")


_WORDS = {
    Signal.NO_DIFFERENCE: "all rewards that are compared were equal",
    Signal.NO_GROUPS: "dynamic filtering kept no group",
    Signal.NO_SUCCESS: "no trajectory succeeded",
    Signal.NOT_SCORED: "no trajectory could be scored",
}
