"""A seeded world: things with invented names, one value for each relation of each thing, and a twin with others.

Values are dealt evenly, so that no constant guess is worth much: of n things each value stands at most once more than
any other. The twin has the same things and no value at its place: what is right in both was not found by a call.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlf.builder.pack import NUMBER, Pack, Relation

Facts = Mapping[tuple[str, str], str | int]
"""Values by relation and thing."""


@dataclass(frozen=True)
class World:
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


def make_world(name: str, pack: Pack, names: Sequence[str], rng: random.Random, *, with_former: bool) -> World:
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
    return World(name, names_by_kind, facts, swapped, former)


def _draw_values(
    relation: Relation, subjects: Sequence[str], names_by_kind: Mapping[str, tuple[str, ...]], rng: random.Random
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


def tables(pack: Pack, world: World) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str | int, ...]]]]:
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


def to_sql(pack: Pack, world: World) -> str:
    """The statements that make a world's tables and fill them."""
    lines = []
    for table, columns, rows in tables(pack, world):
        lines.append(f"{create_statement(table, columns)};")
        lines += [f'INSERT INTO "{table}" VALUES ({", ".join(map(_literal, row))});' for row in rows]
    return "\n".join(lines) + "\n"


def open_database(pack: Pack, world: World) -> sqlite3.Connection:
    """A world's tables in memory."""
    connection = sqlite3.connect(":memory:")
    for table, columns, rows in tables(pack, world):
        connection.execute(create_statement(table, columns))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
    connection.commit()
    return connection


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
