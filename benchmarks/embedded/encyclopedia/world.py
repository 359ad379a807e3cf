"""The fictional world of the encyclopedia: entities, facts and the one-sentence passages that state them.

A fact's value is a name or a four-digit number, never one of a handful: a constant guess cannot score.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from rlf.builtin.encyclopedia.names import NameSplit, split_names


class Entity(StrEnum):
    """A kind of thing that has names."""

    PERSON = "person"
    TOWN = "town"
    RIVER = "river"
    COMPANY = "company"
    COUNTRY = "country"


@dataclass(frozen=True, slots=True)
class Relation:
    """One attribute of one kind of entity, with the sentences that state it."""

    name: str
    subject: Entity
    value: Entity | None
    """None when the value is a number."""
    keyword: str
    """The word that every passage of this relation holds and no passage of another does."""
    passages: tuple[str, ...]
    """Templates over {s} (subject) and {v} (value)."""


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation(
            "birthplace",
            Entity.PERSON,
            Entity.TOWN,
            "born",
            ("{s} was born in {v}.", "{v} is the town where {s} was born.", "{s}, born in {v}, left home early."),
        ),
        Relation(
            "employer",
            Entity.PERSON,
            Entity.COMPANY,
            "works",
            ("{s} works for {v}.", "{v} is the company that {s} works for.", "{s} now works at {v}."),
        ),
        Relation(
            "seat",
            Entity.COMPANY,
            Entity.TOWN,
            "based",
            ("{s} is based in {v}.", "{v} is the town where {s} is based.", "{s}, based in {v}, is well known."),
        ),
        Relation(
            "founder",
            Entity.COMPANY,
            Entity.PERSON,
            "founded",
            ("{s} was founded by {v}.", "{v} founded {s}.", "{v} is the person who founded {s}."),
        ),
        Relation(
            "river",
            Entity.TOWN,
            Entity.RIVER,
            "river",
            (
                "{s} lies on the river {v}.",
                "{v} is the river that flows through {s}.",
                "{s} is a port on the river {v}.",
            ),
        ),
        Relation(
            "length",
            Entity.RIVER,
            None,
            "length",
            (
                "{s} has a length of {v} kilometres.",
                "{s} flows over a length of {v} kilometres.",
                "{v} kilometres is the length of {s}.",
            ),
        ),
        Relation(
            "capital",
            Entity.COUNTRY,
            Entity.TOWN,
            "capital",
            ("{v} is the capital of {s}.", "{s} has its capital in {v}.", "{s} chose {v} as its capital."),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One attribute of one entity and the passage that states it."""

    relation: str
    subject: str
    value: str
    passage: str


@dataclass(frozen=True, slots=True)
class WorldSize:
    """How many entities of each kind a world holds."""

    persons: int
    towns: int
    rivers: int
    companies: int
    countries: int

    def by_entity(self) -> dict[Entity, int]:
        """The counts under their entity, in a fixed order."""
        return {
            Entity.PERSON: self.persons,
            Entity.TOWN: self.towns,
            Entity.RIVER: self.rivers,
            Entity.COMPANY: self.companies,
            Entity.COUNTRY: self.countries,
        }


@dataclass(frozen=True, slots=True)
class Encyclopedia:
    """Entities and their facts."""

    names_by_entity: dict[Entity, tuple[str, ...]]
    fact_by_key: dict[tuple[str, str], Fact]
    """Keyed by (relation, subject)."""

    @property
    def passages(self) -> list[str]:
        """Every passage, in the order of the facts."""
        return [fact.passage for fact in self.fact_by_key.values()]


def generate_world(seed: int, split: NameSplit, size: WorldSize) -> Encyclopedia:
    """A world that depends on its arguments alone.

    Every entity has one fact for each relation of its kind; no two entities share a name, no two rivers a length.
    """
    rng = random.Random(f"world:{split.value}:{seed}")
    counts = size.by_entity()
    names = iter(rng.sample(split_names(split), sum(counts.values())))
    names_by_entity = {entity: tuple(next(names) for _ in range(count)) for entity, count in counts.items()}
    lengths = iter(rng.sample(range(1000, 10000), size.rivers))
    fact_by_key = {}
    for relation in RELATIONS.values():
        for subject in names_by_entity[relation.subject]:
            value = str(next(lengths)) if relation.value is None else rng.choice(names_by_entity[relation.value])
            passage = rng.choice(relation.passages).format(s=subject, v=value)
            fact_by_key[relation.name, subject] = Fact(relation.name, subject, value, passage)
    return Encyclopedia(names_by_entity, fact_by_key)
