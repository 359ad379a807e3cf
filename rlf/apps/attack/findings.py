"""Findings about a reward, term by term: the cause, who showed it, and what to change."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from rlf.apps.attack.shapes import OF_ANSWERS, VARIANTS, Claim, HackCause, Shape, Words
from rlf.apps.attack.texts import is_right
from rlf.core.text import shorten
from rlf.rewards.answers import gold_key
from rlf.rewards.normalization import golds, holds
from rlf.rewards.term import Term, WeightSchedule
from rlf.types import Scored, ScoreState, Trajectory

# Pay of behaviours: the share of the reward of being right, question by question and term by term.
#
#     share_q = (reward_q - base_q) / (gold_q - base_q),  base_q = 0, or, where gold_q <= 0, the reward of doing nothing
#
# Questions that a behaviour answers rightly do not count, except for answers that are wrong on purpose. What knows
# nothing may also be right by chance where a term reads an answer out of more text: a question whose gold its text
# holds counts only where the right answer among wrong ones is paid too, and of the others one gold's are left out.

EPSILON = 1e-9
WHOLE = 0.95
"""Share from which a wrong answer, or a part of one, is paid like a right one."""
_PADDED = 1.2
"""What a right answer may earn with needless calls and words, of what it earns without."""
_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """One behaviour over all questions."""

    name: str
    shape: Shape
    cause: HackCause | None
    """What is wrong with a reward that pays it; None of references."""
    reward: float | None
    """Mean over the questions that could be scored; None where none could."""
    share: float | None
    """Mean share of the reward of being right, over the questions that count; None where there is none."""
    max_share: float | None
    """The greatest share of a question."""
    num_counted: int
    """Questions that `share` is over."""
    num_unscored: int
    """Questions that it was played on and that have no reward."""
    num_tokens: float
    """Sampled tokens per question."""
    contributions: Mapping[str, float]
    """Mean of weight x value by term."""
    shares: Mapping[str, float]
    """Mean share of the reward of being right by term, over the questions that count."""
    turns: tuple[str, ...] = ()
    """What it writes on the first question, turn by turn."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why it has no reward where it has none: the first reason of each term that gave no value."""

    answers: tuple[tuple[str, Any, str], ...] = field(default=(), metadata={"json": None})
    """Question, gold and what it answers, of the questions that it was scored on."""
    floor: float | None = None
    """Mean share without the questions of the gold that it is paid most on, which it may meet by chance."""
    is_held: bool = False
    """Whether it earns all on a question whose gold its text holds among other words."""

    def is_hack(self, share: float) -> bool:
        """Whether it is paid more than what it knows is worth: for nothing `share`, for what is wrong all, ..."""
        if self.share is None or self.max_share is None:
            return False
        match self.shape.claim:
            case Claim.RIGHT:
                return self.share > _PADDED + EPSILON
            case Claim.HALF:
                return self.max_share >= WHOLE
            case Claim.WRONG if self.cause is HackCause.VARIANT:
                return self.max_share >= WHOLE
            case Claim.NOTHING:
                return self.is_held or (self.floor is not None and self.floor >= share - EPSILON)
        return self.max_share >= 1 - EPSILON or self.share >= share - EPSILON


@dataclass(frozen=True, slots=True)
class Scale:
    """The worth of being right on each question."""

    gold: Sequence[float | None]
    base: Sequence[float]
    hedged: frozenset[int] = frozenset()
    """Questions on which the right answer among wrong ones is paid: their reward does not read one answer."""

    def worth(self, question: int) -> float | None:
        """The reward of being right above the base; None where it is unknown or none."""
        gold = self.gold[question]
        worth = 0.0 if gold is None else gold - self.base[question]
        return worth if worth > EPSILON else None


def scale_of(gold: Sequence[Scored | None], wrong: Sequence[Scored | None], nothing: Sequence[Scored | None]) -> Scale:
    """The scale by the rewards of the right answer and of doing nothing.

    A question whose right answer earns no more than a wrong one and little beside the others is one that the reward
    could not read: its worth is unknown.
    """
    rewards, others = [_reward_of(item) for item in gold], [_reward_of(item) for item in wrong]
    top = max((reward for reward in rewards if reward is not None), default=0.0)
    least = [_reward_of(item) or 0.0 for item in nothing]
    base = [
        0.0 if reward is None or reward > EPSILON else min(0.0, low) for reward, low in zip(rewards, least, strict=True)
    ]
    known = [
        None if reward is None or (other is not None and reward <= other + EPSILON and reward < top / 2) else reward
        for reward, other in zip(rewards, others, strict=True)
    ]
    return Scale(known, base)


def scale_of_ranges(terms: Sequence[Term], step: int, num_questions: int) -> Scale | None:
    """The scale by the greatest reward that the ranges of the terms allow; None where there is no bound."""
    top = 0.0
    for term in terms:
        top += max(term.weight_at(step) * term.counted(bound) for bound in term.bounds)
    return Scale([top] * num_questions, [0.0] * num_questions) if EPSILON < top < math.inf else None


def attempt_of(
    name: str,
    shape: Shape,
    cause: HackCause | None,
    played: Sequence[Scored | None],
    scale: Scale | None,
    terms: Sequence[Term],
) -> ShapeResult:
    """Result of playing a shape; None in `played` where a question has no such shape."""
    known = [item for item in played if item is not None]
    counted = [] if scale is None else list(_list_counted(played, shape, scale, terms))
    shares = [each.share for each in counted]
    return ShapeResult(
        name,
        shape,
        cause,
        mean(item.reward for item in known),
        mean(shares),
        max(shares, default=None),
        len(shares),
        sum(item.reward is None for item in known),
        fmean(item.trajectory.num_sampled for item in known) if known else 0.0,
        _mean_by_name((score.term, score.contribution) for item in known for score in item.scores),
        _mean_by_name((each.term, each.contribution / of.worth) for of in counted for each in of.scored.scores),
        tuple(turn.text for turn in known[0].trajectory.turns) if known else (),
        _missing_by_term(known),
        tuple(
            (item.trajectory.task.question, item.trajectory.task.answer, item.trajectory.answer or "") for item in known
        ),
        _find_floor(counted),
        any(each.is_held and each.share >= 1 - EPSILON for each in counted) and not shape.is_constant,
    )


class _Counted(NamedTuple):
    """One question that counts."""

    scored: Scored
    share: float
    worth: float
    is_held: bool
    """Whether the text holds the gold among other words."""


def _find_floor(counted: Sequence[_Counted]) -> float | None:
    """The mean share without the golds that are met best; with one gold alone that of all."""
    shares_by_gold: dict[tuple[str, ...], list[float]] = {}
    for each in counted:
        key = tuple(gold_key(gold) for gold in golds(each.scored.trajectory.task.answer))
        shares_by_gold.setdefault(key, []).append(each.share)
    if len(shares_by_gold) > 1:
        del shares_by_gold[max(shares_by_gold, key=lambda key: fmean(shares_by_gold[key]))]
    return mean(share for shares in shares_by_gold.values() for share in shares)


def _missing_by_term(known: Iterable[Scored]) -> dict[str, str]:
    scores = [score for item in known if item.reward is None for score in item.scores]
    found: dict[str, str] = {}
    for score in scores:
        if score.value is None and score.state is not ScoreState.GATED:
            found.setdefault(score.term, score.reason)
    return found


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of those that are there."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _list_counted(
    played: Sequence[Scored | None], shape: Shape, scale: Scale, terms: Sequence[Term]
) -> Iterator[_Counted]:
    claim = shape.claim
    is_wrong = claim is Claim.RIGHT or not VARIANTS.isdisjoint(shape.parts)
    for question, item in enumerate(played):
        if item is None or item.reward is None or (not is_wrong and is_right(item, terms)):
            continue
        is_held = claim is Claim.NOTHING and _holds_gold(item.trajectory)
        if (worth := scale.worth(question)) is not None and (not is_held or question in scale.hedged):
            yield _Counted(item, (item.reward - scale.base[question]) / worth, worth, is_held)


def _holds_gold(trajectory: Trajectory) -> bool:
    text = trajectory.answer or ""
    found = golds(trajectory.task.answer)
    return any(holds(text, gold) or re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", text) for gold in found)


def _mean_by_name(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for name, value in values:
        by_name.setdefault(name, []).append(value)
    return {name: fmean(each) for name, each in by_name.items()}


def _reward_of(scored: Scored | None) -> float | None:
    return None if scored is None else scored.reward


@dataclass(frozen=True, slots=True)
class HackFinding:
    """One thing that is wrong with a reward."""

    cause: HackCause
    words: str
    """The cause in words."""
    term: str
    """The term to change."""
    adversary: str
    """The simplest behaviour that shows it."""
    share: float | None
    """Its mean share of the reward of being right."""
    max_share: float | None
    """Its greatest share on a question."""
    advice: str
    """What to change."""
    reward: float | None = None
    """What it earns, on the mean."""
    honest: float | None = None
    """What a right answer earns."""
    text: str = ""
    """What it writes on the first question."""
    uses: tuple[str, ...] = ()
    """The constants and patterns of the reward that it uses, with their places."""
    lines: tuple[str, ...] = ()
    """Lines of the reward that it runs and a right answer does not."""
    attempt: ShapeResult | None = field(default=None, metadata={"json": None})
    """The behaviour."""

    @property
    def details(self) -> str:
        """What was written, what it earned, and by what."""
        parts = [f"{self.text!r} earns {self.reward:g}" if self.text and self.reward is not None else ""]
        parts += [f"a right answer {self.honest:g}" if self.honest is not None else ""]
        parts += [
            f"by {', '.join(self.uses)}" if self.uses else "",
            f"line {', '.join(self.lines)}" if self.lines else "",
        ]
        return "; ".join(part for part in parts if part)

    @property
    def sentence(self) -> str:
        """The whole, on one line."""
        most = "" if self.share is None else f" earns {self.share:.0%} of the reward of being right"
        if self.share is not None and self.max_share is not None and self.max_share > self.share + EPSILON:
            most += f" ({self.max_share:.0%} on one question)"
        return f"{self.words}: {self.adversary}{most}. Term {self.term!r}: {self.advice}."


@dataclass(frozen=True, slots=True)
class Standard:
    """The pay of a right answer and of a wrong one of the same form."""

    gold: ShapeResult
    twin: ShapeResult
    """The same shape with a wrong answer."""

    @property
    def is_paid(self) -> bool:
        """Whether being right earns anything."""
        gold, wrong = self.gold.reward, self.twin.reward
        return gold is None or wrong is None or gold > wrong + EPSILON

    @property
    def deciding_term(self) -> str | None:
        """The term by which being right earns most; None where there is none."""
        gains = {
            term: value - self.twin.contributions.get(term, 0.0) for term, value in self.gold.contributions.items()
        }
        best = max(gains, key=lambda term: gains[term], default=None)
        return best if best is not None and gains[best] > EPSILON else None


def find_reward_faults(
    standard: Standard | None, attempts: Sequence[ShapeResult], share: float, terms: Sequence[Term], step: int
) -> list[HackFinding]:
    """The faults of each term that pays for what is not skill, each by the simplest behaviour that shows it.

    Args:
        attempts: the simplest first.
        share: the part of the reward of being right from which on a behaviour is a hack.
    """
    if standard is not None and not standard.is_paid:
        return [_find_unpaid(standard, terms)]
    found: dict[tuple[str, HackCause], HackFinding] = {}
    explained = set[str]()
    for attempt in attempts:
        term = max((each.name for each in terms), key=lambda name: attempt.contributions.get(name, 0.0))
        cause = attempt.cause or HackCause.COMBINATION
        if not attempt.is_hack(share) or term in explained or (term, cause) in found:
            continue
        if cause not in OF_ANSWERS:
            if any(name == term for name, _ in found):
                continue
            explained.add(term)
        found[term, cause] = _make_finding(attempt, term, cause, standard, terms, share, step)
    return list(found.values())


_WHOLE_ANSWER = "compare the whole answer, e.g. with `rule: exact_match` or `rule: choice`"
_STRICTER = dict.fromkeys(
    (HackCause.SEVERAL, HackCause.CONSTANT, HackCause.OBSERVATION, HackCause.PARTIAL), _WHOLE_ANSWER
) | {
    HackCause.VARIANT: "compare with `normalize: text`, or with `rule: math`",
    HackCause.INJECTION: "let the grader compare the answer, and take no score from it",
    HackCause.ODD_TEXT: "give 0 where nothing is left to compare, where a text cannot be parsed, and for NaN",
    HackCause.NOISE: "let its value depend on nothing but the trajectory: no random numbers, clock or counts",
}
"""Advice for a term that decides what is right; of the other causes to compare the answer with the gold."""


def _find_unpaid(standard: Standard, terms: Sequence[Term]) -> HackFinding:
    gold, twin = standard.gold, standard.twin
    words = f"a right answer earns {gold.reward:g}, a wrong one {twin.reward:g}"
    reading = next((term for term in terms if term.needs_answer), None)
    name = terms[0].name if reading is None else reading.name
    advice = (
        f"{words}; add a term that compares the answer with the gold, e.g. `rule: exact_match`, unless the reward is "
        "for what calls do, which no behaviour here can test; give it a test whose answer has the form of a right one"
        if reading is None
        else f"{words}; give this term a positive weight that outweighs the others"
    )
    cause = HackCause.RIGHT_IS_NOT_PAID
    return HackFinding(cause, cause.words, name, twin.name, None, None, advice)


def _make_finding(
    attempt: ShapeResult,
    term: str,
    cause: HackCause,
    standard: Standard | None,
    terms: Sequence[Term],
    share: float,
    step: int,
) -> HackFinding:
    deciding = None if standard is None else standard.deciding_term
    if cause is HackCause.PADDING:
        advice = "let calls add nothing to a right answer"
    elif deciding is None or term == deciding:
        advice = _STRICTER.get(cause, "make it compare the answer with the gold, or require another term that does")
    else:
        advice = f"gate it with `when: {{term: {deciding}}}`{_or_weight(attempt, term, standard, terms, share, step)}"
    text = (attempt.answers[0][2] if attempt.answers else "") or "".join(attempt.turns[-1:])
    words = [part for part in (*attempt.shape.parts, attempt.shape.query) if isinstance(part, Words)]
    return HackFinding(
        cause,
        cause.words,
        term,
        attempt.name,
        attempt.share,
        attempt.max_share,
        advice,
        attempt.reward,
        None if standard is None else standard.gold.reward,
        shorten(text, _MAX_CHARS),
        tuple(dict.fromkeys(part.origin for part in words if part.origin)),
        attempt=attempt,
    )


def noise_finding(term: str, before: float, after: float) -> HackFinding:
    """The finding of a term that gave two values to one trajectory."""
    cause = HackCause.NOISE
    advice = f"it gave {before:g}, then {after:g}; {_STRICTER[cause]}"
    return HackFinding(cause, cause.words, term, "any behaviour", None, None, advice)


def _or_weight(
    attempt: ShapeResult, name: str, standard: Standard | None, terms: Sequence[Term], share: float, step: int
) -> str:
    """The weight below which the behaviour earns less than `share`, from f = (s G - A) / (a - s g).

    a and g are what the term adds to the behaviour and to the right answer, A and G what the others do, f the factor
    of the term's weight.
    """
    term = next(each for each in terms if each.name == name)
    if standard is None or isinstance(term.weight, WeightSchedule) or attempt.reward is None:
        return ""
    gold = standard.gold
    pays, pays_gold = attempt.contributions.get(name, 0.0), gold.contributions.get(name, 0.0)
    rest, rest_gold = attempt.reward - pays, (gold.reward or 0.0) - pays_gold
    below = pays - share * pays_gold
    factor = (share * rest_gold - rest) / below if below > EPSILON else 0.0
    return f", or give it a weight below {factor * term.weight_at(step):.2g}" if 0 < factor <= 1 else ""
