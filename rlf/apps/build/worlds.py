"""A seeded world: things with invented names, one value for each relation of each thing, and a twin with others.

Values are dealt evenly, so that no constant guess is worth much: of n things each value stands at most once more than
any other. The twin has the same things and no value at its place: what is right in both was not found by a call.
"""

from __future__ import annotations

import keyword
import random
import sqlite3
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rlf.apps.build.kind import Noise
from rlf.apps.build.pack import NUMBER, Pack, PackRelation
from rlf.apps.build.task import Join, Scenario
from rlf.apps.build.toolkit import Function, Parameter, Toolkit, renamed

Facts = Mapping[tuple[str, str], str | int]
"""Values by relation and thing."""


@dataclass(frozen=True)
class FactWorld:
    """Things by kind, and what is true of them."""

    name: str
    names_by_kind: Mapping[str, tuple[str, ...]]
    facts: Facts
    swapped: Facts
    """The twin's: at no place the same value."""
    former: Facts
    """Former values of mutable relations: at no place the present one. Empty where functions return none."""

    @cached_property
    def guesses(self) -> dict[str, float]:
        """By relation, the share of things that have its most frequent value."""
        values: dict[str, list[str | int]] = {}
        for (relation, _), value in self.facts.items():
            values.setdefault(relation, []).append(value)
        return {relation: max(Counter(found).values()) / len(found) for relation, found in values.items()}


def make_world(name: str, pack: Pack, names: Sequence[str], rng: random.Random, *, with_former: bool) -> FactWorld:
    """A world of as many things of each kind as the names are enough for.

    Raises:
        ValueError: there are fewer than three names for a kind, too few for a twin.
    """
    size = len(names) // len(pack.kinds)
    if size < 3:
        raise ValueError(f"{len(names)} names for {len(pack.kinds)} kinds")
    names_by_kind = {kind: tuple(names[at * size : (at + 1) * size]) for at, kind in enumerate(pack.kinds)}
    facts: dict[tuple[str, str], str | int] = {}
    swapped: dict[tuple[str, str], str | int] = {}
    former: dict[tuple[str, str], str | int] = {}
    for relation in pack.relations:
        subjects = names_by_kind[relation.subject]
        places = [(relation.name, subject) for subject in subjects]
        values = _draw_values(relation, subjects, names_by_kind, rng)
        for table, column in ((facts, values), (swapped, derange(values, rng))):
            table.update(zip(places, column, strict=True))
        if with_former and relation.words.mutable:
            former.update(zip(places, derange(values, rng), strict=True))
    return FactWorld(name, names_by_kind, facts, swapped, former)


def _draw_values(
    relation: PackRelation, subjects: Sequence[str], names_by_kind: Mapping[str, tuple[str, ...]], rng: random.Random
) -> list[str | int]:
    """A value for each thing, none of them itself."""
    if relation.value == NUMBER:
        assert relation.words.range is not None, f"{relation.name} without a range"
        low, high = relation.words.range
        return list(rng.sample(range(low, high + 1), len(subjects)))
    values: list[str | int] = list(names_by_kind[relation.value])
    rng.shuffle(values)
    for at, subject in enumerate(subjects):
        if values[at] == subject:
            values[at], values[at - 1] = values[at - 1], values[at]
    return values


def derange(values: Sequence[str | int], rng: random.Random) -> list[str | int]:
    """Moves every value to a place with another value. No value may be at more than half of the places.

    In sorted order equal values stand side by side; half the length further each is past its own run.
    """
    order = list(range(len(values)))
    rng.shuffle(order)
    order.sort(key=lambda place: str(values[place]))
    deranged = list(values)
    for rank, place in enumerate(order):
        deranged[place] = values[order[(rank + len(order) // 2) % len(order)]]
    return deranged


THINGS = "things"
"""The table of all things with their kinds."""


def tables(pack: Pack, world: FactWorld) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str | int, ...]]]]:
    """Name, columns and rows of each table: one of all things, and one for each kind with its relations."""
    things = [(name.casefold(), kind, world.name) for kind in pack.kinds for name in world.names_by_kind[kind]]
    yield THINGS, ("key", "kind", "world"), list(things)
    for kind in pack.kinds:
        relations = [relation.name for relation in pack.relations if relation.subject == kind]
        changed = [name for name in relations if (name, world.names_by_kind[kind][0]) in world.former]
        columns = ("key", "name", *relations, *(f"{name}__before" for name in changed))
        rows: list[tuple[str | int, ...]] = []
        for name in world.names_by_kind[kind]:
            values = [world.facts[relation, name] for relation in relations]
            values += [world.former[relation, name] for relation in changed]
            rows.append((name.casefold(), name, *values))
        yield kind, columns, rows


def create_statement(table: str, columns: Sequence[str]) -> str:
    """The statement that makes a table, whose first column is its key."""
    rest = "".join(f', "{column}"' for column in columns[1:])
    return f'CREATE TABLE IF NOT EXISTS "{table}" ("{columns[0]}" TEXT PRIMARY KEY{rest}) WITHOUT ROWID'


def to_sql(pack: Pack, world: FactWorld) -> str:
    """The statements that make a world's tables and fill them."""
    lines = []
    for table, columns, rows in tables(pack, world):
        lines.append(f"{create_statement(table, columns)};")
        lines += [f'INSERT INTO "{table}" VALUES ({", ".join(map(_literal, row))});' for row in rows]
    return "\n".join(lines) + "\n"


def open_database(pack: Pack, world: FactWorld) -> sqlite3.Connection:
    """A world's tables in memory."""
    connection = sqlite3.connect(":memory:")
    for table, columns, rows in tables(pack, world):
        connection.execute(create_statement(table, columns))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
    connection.commit()
    return connection


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


# Noise in the names of tools and parameters, by the levels of RoTBench (Ye et al. 2024, arXiv:2401.08326).
#
# The functions and documents stay what they are: a policy that reads documents is not led astray by names.

_LETTERS = string.ascii_lowercase


def add_noise(toolkit: Toolkit, noise: Noise, used: set[str], rng: random.Random) -> Toolkit:
    """The toolkit with other names; `used` holds names that are taken, and gets those of the toolkit."""
    if noise is Noise.CLEAN:
        return toolkit
    others = [function.name for function in toolkit.functions]
    if noise in (Noise.HEAVY, Noise.UNION):
        others = [*others[1:], *others[:1]]
    name_by_old = dict(zip((function.name for function in toolkit.functions), others, strict=True))

    def rename(function: Function) -> Function:
        name = name_by_old[function.name]
        if noise is not Noise.HEAVY:
            used.discard(name)
            name = _find_free(name, noise, used, rng)
        taken: set[str] = set()
        parameters = [replace(each, name=_find_free(each.name, noise, taken, rng)) for each in function.parameters]
        if noise in (Noise.HEAVY, Noise.UNION):
            schema = {"type": "string", "description": "Not used; write `none`."}
            parameters.append(Parameter("extra", _find_free("extra", noise, taken, rng), schema, required=True))
        return replace(function, name=name, parameters=tuple(parameters))

    return renamed(toolkit, rename)


def _find_free(name: str, noise: Noise, used: set[str], rng: random.Random) -> str:
    """A noisy name that is not used; it is taken from then on."""
    for _ in range(1000):
        found = _make_noisy(name, noise, rng)
        if found not in used and found.isidentifier() and not keyword.iskeyword(found):
            used.add(found)
            return found
    raise AssertionError(f"no noisy name for {name!r}")


def _make_noisy(name: str, noise: Noise, rng: random.Random) -> str:
    match noise:
        case Noise.SLIGHT:
            return _misspell(name, rng)
        case Noise.MEDIUM:
            return name[::-1] if rng.random() < 0.5 else _draw_letters(len(name), rng)
        case Noise.UNION:
            return rng.choice([_misspell(name, rng), name[::-1], _draw_letters(len(name), rng)])
    return name


def _misspell(name: str, rng: random.Random) -> str:
    """One character more, one less, or another one."""
    at = rng.randrange(len(name))
    middle = rng.choice([name[at] + rng.choice(_LETTERS), "", rng.choice(_LETTERS)])
    return name[:at] + middle + name[at + 1 :]


def _draw_letters(length: int, rng: random.Random) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(max(length, 6)))


# Graphs of relations in the four shapes: which calls a task needs, in which order, and what the answer makes of them.
#
# Chains follow relations from thing to thing, so that each call needs what the one before has found, and chains side by
# side share nothing: no call is there only to make a task longer.

_NUMBER_JOINS = (Join.LIST, Join.SUM, Join.LARGEST, Join.SMALLEST)


@dataclass(frozen=True, slots=True)
class Chain:
    """Relations one after the other, from a thing that the question names."""

    subject: str
    relations: tuple[PackRelation, ...]

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
        return _name_value(self.relations[-1], self._phrase_subject(rng), rng)

    def question(self, rng: random.Random) -> str:
        """Asks for the last value: `How long is the river of Kaldun?`."""
        return rng.choice(self.relations[-1].words.questions).format(x=self._phrase_subject(rng))

    def _phrase_subject(self, rng: random.Random) -> str:
        text = self.subject
        for relation in self.relations[:-1]:
            text = _name_value(relation, text, rng)
        return text


def _name_value(relation: PackRelation, subject: str, rng: random.Random) -> str:
    """A phrase for a value; one that ends with its subject where that is long: nobody follows it in the middle."""
    phrases = relation.words.phrases
    ending = [phrase for phrase in phrases if phrase.endswith("{x}")]
    if " " not in subject:  # `the length of Bilnar in kilometres`, where a unit may stand on either side
        ending = [phrase for phrase in phrases if phrase not in ending] if relation.value == NUMBER else []
    return rng.choice(ending or phrases).format(x=subject)


Calls = tuple[Join, tuple[tuple[str, tuple[str, ...]], ...]]
"""The join and the calls of a graph, whatever its words."""


@dataclass(frozen=True, slots=True)
class FactGraph:
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
        last = [chain.relations[-1] for chain in self.chains]
        if self.join is Join.VALUE and last[0].words.questions and rng.random() < 0.5:
            return self.chains[0].question(rng)
        phrases = [chain.phrase(rng) for chain in self.chains]
        listed = phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
        asks: Sequence[str] = getattr(pack.asks, self.join.value)
        by_kind: Mapping[str, Sequence[str]] = getattr(pack.asks, f"{self.join.value}_by_kind", {})
        kinds = {relation.value for relation in last}
        return rng.choice(by_kind.get(min(kinds), asks) if len(kinds) == 1 else asks).format(p=phrases[0], a=listed)

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
    def by_kind(self) -> Mapping[str, tuple[PackRelation, ...]]:
        """Relations by the kind of their subject."""
        return {kind: tuple(r for r in self.pack.relations if r.subject == kind) for kind in self.pack.kinds}

    @cached_property
    def _ways(self) -> dict[tuple[str, int], tuple[PackRelation, ...]]:
        return {}

    def starts(self, kind: str, hops: int) -> tuple[PackRelation, ...]:
        """The relations of a kind with which a chain of some length can begin."""
        if (kind, hops) not in self._ways:
            relations = self.by_kind[kind]
            if hops > 1:
                relations = tuple(r for r in relations if r.value != NUMBER and self.starts(r.value, hops - 1))
            self._ways[kind, hops] = relations
        return self._ways[kind, hops]

    def sample(self, hops: int, rng: random.Random) -> tuple[PackRelation, ...]:
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
    paths: Paths,
    world: FactWorld,
    scenario: Scenario,
    hops: tuple[int, int],
    parallel: tuple[int, int],
    rng: random.Random,
) -> FactGraph:
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
    return FactGraph(scenario, chains, _join(chains, rng, alike=alike))


def _join(chains: Sequence[Chain], rng: random.Random, *, alike: bool) -> Join:
    if len(chains) == 1:
        return Join.VALUE
    if not alike or chains[0].relations[-1].value != NUMBER:
        return Join.LIST
    return rng.choice([*_NUMBER_JOINS, *([Join.DIFFERENCE] if len(chains) == 2 else [])])
