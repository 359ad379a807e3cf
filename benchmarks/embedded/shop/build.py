"""`python -m benchmarks.embedded.shop.build [folder]` writes the shipped database and questions again."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.embedded.rows import write_rows
from benchmarks.embedded.shop.tasks import write_tasks
from rlf.builtin.names import builtin_path

_SEED = 0
_NUM_SALES = 600
_NUM_HELDOUT = 64
_TOWNS = ("Bovbon", "Feltax", "Jongyl", "Ketpin", "Lutdon", "Mimwar", "Nakwin", "Pilpun")
_PRODUCTS = {
    "fruit": ("apple", "pear", "plum", "quince"),
    "bread": ("loaf", "roll", "rye", "bun"),
    "tool": ("axe", "saw", "rasp", "awl"),
}
_TABLES = """
CREATE TABLE product (name TEXT PRIMARY KEY, kind TEXT NOT NULL, price INTEGER NOT NULL);
CREATE TABLE sale (id INTEGER PRIMARY KEY, product TEXT NOT NULL REFERENCES product, town TEXT NOT NULL,
                   number INTEGER NOT NULL);
"""


class _Asked(NamedTuple):
    kind: str
    question: str
    query: str


def build(folder: Path) -> None:
    """Writes `shop.sqlite`, its questions and the tasks of the shop as a world into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "shop.sqlite"
    database.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(_TABLES)
        _fill_database(connection, random.Random(f"shop:{_SEED}"))
        connection.commit()
        connection.execute("VACUUM")
        rows = [_row(number, asked, connection) for number, asked in enumerate(_iterate_questions())]
    random.Random(f"questions:{_SEED}").shuffle(rows)
    for name, part in (("heldout", rows[:_NUM_HELDOUT]), ("train", rows[_NUM_HELDOUT:])):
        write_rows(folder / f"{name}.jsonl", part)
        write_rows(folder / f"{name}_shuffled.jsonl", _shuffle_golds(part))
    write_tasks(folder)


def _fill_database(connection: sqlite3.Connection, rng: random.Random) -> None:
    products = [(name, kind) for kind, names in _PRODUCTS.items() for name in names]
    prices = rng.sample(range(2, 90), len(products))
    connection.executemany(
        "INSERT INTO product VALUES (?, ?, ?)", [(*one, price) for one, price in zip(products, prices, strict=True)]
    )
    sales = [(rng.choice(products)[0], rng.choice(_TOWNS), rng.randint(1, 20)) for _ in range(_NUM_SALES)]
    connection.executemany("INSERT INTO sale (product, town, number) VALUES (?, ?, ?)", sales)


def _iterate_questions() -> Iterator[_Asked]:
    """Every question, with the query that answers it."""
    joined = "sale JOIN product ON product.name = sale.product"
    for name in (name for names in _PRODUCTS.values() for name in names):
        yield _Asked("look_up", f"What is the price of one {name}?", f"SELECT price FROM product WHERE name = '{name}'")
        total = f"SELECT sum(number) FROM sale WHERE product = '{name}'"
        yield _Asked("sum", f"How many of {name} were sold in all?", total)
        for town in _TOWNS:
            yield _Asked("sum", f"How many of {name} were sold in {town}?", f"{total} AND town = '{town}'")
    for town in _TOWNS:
        yield _Asked(
            "count", f"How many sales were there in {town}?", f"SELECT count(*) FROM sale WHERE town = '{town}'"
        )
        for kind in _PRODUCTS:
            earned = f"SELECT sum(number * price) FROM {joined} WHERE town = '{town}' AND kind = '{kind}'"
            yield _Asked("join", f"How much money came in for products of kind {kind} in {town}?", earned)
            most = f"SELECT product FROM {joined} WHERE town = '{town}' AND kind = '{kind}' GROUP BY product"
            most += " ORDER BY sum(number) DESC, product LIMIT 1"
            question = f"Which product of kind {kind} sold most in {town}, the first by name where several did?"
            yield _Asked("rank", question, most)


def _row(number: int, asked: _Asked, connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute(asked.query).fetchall()
    answer = str(rows[0][0])
    gold = {"query": asked.query, "rows": json.dumps(rows), "answer": answer}
    return {"id": f"shop-{number:04d}", "question": asked.question, **gold, "kind": asked.kind}


def _shuffle_golds(rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Control: each question with the query of the next one of its kind that finds other rows."""
    for place, row in enumerate(rows):
        following = rows[place + 1 :] + rows[:place]
        other = next(one for one in following if one["kind"] == row["kind"] and one["rows"] != row["rows"])
        yield other | {"id": row["id"], "question": row["question"]}


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else builtin_path("shop/train").parent)
