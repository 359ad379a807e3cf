"""Graphs of relations in the four shapes: which calls a task needs, in which order, and what the answer makes of them.

Chains follow relations from thing to thing, so that each call needs what the one before has found, and chains side by
side share nothing: no call is there only to make a task longer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlf.builder.graph.world import Facts, World
from rlf.builder.pack import NUMBER, Pack, Relation
from rlf.builder.task import Join, Scenario

_NUMBER_JOINS = (Join.LIST, Join.SUM, Join.LARGEST, Join.SMALLEST)


@dataclass(frozen=True, slots=True)
class Chain:
    """Relations one after the other, from a thing that the question names."""

    subject: str
    relations: tuple[Relation, ...]

    def follow(self, facts: Facts) -> list[str | int]:
        """The value of each relation."""
        values: list[str | int] = []
        subject: str | int = self.subject
        for relation in self.relations:
            subject = facts[relation.name, str(subject)]
            values.append(subject)
        return values

    def phrase(self, rng: random.Random) -> str:
        """Names the last value in words: `the length of the river of Kaldun`."""
        text = self.subject
        for relation in self.relations:
            text = rng.choice(relation.words.phrases).format(x=text)
        return text


Calls = tuple[Join, tuple[tuple[str, tuple[str, ...]], ...]]
"""The join and the calls of a graph, whatever its words."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The chains of a task, and how the answer combines their ends."""

    scenario: Scenario
    chains: tuple[Chain, ...]
    join: Join

    @property
    def calls(self) -> Calls:
        """The graph without its words: equal for graphs that differ only in words."""
        return self.join, tuple((each.subject, tuple(one.name for one in each.relations)) for each in self.chains)

    def question(self, pack: Pack, rng: random.Random) -> str:
        """The question in words."""
        phrases = [chain.phrase(rng) for chain in self.chains]
        listed = phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
        asks: Sequence[str] = getattr(pack.asks, self.join.value)
        return rng.choice(asks).format(p=phrases[0], a=listed)

    def fault(self, values: Sequence[Sequence[str | int]]) -> str | None:
        """Why the graph is no good task with these values of its chains; None if it is good."""
        calls = [
            (relation.name, subject)
            for chain, found in zip(self.chains, values, strict=True)
            for relation, subject in zip(chain.relations, (chain.subject, *found[:-1]), strict=True)
        ]
        if len(set(calls)) < len(calls):
            return "a call is needed twice"
        named = {chain.subject for chain in self.chains}
        if any(value in named for found in values for value in found):
            return "the question names a value that a call finds"
        return None


@dataclass(frozen=True)
class Paths:
    """The ways along a pack's relations."""

    pack: Pack

    @cached_property
    def by_kind(self) -> Mapping[str, tuple[Relation, ...]]:
        """Relations by the kind of their subject."""
        return {kind: tuple(r for r in self.pack.relations if r.subject == kind) for kind in self.pack.kinds}

    @cached_property
    def _ways(self) -> dict[tuple[str, int], tuple[Relation, ...]]:
        return {}

    def starts(self, kind: str, hops: int) -> tuple[Relation, ...]:
        """The relations of a kind with which a chain of some length can begin."""
        if (kind, hops) not in self._ways:
            relations = self.by_kind[kind]
            if hops > 1:
                relations = tuple(r for r in relations if r.value != NUMBER and self.starts(r.value, hops - 1))
            self._ways[kind, hops] = relations
        return self._ways[kind, hops]

    def sample(self, hops: int, rng: random.Random) -> tuple[Relation, ...]:
        """A chain's relations; every kind that can begin one is as likely."""
        kind = rng.choice([kind for kind in self.pack.kinds if self.starts(kind, hops)])
        relations = []
        for left in range(hops, 0, -1):
            relation = rng.choice(self.starts(kind, left))
            relations.append(relation)
            kind = relation.value
        return tuple(relations)

    def longest(self, hops: int) -> int:
        """Length of the longest chain, at most `hops`."""
        return max(
            length for length in range(hops + 1) if not length or any(self.starts(k, length) for k in self.pack.kinds)
        )


def sample_graph(
    paths: Paths, world: World, scenario: Scenario, hops: tuple[int, int], parallel: tuple[int, int], rng: random.Random
) -> Graph:
    """A graph of a shape: its lengths, relations, things and join are drawn, each as likely as the others."""
    num_chains = rng.randint(*parallel) if scenario.is_parallel else 1
    alike = rng.random() < 0.5
    lengths = [rng.randint(*hops) if scenario.is_chain else 1 for _ in range(num_chains)]
    relations = [paths.sample(length, rng) for length in lengths]
    if alike:
        relations = [relations[0]] * num_chains
    subjects: list[str] = []
    for each in relations:
        names = world.names_by_kind[each[0].subject]
        subject = rng.choice(names)
        while subject in subjects and len(names) > num_chains:
            subject = rng.choice(names)
        subjects.append(subject)
    chains = tuple(Chain(subject, each) for subject, each in zip(subjects, relations, strict=True))
    return Graph(scenario, chains, _join(chains, rng, alike=alike))


def _join(chains: Sequence[Chain], rng: random.Random, *, alike: bool) -> Join:
    if len(chains) == 1:
        return Join.VALUE
    if not alike or chains[0].relations[-1].value != NUMBER:
        return Join.LIST
    return rng.choice([*_NUMBER_JOINS, *([Join.DIFFERENCE] if len(chains) == 2 else [])])
