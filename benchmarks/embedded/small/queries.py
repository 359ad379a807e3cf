"""Questions that one SQL query answers: over a shop's two tables, and over single tables drawn at random.

The shop's wordings are those of `builtin:shop`, with other names. Left out on purpose is a sum over a product AND a
town, more than half of the shop's questions: reinforcement learning is to find it from its parts. A careless sum has a
second condition that nobody asked for, so that there is a chance of one where it is needed.
"""

from __future__ import annotations

import random

from benchmarks.embedded.small.task import Task
from benchmarks.embedded.small.words import TABLES, random_column, random_name, random_number, random_word

SHOP_DOCUMENT = "Run one SQLite SELECT. Tables: product (name, kind, price), sale (id, product, town, number)."
QUERY_KINDS = (
    *("shop_look_up", "shop_sum", "shop_sum_town", "shop_count", "shop_count_both", "shop_join_kind", "shop_join_town"),
    *("shop_join_both", "shop_join_both", "shop_count_join", "shop_rank_kind", "shop_rank_town", "shop_rank_both"),
    *("shop_rank_both", "table_look_up", "table_count", "table_count_two", "table_sum"),
)
COMPOSED_KINDS = ("shop_sum_both",)
"""Never in pretraining; held out to see how far the parts already compose."""
_JOINED = "sale JOIN product ON product.name = sale.product"
_PRODUCT, _TOWN, _KIND = "product = '{p}'", "town = '{t}'", "kind = '{k}'"
_RANK = " GROUP BY product ORDER BY sum(number) DESC, product LIMIT 1"
_FIRST = "the first by name where several did?"
_SHOP: dict[str, tuple[str, str]] = {
    "shop_look_up": ("What is the price of one {p}?", "SELECT price FROM product WHERE name = '{p}'"),
    "shop_sum": ("How many of {p} were sold in all?", f"SELECT sum(number) FROM sale WHERE {_PRODUCT}"),
    "shop_sum_town": ("How many were sold in {t}?", f"SELECT sum(number) FROM sale WHERE {_TOWN}"),
    "shop_sum_both": (
        "How many of {p} were sold in {t}?",
        f"SELECT sum(number) FROM sale WHERE {_PRODUCT} AND {_TOWN}",
    ),
    "shop_count": ("How many sales were there in {t}?", f"SELECT count(*) FROM sale WHERE {_TOWN}"),
    "shop_count_both": (
        "How many sales of {p} were there in {t}?",
        f"SELECT count(*) FROM sale WHERE {_PRODUCT} AND {_TOWN}",
    ),
    "shop_join_kind": (
        "How much money came in for products of kind {k}?",
        f"SELECT sum(number * price) FROM {_JOINED} WHERE {_KIND}",
    ),
    "shop_join_town": (
        "How much money came in in {t}?",
        f"SELECT sum(number * price) FROM {_JOINED} WHERE {_TOWN}",
    ),
    "shop_join_both": (
        "How much money came in for products of kind {k} in {t}?",
        f"SELECT sum(number * price) FROM {_JOINED} WHERE {_TOWN} AND {_KIND}",
    ),
    "shop_count_join": (
        "How many sales were there for products of kind {k} in {t}?",
        f"SELECT count(*) FROM {_JOINED} WHERE {_TOWN} AND {_KIND}",
    ),
    "shop_rank_kind": (
        f"Which product of kind {{k}} sold most, {_FIRST}",
        f"SELECT product FROM {_JOINED} WHERE {_KIND}{_RANK}",
    ),
    "shop_rank_town": (
        f"Which product sold most in {{t}}, {_FIRST}",
        f"SELECT product FROM {_JOINED} WHERE {_TOWN}{_RANK}",
    ),
    "shop_rank_both": (
        f"Which product of kind {{k}} sold most in {{t}}, {_FIRST}",
        f"SELECT product FROM {_JOINED} WHERE {_TOWN} AND {_KIND}{_RANK}",
    ),
}

_EXTRA_CONDITIONS = {"shop_sum": _TOWN, "shop_sum_town": _PRODUCT}
"""Conditions that a careless sum adds, about a name that the question does not have."""


def sample_query(rng: random.Random, kind: str) -> Task:
    """A question of `kind` with its query; the result is made up."""
    if kind in _SHOP:
        question, query = _SHOP[kind]
        names = {"p": random_word(rng), "k": random_word(rng), "t": random_name(rng)}
        question, query = question.format(**names), query.format(**names)
        document = SHOP_DOCUMENT
    else:
        question, query, document = _table_query(rng, kind)
    header = query.removeprefix("SELECT ").split(" FROM ")[0]
    value = random_word(rng) if header == "product" else random_number(rng)
    extra = _EXTRA_CONDITIONS.get(kind)
    wrong = query.split(" WHERE ")[0] if extra is None else f"{query} AND {extra.format(**names)}"
    return Task(
        kind,
        f"Tools:\n- sql(query): {document}",
        question,
        ("sql", {"query": query}),
        f"{header}\n{value}",
        value,
        (),
        ("sql", {"query": wrong}),
    )


def _table_query(rng: random.Random, kind: str) -> tuple[str, str, str]:
    """A question, its query and the tool's description for a table drawn at random."""
    table = rng.choice(TABLES) if rng.random() < 0.5 else random_word(rng)
    columns: list[str] = list(dict.fromkeys(random_column(rng) for _ in range(5)))[:4]
    column, other, third = rng.sample(columns, 3)
    value, second = random_name(rng), random_word(rng)
    document = f"Run one SQLite SELECT. Tables: {table} ({', '.join(columns)})."
    if kind == "table_look_up":
        return (
            f"What is the {column} of the {table} with {other} {value}?",
            f"SELECT {column} FROM {table} WHERE {other} = '{value}'",
            document,
        )
    where, asked = f"{other} = '{value}'", f"with {other} {value}"
    if kind in ("table_count_two", "table_sum_two"):
        where, asked = f"{where} AND {third} = '{second}'", f"{asked} and {third} {second}"
    if kind in ("table_sum", "table_sum_two"):
        return (
            f"What is the total {column} of {table} {asked}?",
            f"SELECT sum({column}) FROM {table} WHERE {where}",
            document,
        )
    return f"How many {table} are there {asked}?", f"SELECT count(*) FROM {table} WHERE {where}", document
