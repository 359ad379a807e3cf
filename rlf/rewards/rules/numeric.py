"""`rule: numeric`: the number of the answer equals a gold's, within a tolerance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from rlf.rewards.answers import MAX_CHARS, Answer, in_digits, read_answer_text, read_date, result_of, split_result
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds
from rlf.rewards.quantities import Found, Quantity, find_numbers, in_typed_form
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class Numeric(Rule):
    """1 if |answer - gold| <= tolerance * max(1, |gold|) for one of the golds, else 0.

    The number of a text is the last one, or where "the answer is", \\boxed{} or <answer> announces it that one. Several
    that are named side by side ("5 or 6", "5-6", "5, 6"), one that is denied ("not 5") or only bounded ("at least 5")
    are none; "about 5" is 5. Numbers have digits in groups of three (1,000,000; 1 000 000; 1.000.000), a decimal point,
    or a decimal comma before other than three digits (4,2); they are fractions (1/2, 1 1/2, \\frac{1}{2}), powers
    (10^5, 3 x 10^5, 3e5), words (twelve, two million), and Unicode's forms of these. Of a date it is the year.

    Where gold and answer have a unit, both must be of one dimension, and are compared in the gold's: 1 km is 1000 m,
    and not 1 kg. Without a unit an answer is in the gold's, and the other way round; a percentage is also its share, so
    that for 75 % both 75 and 0.75 are right.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "168", "answer": "It is 168."})

    gold_advice: ClassVar[str] = "Write each as one number, or `rule: exact_match`."

    rule: Literal["numeric"] = "numeric"
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """Relative to golds beyond 1, absolute within."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Compares the numbers; a task whose golds hold none is unscorable."""
        texts = golds(trajectory.task.answer)
        right = [number for text in texts if (number := number_in(text)) is not None]
        if not right:
            return Verdict(None, f"no number in the gold answer {', '.join(map(repr, texts))}")
        given = number_in(trajectory.answer or "")
        if given is None:
            return Verdict(0.0, "no number in the answer, or several")
        if any(gold.is_near(given, self.tolerance) for gold in right):
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {given}; expected {' or '.join(map(str, right))}")

    def read_gold(self, gold: str) -> Answer:
        number, whole = number_in(gold), read_answer_text(result_of(gold))
        if number is None:
            return whole._replace(fault="is no number, and is unscorable")
        others = len(re.findall(r"\d+", result_of(gold))) > 1 and whole.form != "number"
        return Answer("number", number.in_base(), number, f"is not one number; read as {number}" if others else "")


_LATER = re.compile(
    r",?\s(?:because|since|as|so|which|where|from|after|when|if|for|with|by|given|out of|in (?!fact)\w)|;|\s\(",
    re.IGNORECASE,
)
"""Where a result that was announced begins to explain itself."""


# What stands before a number that is denied: `not 5`, `isn't the number 5`, `anything but 5`.
_DENIAL = re.compile(
    r"(?:\b(?:not|never|neither|nor|except|without|excluding|cannot|no longer|rather than|instead of|other than|"
    r"(?:any|every|all)\w*(?:\s\w+)? but)\b|n't|!=|\\neq?|\u2260)"
    r"(?:\s{0,3}\b(?:be|equals?|to|exactly|the|is|it|it's|that|an?|answer|number|value|of|think|believe|for)\b){0,5}"
    r"\s{0,3}$",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:\b(?:(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger) than|at (?:least|most)|up to|above|below)"
    r"|(?<!\d\s)\b(?:under|over)"
    r"|[<>\u2264\u2265]=?|\\[lg](?:eq?|t)|\u00b1|\\pm|\+/-)\s{0,3}$",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\+(?!\s?[\d(])|\s{0,2}at (?:most|least)\b"
    r"|\s{0,2}(?:or|and) (?:more|less|fewer|higher|lower|above|below|up|over)\b"
    r"|\s{0,3}(?:isn't|wasn't|can't|cannot|(?:is|are|was|would be|seems)(?: clearly)? (?:wrong|incorrect|false"
    r"|impossible|too (?:small|large|big|high|low|much|many)|not (?:right|correct|the answer)))\b",
    re.IGNORECASE,
)
"""What stands behind a number that is a bound, or denied."""
_EITHER = re.compile(
    r"(?:\s[^\W\d_]+){0,2}[.,;!?]{0,2}\s{0,2}[(\[]?\b(?:or|maybe|perhaps|possibly|alternatively|versus|vs\.?"
    r"|(?:but )?it (?:could|might|may)(?: also)? be)\b(?:\s[^\W\d_]+){0,3}\s?|\s?(?:to|through|\.{2,3}|~)\s?|:",
    re.IGNORECASE,
)
"""Between numbers of which a text names either; a ratio or a time is neither of its numbers."""
_RANGE = re.compile(r"\s?[-\u2014]\s?")
_BESIDE = re.compile(r"\s{0,3}(?:[,;&\n]|,?\s?\band\b)\s{0,3}", re.IGNORECASE)
_AROUND_LIST = re.compile(r"\W*(?:(?:either|both|between|x\s?=)\W*)?", re.IGNORECASE)


@lru_cache(maxsize=512)
def number_in(answer: str) -> Quantity | None:
    """The number that an answer gives; None where it gives none, several, or one that it denies or only bounds.

    Of a result that is announced ("the answer is ...") it is that of the first sentence, of another text the last one.

    >>> [str(number_in(text)) for text in ("It is 3 + 4 = 7 km", "5 or 6", "not 5 but 6", "at least 5", "twelve")]
    ['7 km', 'None', '6', 'None', '12']
    """
    result, is_announced = split_result(answer[-MAX_CHARS:])
    if read_date(result) is not None:
        year = re.search(r"\d{4}", result)
        return Quantity(Fraction(year[0])) if year else None
    text = in_typed_form(in_digits(result))
    meant = _meant_numbers(text)
    if not meant:
        return None
    chosen = len(meant) - 1
    if is_announced:
        ends = (re.compile(r"[.!?](?=\s)|\n").search(text, meant[0].end), _LATER.search(text, meant[0].end))
        stop = min([match.start() for match in ends if match], default=len(text))
        chosen = max(at for at, number in enumerate(meant) if at == 0 or number.start < stop)
    joined = _joins(text, meant)
    first, last = chosen, chosen
    while first > 0 and joined[first - 1]:
        first -= 1
    while last < len(joined) and joined[last]:
        last += 1
    quantity = meant[chosen].quantity
    return quantity if all(other.quantity.same(quantity) for other in meant[first : last + 1]) else None


def _meant_numbers(text: str) -> list[Found]:
    """The numbers that are not denied and no bounds; what is joined to one that is denied is denied as well."""
    meant, denied_to = list[Found](), -1
    for number in find_numbers(text):
        before = text[max(0, number.start - 60) : number.start]
        joined = denied_to >= 0 and re.fullmatch(r"\s?(?:,|,?\s?(?:or|nor|and))\s?", text[denied_to : number.start])
        if joined or _DENIAL.search(before):
            denied_to = number.end
        elif not (_BOUND.search(before) or _OPEN.match(text, number.end)):
            meant.append(number)
    return meant


def _joins(text: str, numbers: Sequence[Found]) -> list[bool]:
    """Of each number but the last, whether the text names it and the next side by side, as different answers."""
    between = [text[one.end : other.start] for one, other in pairwise(numbers)]
    around = text[: numbers[0].start] + text[numbers[-1].end :]
    is_list = all(map(_BESIDE.fullmatch, between)) and _AROUND_LIST.fullmatch(around) is not None
    return [
        is_list
        or _EITHER.fullmatch(part) is not None
        or (_RANGE.fullmatch(part) is not None and one.quantity.value < other.quantity.value)
        for part, (one, other) in zip(between, pairwise(numbers), strict=True)
    ]


def last_number(text: str) -> float | None:
    """The last finite number of a text; None when there is none.

    >>> last_number("about 1,250.5 km2")
    1250.5
    >>> [last_number(each) for each in ("\\u22125", "4,2", "1/2", "3 x 10^5", "1 000 000")]
    [-5.0, 4.2, 0.5, 300000.0, 1000000.0]
    """
    found = find_numbers(in_typed_form(text[-MAX_CHARS:]))
    return float(found[-1].quantity.value) if found else None
