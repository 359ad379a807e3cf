"""A comparison as a whole: arms, what differs, results, and a plain sentence of verdict for each arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlf.apps.compare.arms import Arm, ArmDifference, DifferenceCause, arm_differences, named_by_difference, shared_step
from rlf.apps.compare.outcomes import (
    ArmOutcome,
    Basis,
    Contrast,
    contrasts,
    default_threshold,
    find_no_share,
    outcome,
    tries_at,
)
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.text import list_some
from rlf.lineage.records import StoredTrajectory, TrajectorySummary
from rlf.reports.pages.render import SidePair, beside, side
from rlf.reports.paired import Power, power_of
from rlf.reports.sheets import counted, level, p_value, percent, points, points_range, rate, visible
from rlf.reports.trajectory import ReadOpening, no_opening
from rlf.types.events import RunStatus

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class Comparison(Jsonable):
    """How several arms differ; the first one is the baseline. JSON has no curves and attempts: `--csv` has these."""

    arms: tuple[Arm, ...]
    mode: str | None
    """The mode of evaluation that is compared; None where the arms share none."""
    threshold: float
    differences: tuple[ArmDifference, ...]
    outcomes: tuple[ArmOutcome, ...]
    """By arm."""
    contrasts: tuple[Contrast | None, ...]
    """By arm after the first; None where nothing can be compared."""
    verdicts: tuple[str, ...]
    """One sentence or more, by arm after the first; of a single arm on its mean over the seeds."""
    power: Power | None
    """What a comparison of so many questions and arms can show, whatever comes out; None where arms are several runs,
    were asked different questions or those in clusters, or nothing is compared."""
    markdown: str = field(default="", repr=False, metadata={"json": None})
    """The comparison for people, where it was asked for."""

    def _repr_markdown_(self) -> str:
        return self.markdown


def compare_arms(
    arms: Sequence[Arm], mode: str | None = None, threshold: float | None = None, *, at_ends: bool = False
) -> Comparison:
    """Compares arms.

    Args:
        mode: `sampled` or `greedy`; None takes the sampled evaluations where all arms have some.
        threshold: held-out success whose cost is shown; None: nine tenths of the best.
        at_ends: whether each run's last evaluation is compared, although it follows more updates than another's.

    Raises:
        RlfError: an arm was not evaluated in the mode, or one run is all that there is.
    """
    if len(arms) == 1 and len(arms[0].members) == 1:
        raise RlfError(
            f"got run {arms[0].runs[0]} alone; expected two or more. Write two runs or a sweep, and commas between the "
            "seeds of one arm: `rlf runs compare A1,A2 B1,B2`."
        )
    arms = named_by_difference(arms)
    shared = [found for found in arms[0].modes if all(found in arm.modes for arm in arms)]
    if mode is not None and mode not in shared:
        raise RlfError(
            f"--mode: got {mode!r}; the runs share {', '.join(shared) or 'no evaluation'}. Name one of these."
        )
    chosen = mode or (shared[0] if shared else None)
    level = default_threshold(arms, chosen or "") if threshold is None else threshold
    found = (None,) * (len(arms) - 1) if chosen is None else contrasts(arms, chosen, at_ends=at_ends)
    no_shares = [
        chosen and find_no_share((arms[0], arm), chosen, None if at_ends else shared_step([arms[0], arm], chosen))
        for arm in arms[1:]
    ]
    return Comparison(
        arms=tuple(arms),
        mode=chosen,
        threshold=level,
        differences=tuple(arm_differences(arms)),
        outcomes=tuple(outcome(arm, chosen or "", level) for arm in arms),
        contrasts=found,
        verdicts=tuple(
            verdict(arms[0], arm, one, no_share) for arm, one, no_share in zip(arms[1:], found, no_shares, strict=True)
        )
        or (_describe_mean(arms[0], chosen),),
        power=_find_power(found),
    )


def _describe_mean(arm: Arm, mode: str | None) -> str:
    """What chance does to one setting: `Mean of 3 seeds 50.0 % (25.2–74.8 %)`."""
    found = outcome(arm, mode or "", 1.0).final
    size = counted(len(arm.members), "seed")
    words = "no evaluation that all have" if found is None else rate(found.value, found.interval)
    return " ".join([f"Mean of {size}, {mode or 'no mode'}: {words}.", *_note_members(arm), *_note_unfinished(arm)])


def _find_power(found: Sequence[Contrast | None]) -> Power | None:
    paired = [one for one in found if one is not None and one.binary and one.num_clusters is None]
    if not paired or len(paired) < len(found):
        return None
    return power_of(min(one.num_questions for one in paired), len(paired))


def title_of(found: Comparison) -> str:
    """`A steps=5 against B steps=2`."""
    return " against ".join(f"{arm.letter} {arm.label}" for arm in found.arms)


def verdict(baseline: Arm, arm: Arm, found: Contrast | None, no_share: str | None = None) -> str:
    """Describes what the evaluations show of an arm against the baseline, and what they cannot show.

    Args:
        no_share: the run whose success is outside 0 to 1, in words.
    """
    found_differences = arm_differences([baseline, arm])
    if found is None and no_share is not None:
        why = f"success must lie within 0 to 1, and {no_share}. Declare `success:` in the spec and evaluate again"
        sentences = [f"{arm.letter} cannot be compared with {baseline.letter}: {why}."]
    elif found is None:
        last = _last_steps(baseline, arm)
        why = "they share no evaluation" + (f" after as many steps ({last}; `--ends` compares these)" if last else "")
        sentences = [f"{arm.letter} cannot be compared with {baseline.letter}: {why}."]
    else:
        sentences = [
            f"{_describe_finding(baseline, arm, found)}; {_describe_differences(found_differences)}.",
            *_list_reservations(baseline, arm, found),
        ]
    return " ".join([*sentences, *_note_members(baseline, arm), *_note_unfinished(baseline, arm)])


def _describe_finding(baseline: Arm, arm: Arm, found: Contrast) -> str:
    size = points(abs(found.difference))
    if found.basis is Basis.UNPAIRED:
        rates = " and ".join(
            f"{percent(mean)} of the questions of {one.letter}"
            for mean, one in zip(found.means, (baseline, arm), strict=True)
        )
        why = f"no question was scored in every run ({rates} came out right)"
        return f"{arm.letter} cannot be called better or worse than {baseline.letter}: {why}"
    if found.basis is Basis.RUNNING:
        so_far = f"{points(found.difference, signed=True)} so far, n = {found.num_questions}"
        return f"Of {arm.letter} against {baseline.letter} no claim is made yet: a run is running ({so_far})"
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
            parts.append(f"n = {found.num_questions} questions")
        case Basis.QUESTIONS:
            parts.append(f"n = {found.num_questions}")
            parts += [f"{found.num_gained} gained, {found.num_lost} lost"] if found.binary else []
    parts += [] if found.num_clusters is None else [f"{found.num_clusters} clusters"]
    if found.p_adjusted is not None:
        several = f" by Holm over {found.num_compared} arms" if found.num_compared > 1 else ""
        looks = f" at {counted(found.num_looks, 'look')}" if found.num_looks else ""
        parts.append(p_value(found.p_adjusted) + several + looks)
    return ", ".join(parts)


def _describe_differences(found: Sequence[ArmDifference]) -> str:
    """Where two arms differ, in words."""
    named = {cause: [item.what for item in found if item.cause is cause] for cause in DifferenceCause}
    parts = [_PHRASES[cause].format(list_some(what)) for cause, what in named.items() if what]
    if not parts:
        return "nothing that the lineage records differs between them"
    if len(parts) == 1:
        return f"they differ in {parts[0]} only"
    return f"they differ in {', '.join(parts[:-1])} and {parts[-1]}"


_PHRASES = {
    DifferenceCause.PLAN: "the plan's {}",
    DifferenceCause.FILE: "the content of {}",
    DifferenceCause.DATA: "the data in {}",
    DifferenceCause.MODEL: "the starting model ({})",
    DifferenceCause.CODE: "the version of {}",
    DifferenceCause.CHANGE: "the accepted change of {}",
    DifferenceCause.PACKAGE: "the package versions of {}",
    DifferenceCause.MACHINE: "the machine's {}",
}


def _list_reservations(baseline: Arm, arm: Arm, found: Contrast) -> list[str]:
    sentences = []
    if found.basis is Basis.QUESTIONS:
        seeds = "one run on a side" if min(found.num_seeds) == 1 else "seeds that all gave the same result"
        sentences.append(f"With {seeds} this holds for these models only; other seeds may give another result.")
    if found.num_looks and found.basis is not Basis.RUNNING:
        why = "which may have been ended for what it showed: p and interval allow for each of its evaluations"
        sentences.append(f"Not every run finished its steps, {why}.")
    if found.num_clusters == 1:
        sentences.append("All questions are of one cluster, which says nothing of any other.")
    if found.num_not_shared and found.basis is not Basis.UNPAIRED:
        number = found.num_not_shared
        words = "1 further question was" if number == 1 else f"{number} further questions were"
        counts = f"some run of {baseline.letter} lacks {found.num_lacking[0]}, of {arm.letter} {found.num_lacking[1]}"
        sentences.append(f"{words} not scored in all runs and {'does' if number == 1 else 'do'} not count ({counts}).")
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


def _note_members(*arms: Arm) -> Iterator[str]:
    """What joins runs of an arm that were not made alike, and which of them do not count."""
    for arm in arms:
        if other := arm.list_other_code():
            yield f"Runs of {arm.letter} differ in {list_some(other)}."
        if len(arm.repeats) == 1:
            what = f"Run {arm.repeats[0]} has the plan and the seed of another run of {arm.letter} and does"
            yield f"{what} not count."
        elif arm.repeats:
            names = f"{', '.join(arm.repeats[:-1])} and {arm.repeats[-1]}"
            yield f"Runs {names} have the plan and the seed of another run of {arm.letter} and do not count."


def _note_unfinished(*arms: Arm) -> list[str]:
    return [
        f"Run {member.run.record.id} of {arm.letter} is {member.run.status} at step {member.run.last_step}."
        for arm in arms
        for member in arm.members
        if member.run.status is not RunStatus.FINISHED
    ]


# Questions that came out differently, with both trajectories whole.

MATRIX_FLIPS = 512
"""Questions for each arm whose first differing turn is looked for."""


@dataclass(frozen=True, slots=True)
class ComparisonExample:
    """One question as the first runs of two arms answered it at their last evaluation."""

    task_id: str
    left_letter: str
    left: StoredTrajectory
    right_letter: str
    right: StoredTrajectory

    @property
    def question(self) -> str:
        """The last message of the prompt, in one line."""
        messages = self.left.scored.trajectory.task.messages
        return visible(" ".join(messages[-1].content.split()) if messages else self.task_id)

    @property
    def gained(self) -> bool:
        """Whether the right side did better."""
        return (self.right.summary.success or 0.0) > (self.left.summary.success or 0.0)

    def pair(self, openings: Mapping[str, ReadOpening]) -> SidePair:
        """Both sides, turn beside turn. Args: openings: read what a policy saw before it, by the arm's letter."""
        sides = ((self.left_letter, self.left), (self.right_letter, self.right))
        return beside(*(side(name, one, openings.get(name, no_opening)(one.scored.trajectory)) for name, one in sides))


def read_examples(reader: Reader, found: Comparison, limit: int = MATRIX_FLIPS) -> list[ComparisonExample]:
    """The first `limit` flips of each arm against the baseline; those that the arm lost come first."""
    examples = []
    for arm, contrast in zip(found.arms[1:], found.contrasts, strict=True):
        flips = sorted(contrast.flips, key=lambda flip: flip.gained)[:limit] if contrast is not None else []
        for flip in flips:
            sides = ((found.arms[0], flip.left), (arm, flip.right))
            left, right = (
                reader.trajectory(one.members[0].run.record.id, k=summary.k, step=summary.step, phase=summary.phase)
                for one, summary in sides
            )
            examples.append(ComparisonExample(flip.task_id, found.arms[0].letter, left, arm.letter, right))
    return examples


def first_of_each(examples: Sequence[ComparisonExample], number: int) -> Iterator[ComparisonExample]:
    """The first few of each arm."""
    num_seen: Counter[str] = Counter()
    for example in examples:
        num_seen[example.right_letter] += 1
        if num_seen[example.right_letter] <= number:
            yield example


# Which questions came out differently: a row for each question, a column for each arm, and where two arms part.


@dataclass(frozen=True, slots=True)
class FlipRow:
    """One question, as the first runs of the arms answered it at their last evaluation."""

    task_id: str
    kind: str
    """Empty where the data names none."""
    question: str
    """Empty where no trajectory of it was read."""
    successes: tuple[float | None, ...]
    """By arm; None where the question was not asked or could not be scored."""
    turns: tuple[int | None, ...]
    """By arm: the first turn that differs from the baseline's. None for the baseline, without a flip, or unread."""

    @property
    def flipped(self) -> bool:
        """Whether any arm came out differently from the baseline."""
        return any(value is not None and value != self.successes[0] for value in self.successes[1:]) and (
            self.successes[0] is not None
        )


@dataclass(frozen=True, slots=True)
class KindRows:
    """The questions of one kind."""

    kind: str
    rows: tuple[FlipRow, ...]
    gained: tuple[int, ...]
    """By arm, the baseline's 0 with it."""
    lost: tuple[int, ...]
    first_turns: tuple[Counter[int], ...]
    """By arm: questions by the first turn that differs."""


def flip_matrix(found: Comparison, examples: Sequence[ComparisonExample]) -> list[KindRows]:
    """Every question that the arms were asked, by kind; the kinds with most flips first."""
    read = {(example.right_letter, example.task_id): example for example in examples}
    steps = [None if one is None else one.step for one in found.contrasts]
    compared = [
        tries_at(arm.members[0], found.mode or "", step)
        for arm, step in zip(
            found.arms, [*(steps[:1] or [None]), *steps], strict=True
        )  # the baseline as it met the first of them
    ]
    tries = [{item.task_id: item for item in items if item.sample_index == 0} for items in compared]
    rows = [_make_flip_row(task, tries, found, read) for task in dict.fromkeys(task for side in tries for task in side)]
    by_kind: dict[str, list[FlipRow]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    kinds = [_make_kind(kind, members, len(found.arms)) for kind, members in by_kind.items()]
    return sorted(kinds, key=lambda one: (-sum(one.gained) - sum(one.lost), one.kind))


def _make_flip_row(
    task: str,
    tries: Sequence[dict[str, TrajectorySummary]],
    found: Comparison,
    read: dict[tuple[str, str], ComparisonExample],
) -> FlipRow:
    items = [side.get(task) for side in tries]
    examples = [read.get((arm.letter, task)) for arm in found.arms]
    return FlipRow(
        task_id=task,
        kind=next((item.kind for item in items if item is not None and item.kind), ""),
        question=next((example.question for example in examples if example is not None), ""),
        successes=tuple(None if item is None or item.reward is None else item.success for item in items),
        turns=tuple(None if example is None else example.pair({}).first_difference for example in examples),
    )


def _make_kind(kind: str, rows: Sequence[FlipRow], num_arms: int) -> KindRows:
    def flips(place: int, *, gained: bool) -> int:
        pairs = [(row.successes[0], row.successes[place]) for row in rows]
        return sum(
            one is not None and other is not None and (other > one if gained else other < one) for one, other in pairs
        )

    return KindRows(
        kind,
        tuple(sorted(rows, key=lambda row: (not row.flipped, row.task_id))),
        tuple(flips(place, gained=True) for place in range(num_arms)),
        tuple(flips(place, gained=False) for place in range(num_arms)),
        tuple(Counter(turn for row in rows if (turn := row.turns[place])) for place in range(num_arms)),
    )


def turn_words(turns: Counter[int]) -> str:
    """`turn 1: 12, turn 2: 3`."""
    return ", ".join(f"turn {turn}: {number}" for turn, number in sorted(turns.items()))
