"""Answers by type: the one reader of golds, and of what models answer, as numbers with units, dates, items or text.

A gold is read in whole, or as text. Of an answer only its result is read, and a result that names several different
answers ("5 or 6"), denies one ("not 5") or only bounds it ("at least 5") is none. What can be read in two ways is text
("01/03/2024"), or read in the one way that is stated here and in `rlf.rewards.quantities`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from rlf.core.redact import fold
from rlf.rewards.normalization import Normalization, golds, normalize, plain_text, same_text
from rlf.rewards.quantities import Quantity, find_numbers, in_typed_form, units_of
from rlf.types import Task

MAX_CHARS = 20_000


class Answer(NamedTuple):
    """A text as it is compared."""

    form: str
    """`number`, `date`, `items`, `choice`, `mathematics` or `text`."""
    value: str
    """What is equal for equal answers; of a number with its unit in the first unit of its dimension."""
    quantity: Quantity | None = None
    """Of a number."""
    fault: str = ""
    """Why it is not what its rule compares, in words; empty where it is."""


# Texts in whole.

_LEADING_ZERO = re.compile(r"[-+]?0\d+")
_DIGITS = re.compile("-?[1-9][0-9]{0,14}")  # what most tasks with numbers have as golds, read at once
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?", r"(?P<year>\d{4})"
_DATES = [
    re.compile(rf"(?:[a-z]{{3,6}}day,?\s)?{form}", re.IGNORECASE)
    for form in (
        rf"{_YEAR}(?P<mark>[-/.])(?P<first>\d{{1,2}})(?P=mark)(?P<second>\d{{1,2}})",
        rf"(?P<first>\d{{1,2}})(?P<mark>[-/.])(?P<second>\d{{1,2}})(?P=mark){_YEAR}",
        rf"(?:the\s)?{_DAY}\s(?:of\s)?{_MONTH},?\s{_YEAR}",
        rf"{_MONTH}\s(?:the\s)?{_DAY},?\s{_YEAR}",
        rf"(?:the\s)?{_DAY}\s(?:of\s)?{_MONTH}",
        rf"{_MONTH}\s(?:the\s)?{_DAY}",
        rf"{_MONTH},?\s{_YEAR}",
    )
]
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_LARGE = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}
_WORD = rf"(?:{'|'.join([*_ONES, *_TENS, *_LARGE])})"
_IN_WORDS = re.compile(
    rf"\b{_WORD}(?:(?:\s|-|\sand\s){_WORD})*(?:[\s-](?:{'|'.join(_PARTS)})s?)?\b|\bhalf\b", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def read_answer_text(text: str) -> Answer:
    """A text in whole: a date, a number with or without a unit, else text.

    A number with zeros in front is a code, and text.

    >>> [read(text)[:2] for text in ("March 1, 2024", "1 km", "75 %", "twelve", "007")]
    [('date', '2024-03-01'), ('number', '1000 m'), ('number', '0.75'), ('number', '12'), ('text', '007')]
    """
    if _DIGITS.fullmatch(text):
        return Answer("number", text, Quantity(Fraction(int(text))))
    written = read_date(text)
    if written is not None:
        fault = "" if written else "may be two dates, and is compared as text: write 2024-03-01"
        return Answer("date", written) if written else Answer("text", normalize(text), fault=fault)
    bare = fold(text).strip(" \n\t*`_\"'").rstrip(".!")
    typed = in_typed_form(in_digits(bare)).strip()
    found = [] if _LEADING_ZERO.fullmatch(bare) else find_numbers(typed)
    if found and (found[0].start, found[0].end) == (0, len(typed)):
        return Answer("number", found[0].quantity.in_base(), found[0].quantity)
    return Answer("text", normalize(text) or plain_text(text))


def read_date(text: str) -> str | None:
    """A date as ISO 8601 has it, without what it does not say; empty where day and month may be either.

    >>> [read_date(text) for text in ("2024-03-01", "1st of March 2024", "25/12/2024", "01/03/2024", "May 2024", "May")]
    ['2024-03-01', '2024-03-01', '2024-12-25', '', '2024-05', None]
    """
    text = " ".join(fold(text).strip(" .!*`\n").split())
    match = next((found for form in _DATES if (found := form.fullmatch(text))), None)
    if match is None:
        return None
    parts = match.groupdict()
    year, month, day = parts.get("year"), (parts.get("month") or "")[:3].casefold(), int(parts.get("day") or 0)
    number = _MONTHS.index(month) + 1 if month else 0
    if "first" in parts:
        number, day = int(parts["first"]), int(parts["second"])
        if not text.startswith(year or ""):  # no year in front, so that the day may be
            if number != day and max(number, day) <= 12:
                return ""
            number, day = min(number, day) if max(number, day) > 12 else number, max(number, day)
    if number > 12 or day > 31:
        return None
    return "-".join([year or "-", f"{number:02}", *([f"{day:02}"] if day else [])])


def in_digits(text: str) -> str:
    """A text without digits with its numbers in digits: "twenty-one", "two thirds"; "one" only where it is all."""
    if re.search(r"\d", text):
        return text
    word, _, rest = text.strip(" .!*").partition(" ")
    if word.casefold() == "one" and (not rest or units_of(rest)):
        return f"1 {rest}"
    return _IN_WORDS.sub(lambda words: words[0] if words[0].casefold() == "one" else _digits(words[0]), text)


def _digits(words: str) -> str:
    total, part = 0, 0
    for word in re.split(r"[\s-]+", words.casefold()):
        if word in _ONES:
            part += _ONES.index(word)
        elif word in _TENS:
            part += 10 * _TENS.index(word) + 20
        elif word in ("hundred", "dozen"):
            part = max(part, 1) * _LARGE[word]
        elif word in _LARGE:
            total, part = total + max(part, 1) * _LARGE[word], 0
        elif word != "and":
            return f"{max(total + part, 1)}/{_PARTS[word.removesuffix('s')]}"
    return str(total + part)


# The result of an answer: what it gives as its answer.

_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL | re.IGNORECASE)
_RESULT = re.compile(
    r"\b(?:answer|result|solution|value)s?(?:\s(?:to|for|of)\s[^.\n:=]{1,60}?)?[*_]{0,3}\s?"
    r"(?:\b(?:is|are|was|would be|should be)\b|:|=|->|\u2192|-\s|\n)(?:\s?:)?[*_]{0,3}|####",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\s*\$?\\(?:text|textbf|textit|mathrm|mathbf)\s?\{([^{}]*)\}\$?\.?\s*")
_BETWEEN_BOXES = re.compile(r"[\s$]*,?[\s$]*(?:and|or)?[\s$]*")


def result_of(answer: str) -> str:
    """The part that an answer gives as its result.

    Behind the thinking it is the last <answer>, else the last box, else what follows the last "the answer is", or all.

    >>> [result_of(text) for text in ("So 5? The answer is 6.", "<think>5</think> 6", "5, no: \\\\boxed{6}")]
    ['6.', '6', '6']
    """
    return split_result(answer)[0]


def split_result(answer: str) -> tuple[str, bool]:
    """The result of an answer, and whether it was announced in a sentence."""
    text, is_marked = marked_part(answer)
    said = [] if is_marked else list(_RESULT.finditer(text))
    after = text[said[-1].end() :].strip() if said else ""
    return (after, True) if after else (text.strip(), False)


def marked_part(answer: str) -> tuple[str, bool]:
    """What stands in the last <answer>, else in the last box, and True; else what follows the thinking, and False."""
    text = answer.rpartition("</think>")[2].split("<think>", 1)[0]
    tags = _TAG.findall(text)
    boxed = last_boxed(tags[-1] if tags else text)
    part = (tags[-1] if tags else text) if boxed is None else boxed
    words = _WORDS.fullmatch(part)
    return (part if words is None else words[1]), bool(tags) or boxed is not None


def last_boxed(text: str) -> str | None:
    """What stands in the last \\boxed{} whose brackets close; of boxes in a row, with commas between."""
    boxes = list(_list_boxes(text))
    if not boxes:
        return None
    first = len(boxes) - 1
    while first > 0 and _BETWEEN_BOXES.fullmatch(text, boxes[first - 1][2], boxes[first][0]):
        first -= 1
    return ", ".join(text[inside : end - 1] for _, inside, end in boxes[first:])


def _list_boxes(text: str) -> Iterator[tuple[int, int, int]]:
    """Where the last boxes begin, where what is in them begins, and where they end."""
    for begun in list(re.finditer(r"\\f?boxed\s?\{", text))[-20:]:
        depth = 1
        for at in range(begun.end(), len(text)):
            depth += (text[at] == "{") - (text[at] == "}")
            if depth == 0:
                yield begun.start(), begun.end(), at + 1
                break


def same(answer: str, gold: str, by: Normalization = Normalization.TEXT) -> bool:
    """Whether two texts are one answer: the same text once normalised, or by `text` the same number, unit or date."""
    if same_text(answer, gold, by):
        return True
    if by is not Normalization.TEXT:
        return False
    one, other = read_answer_text(gold), read_answer_text(answer)
    if one.form != other.form or one.form == "text":
        return False
    if one.quantity is not None and other.quantity is not None:
        return one.quantity.same(other.quantity)
    return one.value == other.value


def gold_text(task: Task) -> str:
    """The right answer as a policy writes it; of a list of alternatives the first."""
    return next(iter(golds(task.answer)), "")


def gold_key(gold: str) -> str:
    """A key that golds of one answer share."""
    return read_answer_text(gold).value or gold
