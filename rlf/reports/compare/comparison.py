"""A comparison as a whole: arms, what differs, results, and a plain sentence of verdict for each arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.reports.compare.arms import Arm
from rlf.reports.compare.differences import Cause, Difference, differences
from rlf.reports.compare.names import named_by_difference
from rlf.reports.compare.outcomes import Basis, Contrast, Outcome, contrasts, default_threshold, outcome
from rlf.reports.power import Power, power_of
from rlf.reports.quantities import level, p_value, points, points_range
from rlf.types.events import RunStatus

_NAMED = 3
"""Differences of one cause that a sentence names."""


@dataclass(frozen=True, slots=True)
class Comparison(Jsonable):
    """How several arms differ; the first one is the baseline. JSON has no curves and attempts: `--csv` has these."""

    arms: tuple[Arm, ...]
    mode: str | None
    """The mode of evaluation that is compared; None where the arms share none."""
    threshold: float
    differences: tuple[Difference, ...]
    outcomes: tuple[Outcome, ...]
    """By arm."""
    contrasts: tuple[Contrast | None, ...]
    """By arm after the first; None where nothing can be compared."""
    verdicts: tuple[str, ...]
    """One sentence or more, by arm after the first."""
    power: Power | None
    """What a comparison of so many questions and arms can show, whatever comes out; None where arms are several runs,
    were asked different questions, or nothing is compared."""
    markdown: str = field(default="", repr=False, metadata={"json": None})
    """The comparison for people, where it was asked for."""

    def _repr_markdown_(self) -> str:
        return self.markdown


def compare(
    arms: Sequence[Arm], mode: str | None = None, threshold: float | None = None, *, at_ends: bool = False
) -> Comparison:
    """Compares arms.

    Args:
        mode: `sampled` or `greedy`; None takes the sampled evaluations where all arms have some.
        threshold: held-out success whose cost is told; None: nine tenths of the best.
        at_ends: whether each run's last evaluation is compared, although it follows more updates than another's.

    Raises:
        RlfError: an arm was not evaluated in the mode.
    """
    arms = named_by_difference(arms)
    shared = [found for found in arms[0].modes if all(found in arm.modes for arm in arms)]
    if mode is not None and mode not in shared:
        raise RlfError(
            f"--mode: got {mode!r}; the runs share {', '.join(shared) or 'no evaluation'}. Name one of these."
        )
    chosen = mode or (shared[0] if shared else None)
    level = default_threshold(arms, chosen or "") if threshold is None else threshold
    found = (None,) * (len(arms) - 1) if chosen is None else contrasts(arms, chosen, at_ends=at_ends)
    return Comparison(
        arms=tuple(arms),
        mode=chosen,
        threshold=level,
        differences=tuple(differences(arms)),
        outcomes=tuple(outcome(arm, chosen or "", level) for arm in arms),
        contrasts=found,
        verdicts=tuple(verdict(arms[0], arm, one) for arm, one in zip(arms[1:], found, strict=True)),
        power=_find_power(found),
    )


def _find_power(found: Sequence[Contrast | None]) -> Power | None:
    paired = [one for one in found if one is not None and one.binary]
    if not paired or len(paired) < len(found):
        return None
    return power_of(min(one.num_questions for one in paired), len(paired))


def title_of(found: Comparison) -> str:
    """`A steps=5 against B steps=2`."""
    return " against ".join(f"{arm.letter} {arm.label}" for arm in found.arms)


def verdict(baseline: Arm, arm: Arm, found: Contrast | None) -> str:
    """Describes what the evaluations show of an arm against the baseline, and what they cannot show."""
    found_differences = differences([baseline, arm])
    if found is None:
        last = _last_steps(baseline, arm)
        why = "they share no evaluation" + (f" after as many steps ({last}; `--ends` compares these)" if last else "")
        sentences = [f"{arm.letter} cannot be compared with {baseline.letter}: {why}."]
    else:
        sentences = [
            f"{_describe_finding(baseline, arm, found)}; {_describe_differences(found_differences)}.",
            *_list_reservations(baseline, arm, found),
        ]
    return " ".join([*sentences, *_note_unfinished(baseline, arm)])


def _describe_finding(baseline: Arm, arm: Arm, found: Contrast) -> str:
    size = points(abs(found.difference))
    if found.interval is None:
        words = f"is {'above' if found.difference > 0 else 'below'} {baseline.letter} by {size}"
        both = (
            f"{arm.letter} {words}" if found.difference else f"{arm.letter} and {baseline.letter} have the same result"
        )
        return f"{both}; one question is too few for an interval"
    low, high = found.interval
    if not found.shown:
        same = found.binary and not found.flips
        if same:
            words = f"{arm.letter} and {baseline.letter} agree on each of {found.num_questions} questions"
            return f"{words} ({level(found.confidence)} CI {points_range(low, high)} points)"
        span = f"{points(found.difference, signed=True)}, {_describe_evidence(found, low, high)}"
        return f"No difference between {arm.letter} and {baseline.letter} is shown ({span})"
    ends = (low, high) if found.difference > 0 else (-high, -low)
    word = "better" if found.difference > 0 else "worse"
    return f"{arm.letter} is {word} than {baseline.letter} by {size} ({_describe_evidence(found, *ends)})"


def _describe_evidence(found: Contrast, low: float, high: float) -> str:
    parts = [f"{level(found.confidence)} CI {points_range(low, high)}"]
    match found.basis:
        case Basis.SEEDS:
            parts[0] += f" over {found.num_seeds[0]} and {found.num_seeds[1]} seeds"
        case Basis.QUESTIONS:
            parts.append(f"n = {found.num_questions}")
            parts += [f"{found.num_gained} gained, {found.num_lost} lost"] if found.binary else []
        case Basis.UNPAIRED:
            parts.append(f"unpaired, n = {found.num_questions} or more on each side")
    if found.p_adjusted is not None:
        several = f" by Holm over {found.num_compared} arms" if found.num_compared > 1 else ""
        parts.append(p_value(found.p_adjusted) + several)
    return ", ".join(parts)


def _describe_differences(found: Sequence[Difference]) -> str:
    """Where two arms differ, in words."""
    named = {cause: [item.what for item in found if item.cause is cause] for cause in Cause}
    parts = [_PHRASES[cause].format(_join_names(what)) for cause, what in named.items() if what]
    if not parts:
        return "nothing that the lineage records differs between them"
    if len(parts) == 1:
        return f"they differ in {parts[0]} only"
    return f"they differ in {', '.join(parts[:-1])} and {parts[-1]}"


_PHRASES = {
    Cause.PLAN: "the plan's {}",
    Cause.FILE: "the content of {}",
    Cause.DATA: "the data in {}",
    Cause.MODEL: "the starting model ({})",
    Cause.CODE: "the version of {}",
    Cause.CHANGE: "the accepted change of {}",
    Cause.PACKAGE: "the package versions of {}",
    Cause.MACHINE: "the machine's {}",
}


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _list_reservations(baseline: Arm, arm: Arm, found: Contrast) -> list[str]:
    sentences = []
    if found.basis is Basis.UNPAIRED:
        sentences.append("They were asked different questions.")
    elif found.basis is Basis.QUESTIONS:
        seeds = "one run on a side" if min(found.num_seeds) == 1 else "seeds that all gave the same result"
        sentences.append(f"With {seeds} this holds for these models only; other seeds may give another result.")
        if found.num_not_shared:
            sentences.append(f"{found.num_not_shared} further questions were not asked in all runs and do not count.")
    if last := _last_steps(baseline, arm):
        if found.step is None:
            sentences.append(f"They were last evaluated after different numbers of steps: {last}.")
        else:
            untrained = ", which is before any training" if found.step == 0 else ""
            words = f"This is after step {found.step}, the newest that both were evaluated at{untrained}"
            sentences.append(f"{words}. Their last evaluations are after other steps: {last}; `--ends` compares these.")
    return sentences


def _last_steps(baseline: Arm, arm: Arm) -> str:
    """`20 against 60` where the last evaluations follow different numbers of updates; empty where they do not."""
    last = [{member.evaluations[-1].step for member in side.members if member.evaluations} for side in (baseline, arm)]
    if last[0] == last[1] or not all(last):
        return ""
    return " against ".join(" and ".join(map(str, sorted(steps))) for steps in last)


def _note_unfinished(*arms: Arm) -> list[str]:
    return [
        f"Run {member.run.record.id} of {arm.letter} is {member.run.status} at step {member.run.last_step}."
        for arm in arms
        for member in arm.members
        if member.run.status is not RunStatus.FINISHED
    ]
