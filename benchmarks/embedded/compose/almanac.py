"""An almanac of names with a few four-digit numbers each, and its search. Facts follow from names; no file."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rlf.builtin.encyclopedia.names import ENDS, STARTS

__all__ = ["ATTRIBUTES", "NOTHING_FOUND", "Attribute", "calculator_off", "fact", "search", "search_shuffled"]

NOTHING_FOUND = "No passage found."


@dataclass(frozen=True, slots=True)
class Attribute:
    """A number that each name has."""

    keyword: str
    """The word of a query."""
    passage: str
    """States it of {x}, as {v}."""
    question: str
    """Asks for that of {x}."""
    both: str
    """Asks for those of {x} and {y}, one by one."""
    more: str
    """Asks by how much that of {x} is more than that of {y}."""
    together: str
    """Asks for the sum of those of {x} and {y}."""


ATTRIBUTES: dict[str, Attribute] = {
    attribute.keyword: attribute
    for attribute in (
        Attribute(
            "age",
            "{x} is {v} years old.",
            "How old is {x}?",
            "How old are {x} and {y}?",
            "How many years older is {x} than {y}?",
            "How old are {x} and {y} together?",
        ),
        Attribute(
            "length",
            "{x} is {v} metres long.",
            "How long is {x}?",
            "How long are {x} and {y}?",
            "How many metres longer is {x} than {y}?",
            "How long are {x} and {y} together?",
        ),
        Attribute(
            "height",
            "{x} is {v} metres high.",
            "How high is {x}?",
            "How high are {x} and {y}?",
            "How many metres higher is {x} than {y}?",
            "How high are {x} and {y} together?",
        ),
    )
}


def fact(name: str, keyword: str, salt: str = "") -> int:
    """The number from 1000 to 9999 that a name has under an attribute."""
    return random.Random(f"fact:{salt}:{keyword}:{name}").randrange(1000, 10000)


def search(query: str) -> str:
    """Find the passage about a name and one of its attributes, such as `Bednox length`."""
    return _passage(query, "")


def search_shuffled(query: str) -> str:
    """Control: the passage states another name's number."""
    return _passage(query, "shuffled")


def calculator_off(expression: str) -> str:
    """Control: a calculator that is out of order."""
    raise ValueError("out of order")


def _passage(query: str, salt: str) -> str:
    name, _, keyword = query.strip().partition(" ")
    if keyword not in ATTRIBUTES or (name[:3], name[3:]) not in _NAMES:
        return NOTHING_FOUND
    return ATTRIBUTES[keyword].passage.format(x=name, v=fact(name, keyword, salt))


_NAMES = frozenset((start, end) for start in STARTS for end in ENDS)
