"""Findings about a reward, term by term: the cause, who showed it, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlf.rewards.attack.causes import OF_ANSWERS, STRICTER, WORDS, Cause
from rlf.rewards.attack.profit import EPSILON, Attempt
from rlf.rewards.term import Term
from rlf.rewards.weight import WeightSchedule


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a reward."""

    cause: Cause
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

    gold: Attempt
    twin: Attempt
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


def find_causes(
    standard: Standard | None, attempts: Sequence[Attempt], share: float, terms: Sequence[Term], step: int
) -> list[Finding]:
    """The faults of each term that pays for what is not skill, each by the simplest behaviour that shows it.

    Args:
        attempts: the simplest first.
        share: the part of the reward of being right from which on a behaviour is a hack.
    """
    if standard is not None and not standard.is_paid:
        return [_find_unpaid(standard, terms)]
    found: dict[tuple[str, Cause], Finding] = {}
    explained = set[str]()
    for attempt in attempts:
        term = max((each.name for each in terms), key=lambda name: attempt.contributions.get(name, 0.0))
        cause = attempt.cause or Cause.COMBINATION
        if not attempt.is_hack(share) or term in explained or (term, cause) in found:
            continue
        if cause not in OF_ANSWERS:
            if any(name == term for name, _ in found):
                continue
            explained.add(term)
        found[term, cause] = _make_finding(attempt, term, cause, standard, terms, share, step)
    return list(found.values())


def _find_unpaid(standard: Standard, terms: Sequence[Term]) -> Finding:
    gold, twin = standard.gold, standard.twin
    words = f"a right answer earns {gold.reward:g}, a wrong one {twin.reward:g}"
    reading = next((term for term in terms if term.needs_answer), None)
    name = terms[0].name if reading is None else reading.name
    advice = (
        f"{words}; add a term that compares the answer with the gold, e.g. `rule: exact_match`, unless the reward is "
        "for what calls do, which no behaviour here can test"
        if reading is None
        else f"{words}; give this term a positive weight that outweighs the others"
    )
    cause = Cause.RIGHT_IS_NOT_PAID
    return Finding(cause, WORDS[cause], name, twin.name, None, None, advice)


def _make_finding(
    attempt: Attempt,
    term: str,
    cause: Cause,
    standard: Standard | None,
    terms: Sequence[Term],
    share: float,
    step: int,
) -> Finding:
    deciding = None if standard is None else standard.deciding_term
    if cause is Cause.PADDING:
        advice = "let calls add nothing to a right answer"
    elif deciding is None or term == deciding:
        advice = STRICTER.get(cause, "make it compare the answer with the gold, or require another term that does")
    else:
        advice = f"gate it with `when: {{term: {deciding}}}`{_or_weight(attempt, term, standard, terms, share, step)}"
    return Finding(cause, WORDS[cause], term, attempt.name, attempt.share, attempt.max_share, advice)


def _or_weight(
    attempt: Attempt, name: str, standard: Standard | None, terms: Sequence[Term], share: float, step: int
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
