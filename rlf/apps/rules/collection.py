"""`rule: collection`: the answer lists the same things as the gold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Literal

from rlf.core.redact import fold
from rlf.rewards.answers import Answer, read_answer_text, result_of
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, normalize, plain_text
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

_STRONG = re.compile(r"[;\n]")
_WEAK = re.compile(r",|\s&\s|\band\b", re.IGNORECASE)
_ANY = re.compile(r"[,;\n]|\s&\s|\band\b", re.IGNORECASE)
_MARKER = re.compile(r"^[ \t]*(?:[-*\u2022]|\(?\d{1,3}[.)])[ \t]+", re.MULTILINE)
"""What the lines of a list begin with."""
# The gold is compared by its items, so a fence around the whole list is removed first.
_FENCE = re.compile(r"```(?:json)?\s([^`]+)```", re.IGNORECASE)
_AND = re.compile(r"\s*and\b", re.IGNORECASE)


class CollectionMatch(StrEnum):
    """Which collections count as the same."""

    LIST = "list"
    """The same items in the same order."""
    SET = "set"
    """The same items, however often and in whatever order."""
    MULTISET = "multiset"
    """The same items, each as often, in any order."""


class Credit(StrEnum):
    """The value of an answer that has a part of the items."""

    ALL = "all"
    """Nothing: 1 for the same collection, else 0."""
    F1 = "f1"
    """2 c / (a + g), with c items in common (at the same place, for a list), a in the answer and g in the gold."""


class Collection(Rule):
    """1 if the answer's items are those of the gold, else 0, or their F1.

    The gold is a list, which is here one answer and not several, or text: a JSON list, or items between semicolons or
    line breaks, or, without these, between commas or "and". An answer is a JSON list or text in which commas,
    semicolons, line breaks and "and" separate, except within an item of the gold, such as "Simon and Garfunkel", and
    within dates. Items are compared as `exact_match` does: "2, 1 km" are "1000 m and two". "Ann or Bob" is one item.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": ["Ann", "Bob"], "answer": "Bob and Ann"})

    rule: Literal["collection"] = "collection"
    normalize: Normalization = Normalization.TEXT
    compare: CollectionMatch = CollectionMatch.SET
    credit: Credit = Credit.ALL

    def judge(self, trajectory: Trajectory) -> Verdict:
        gold = gold_items(trajectory.task.answer, self.normalize)
        if not gold:
            return Verdict(None, f"the gold {trajectory.task.answer!r} lists nothing")
        given = answer_items(result_of(trajectory.answer or ""), gold, self.normalize)
        if self.compare is CollectionMatch.SET:
            given, gold = list(dict.fromkeys(given)), list(dict.fromkeys(gold))
        common = (Counter(given) & Counter(gold)).total()
        if self.compare is CollectionMatch.LIST:
            common = sum(one == other for one, other in zip(given, gold, strict=False))
        reason = f"{common} of {len(gold)} items are there, and {len(given) - common} others"
        if self.credit is Credit.F1:
            return Verdict(2 * common / (len(given) + len(gold)), reason)
        return Verdict(float(common == len(given) == len(gold)), reason)

    def read_golds(self, answer: Any) -> Iterator[tuple[str, Answer]]:
        """The one gold, which is a list."""
        items = gold_items(answer, self.normalize)
        lost = [f"{gold!r} {found.fault}" for gold, found in super().read_golds(answer) if found.fault]
        fault = "; ".join(lost) if items else "lists nothing, and is unscorable"
        yield str(answer), Answer("items", ", ".join(items), fault=fault)


def gold_items(value: Any, by: Normalization = Normalization.TEXT) -> list[str]:
    """The items of a list, or of a text that is one, normalised; those of which nothing is left are left out.

    >>> gold_items("Paris; Washington, D.C.; the Hague")
    ['paris', 'washington dc', 'hague']
    """
    if isinstance(value, str):
        value = _json_list(value) or _split_items(value)
    elif not isinstance(value, list | tuple):
        value = () if value is None else (value,)
    return [form for item in value if (form := _compare_form(str(item), by))]


def answer_items(text: str, gold: Sequence[str], by: Normalization = Normalization.TEXT) -> list[str]:
    """The items of an answer, normalised; a passage that reads as an item of the gold is one, whatever it holds.

    >>> answer_items("Washington, D.C. and Rome", ["washington dc", "paris"])
    ['washington dc', 'rome']
    """
    whole = _FENCE.fullmatch(fold(text).strip())
    text = fold(text) if whole is None else whole[1]
    listed = _json_list(text)
    if listed is not None:
        return gold_items(listed, by)
    text = _MARKER.sub("", re.sub(r"\\[{}]", "", text))
    ends = [(match.start(), match.end()) for match in _ANY.finditer(text)]
    starts, stops = [0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)]
    # A text that normalises to an item has at most one separator between any two words, and one more.
    known, longest = set(gold), max((len(item.split()) + 1 for item in gold), default=0)
    has_dates = any(read_answer_text(item).form == "date" for item in gold)
    items, at = list[str](), 0
    while at < len(starts):
        first = _compare_form(text[starts[at] : stops[at]], by)
        begins = has_dates or (first != "" and any(item != first and item.startswith(first) for item in known))
        reach = range(min(at + longest, len(starts) - 1), at, -1) if begins else ()
        last = next((to for to in reach if _compare_form(text[starts[at] : stops[to]], by) in known), at)
        items.append(_compare_form(text[starts[at] : stops[last]], by) if last > at else first)
        at = last + 1
    return [item for item in items if item]


def _compare_form(item: str, by: Normalization) -> str:
    """An item as it is compared; one that normalises to nothing ("A", "+") as it stands."""
    found = read_answer_text(item) if by is Normalization.TEXT else None
    if found is not None and found.form != "text":
        return found.value
    return normalize(item, by) or plain_text(item).strip(".,;:!?")


def _json_list(text: str) -> list[Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _split_items(text: str) -> list[str]:
    text = _MARKER.sub("", text)
    if _STRONG.search(text) is None:
        return _WEAK.split(text)
    return [_AND.sub("", part, count=1) if _AND.match(part) else part for part in _STRONG.split(text)]
