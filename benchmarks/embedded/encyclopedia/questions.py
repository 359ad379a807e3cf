"""Questions over a world, each with its answer and the look-ups that lead to it.

Four kinds in the ratio 4:3:2:1: one look-up, two in a row, two side by side, two side by side and a sum. Nothing here
knows a tool or a chat format; `lookups_by_turn`, then `expression`, is the plan from which demonstrations are written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.embedded.encyclopedia.world import RELATIONS, Encyclopedia, Entity


class Kind(StrEnum):
    """The needs of a question: how many look-ups, in which arrangement, and whether arithmetic follows."""

    SINGLE = "single"
    """One look-up."""
    TWO_HOP = "two_hop"
    """Two look-ups, the second about what the first found."""
    PARALLEL = "parallel"
    """Two look-ups that can be made at once; the answer joins both values by "and", in the question's order."""
    CALCULATION = "calculation"
    """Two look-ups that can be made at once; the answer is the sum or the difference of the two numbers."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One fact to find."""

    relation: str
    subject: str

    @property
    def query(self) -> str:
        """The search that finds it: the subject and the relation's own word."""
        return f"{self.subject} {RELATIONS[self.relation].keyword}"


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its one right answer."""

    kind: Kind
    text: str
    answer: str
    lookups_by_turn: tuple[tuple[Lookup, ...], ...]
    """For each turn, the facts to look up side by side."""
    expression: str | None = None
    """Computed from the values found, such as `4512 - 1307`; None where they are the answer themselves."""


_SINGLE: dict[str, tuple[str, ...]] = {
    "birthplace": (
        "Where was {x} born?",
        "In which town was {x} born?",
        "{x} was born in which town?",
        "What is the birthplace of {x}?",
    ),
    "employer": (
        "Who does {x} work for?",
        "Which company employs {x}?",
        "{x} works for which company?",
        "What is the employer of {x}?",
    ),
    "seat": (
        "Where is {x} based?",
        "In which town is {x} based?",
        "{x} has its seat in which town?",
        "Which town is the seat of {x}?",
    ),
    "founder": (
        "Who founded {x}?",
        "Which person founded {x}?",
        "{x} was founded by whom?",
        "Who is the founder of {x}?",
    ),
    "river": (
        "Which river flows through {x}?",
        "On which river does {x} lie?",
        "{x} lies on which river?",
        "What is the river of {x}?",
    ),
    "length": (
        "How long is {x} in kilometres?",
        "What is the length of {x}?",
        "{x} is how many kilometres long?",
        "How many kilometres does {x} flow?",
    ),
    "capital": (
        "What is the capital of {x}?",
        "Which town is the capital of {x}?",
        "{x} has which town as its capital?",
        "What is the name of the capital of {x}?",
    ),
}
_TWO_HOP: dict[tuple[str, str], tuple[str, ...]] = {
    ("birthplace", "river"): (
        "Which river flows through the birthplace of {x}?",
        "On which river does the town lie where {x} was born?",
        "{x} was born on which river?",
    ),
    ("employer", "seat"): (
        "Where is the employer of {x} based?",
        "In which town is the company based that {x} works for?",
        "{x} works for a company based in which town?",
    ),
    ("founder", "birthplace"): (
        "Where was the founder of {x} born?",
        "In which town was the person born who founded {x}?",
        "{x} was founded by a person born in which town?",
    ),
    ("river", "length"): (
        "How long is the river of {x} in kilometres?",
        "What is the length of the river that flows through {x}?",
        "{x} lies on a river of what length?",
    ),
    ("capital", "river"): (
        "Which river flows through the capital of {x}?",
        "On which river does the capital of {x} lie?",
        "{x} has its capital on which river?",
    ),
}
_PARALLEL: dict[str, tuple[str, ...]] = {
    "birthplace": (
        "Where were {x} and {y} born?",
        "What are the birthplaces of {x} and {y}?",
        "{x} and {y} were born in which towns?",
    ),
    "seat": (
        "Where are {x} and {y} based?",
        "Which towns are the seats of {x} and {y}?",
        "{x} and {y} have their seats in which towns?",
    ),
    "length": (
        "How long are {x} and {y} in kilometres?",
        "What are the lengths of {x} and {y}?",
        "{x} and {y} are how many kilometres long?",
    ),
    "capital": (
        "What are the capitals of {x} and {y}?",
        "Which towns are the capitals of {x} and {y}?",
        "{x} and {y} have which towns as their capitals?",
    ),
}
_CALCULATION: dict[str, tuple[str, ...]] = {
    "+": (
        "How long are {x} and {y} together?",
        "What is the total length of {x} and {y}?",
        "{x} and {y} are how many kilometres long together?",
    ),
    "-": (
        "How many kilometres longer is {x} than {y}?",
        "What is the length of {x} less that of {y}?",
        "{x} is how many kilometres longer than {y}?",
    ),
}
_KIND_WEIGHTS: dict[Kind, int] = {Kind.SINGLE: 4, Kind.TWO_HOP: 3, Kind.PARALLEL: 2, Kind.CALCULATION: 1}


def sample_kind(rng: random.Random) -> Kind:
    """A kind, drawn in the ratio 4:3:2:1."""
    return rng.choices(list(_KIND_WEIGHTS), weights=list(_KIND_WEIGHTS.values()))[0]


def sample_question(rng: random.Random, world: Encyclopedia, kind: Kind) -> Question:
    """A question of `kind` about `world`; relation, subjects and wording are drawn uniformly."""
    match kind:
        case Kind.SINGLE:
            return _sample_single(rng, world)
        case Kind.TWO_HOP:
            return _two_hop(rng, world)
        case Kind.PARALLEL:
            return _parallel(rng, world)
        case Kind.CALCULATION:
            return _calculation(rng, world)


def _sample_single(rng: random.Random, world: Encyclopedia) -> Question:
    relation = rng.choice(list(_SINGLE))
    subject = rng.choice(world.names_by_entity[RELATIONS[relation].subject])
    text = rng.choice(_SINGLE[relation]).format(x=subject)
    answer = world.fact_by_key[relation, subject].value
    return Question(Kind.SINGLE, text, answer, ((Lookup(relation, subject),),))


def _two_hop(rng: random.Random, world: Encyclopedia) -> Question:
    first, second = rng.choice(list(_TWO_HOP))
    subject = rng.choice(world.names_by_entity[RELATIONS[first].subject])
    between = world.fact_by_key[first, subject].value
    text = rng.choice(_TWO_HOP[first, second]).format(x=subject)
    answer = world.fact_by_key[second, between].value
    return Question(Kind.TWO_HOP, text, answer, ((Lookup(first, subject),), (Lookup(second, between),)))


def _parallel(rng: random.Random, world: Encyclopedia) -> Question:
    relation = rng.choice(list(_PARALLEL))
    while True:
        left, right = rng.sample(world.names_by_entity[RELATIONS[relation].subject], 2)
        left_value = world.fact_by_key[relation, left].value
        right_value = world.fact_by_key[relation, right].value
        if left_value != right_value:
            break
    text = rng.choice(_PARALLEL[relation]).format(x=left, y=right)
    lookups = (Lookup(relation, left), Lookup(relation, right))
    return Question(Kind.PARALLEL, text, f"{left_value} and {right_value}", (lookups,))


def _calculation(rng: random.Random, world: Encyclopedia) -> Question:
    """Sum or difference of two rivers' lengths; a difference is asked of the longer one, so it is positive."""
    operator = rng.choice(list(_CALCULATION))
    rivers = rng.sample(world.names_by_entity[Entity.RIVER], 2)
    length_by_river = {river: int(world.fact_by_key["length", river].value) for river in rivers}
    if operator == "-":
        rivers.sort(key=length_by_river.__getitem__, reverse=True)
    left, right = rivers
    left_length, right_length = length_by_river[left], length_by_river[right]
    answer = left_length + right_length if operator == "+" else left_length - right_length
    text = rng.choice(_CALCULATION[operator]).format(x=left, y=right)
    lookups = (Lookup("length", left), Lookup("length", right))
    expression = f"{left_length} {operator} {right_length}"
    return Question(Kind.CALCULATION, text, str(answer), (lookups,), expression)


def question_templates() -> list[str]:
    """Every wording of every question, over {x} and {y}."""
    wordings = [*_SINGLE.values(), *_TWO_HOP.values(), *_PARALLEL.values(), *_CALCULATION.values()]
    return [text for texts in wordings for text in texts]
