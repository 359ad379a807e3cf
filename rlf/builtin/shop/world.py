"""The shop as a world: a SQLite database per trajectory, tools that read and change it, policies that they keep.

All of a shop follows from its number. An open order may be cancelled, a delivered one refunded, a shipped one neither.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlf.builtin.encyclopedia.names import NameSplit, split_names

__all__ = ["PRODUCTS", "STATES", "Order", "Shop", "ShopForgetful", "ShopShuffled", "stock_shop"]

PRODUCTS = ("apple", "pear", "plum", "quince", "loaf", "roll", "rye", "bun", "axe", "saw", "rasp", "awl")
STATES = ("open", "shipped", "delivered")
_NUM_CUSTOMERS = 3
_TABLE = (
    "CREATE TABLE orders (number TEXT PRIMARY KEY, customer TEXT NOT NULL, product TEXT NOT NULL, state TEXT NOT NULL)"
)


class Order(NamedTuple):
    """One order."""

    number: str
    """Four digits."""
    customer: str
    product: str
    state: str
    """One of `STATES`, or the outcome of one: cancelled, refunded."""


def stock_shop(number: int, split: NameSplit) -> list[Order]:
    """The orders of a shop at the start: each customer has one in every state, of three products, in any order."""
    rng = random.Random(f"shop:{split}:{number}")
    customers = rng.sample(split_names(split), _NUM_CUSTOMERS)
    numbers = iter(rng.sample(range(1000, 9000), _NUM_CUSTOMERS * len(STATES)))
    orders = []
    for customer in customers:
        states = rng.sample(STATES, len(STATES))
        products = rng.sample(PRODUCTS, len(STATES))
        orders += [Order(str(next(numbers)), customer, *pair) for pair in zip(products, states, strict=True)]
    return orders


class Shop:
    """A shop with a clerk's tools. Its score is whether the orders are what the task asks for, and nothing else is."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._goal: list[Order] = []

    def reset(self, shop: int, split: str, changes: Mapping[str, str], bought: Sequence[Sequence[str]]) -> None:
        """Stocks the shop of a task.

        Args:
            changes: the states that orders must end in, by number.
            bought: customer and product of each order that must be new.
        """
        orders = stock_shop(shop, NameSplit(split))
        self._connection.execute(_TABLE)
        self._connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
        self._goal = [order._replace(state=changes.get(order.number, order.state)) for order in orders]
        self._goal += [Order("", customer, product, "open") for customer, product in bought]

    def orders(self, customer: str) -> str:
        """List a customer's orders, each as product, state and number.

        Args:
            customer: the name.
        """
        found = self._select("WHERE customer = ?", customer)
        return ", ".join(f"{one.product} {one.state} {one.number}" for one in found) or "no orders"

    def cancel(self, number: str) -> str:
        """Cancel an open order.

        Args:
            number: the order's.
        """
        return self._move(number, "open", "cancelled")

    def refund(self, number: str) -> str:
        """Refund a delivered order.

        Args:
            number: the order's.
        """
        return self._move(number, "delivered", "refunded")

    def buy(self, customer: str, product: str) -> str:
        """Make a new order for a customer.

        Args:
            customer: the name.
            product: what is ordered.
        """
        if product not in PRODUCTS:
            raise ValueError(f"no product {product}")
        number = str(max(int(one.number) for one in self._select()) + 1)
        self._connection.execute("INSERT INTO orders VALUES (?, ?, ?, 'open')", (number, customer, product))
        return f"bought {number}"

    def score(self) -> dict[str, float]:
        """1 where the final state is the task's goal, new orders under whatever number, and 0 otherwise."""
        known = {order.number for order in self._goal}
        final = [one if one.number in known else one._replace(number="") for one in self._select()]
        return {"goal": float(sorted(final) == sorted(self._goal))}

    def state(self) -> dict[str, list[str]]:
        """Every order by its number."""
        return {one.number: [one.customer, one.product, one.state] for one in self._select()}

    def snapshot(self) -> tuple[bytes, list[Order]]:
        """The database as bytes, and the goal."""
        return self._connection.serialize(), self._goal

    def restore(self, snapshot: tuple[bytes, list[Order]]) -> None:
        """Puts a snapshot's database in place."""
        data, self._goal = snapshot
        self._connection.deserialize(data)

    def close(self) -> None:
        """Closes the database."""
        self._connection.close()

    def _select(self, condition: str = "", *values: str) -> list[Order]:
        rows: Iterable[Any] = self._connection.execute(f"SELECT * FROM orders {condition} ORDER BY rowid", values)
        return [Order(*row) for row in rows]

    def _move(self, number: str, before: str, after: str) -> str:
        found = self._select("WHERE number = ?", number)
        if not found:
            raise ValueError(f"no order {number}")
        if found[0].state != before:
            raise PermissionError(f"{number} is {found[0].state}")
        self._connection.execute("UPDATE orders SET state = ? WHERE number = ?", (after, number))
        return f"{after} {number}"


class ShopForgetful(Shop):
    """A control: every call is forgotten as soon as it is answered, so that no task can be done."""

    def _move(self, number: str, before: str, after: str) -> str:
        kept = self._connection.serialize()
        try:
            return super()._move(number, before, after)
        finally:
            self._connection.deserialize(kept)

    def buy(self, customer: str, product: str) -> str:
        """Make a new order for a customer.

        Args:
            customer: the name.
            product: what is ordered.
        """
        kept = self._connection.serialize()
        said = super().buy(customer, product)
        self._connection.deserialize(kept)
        return said


class ShopShuffled(Shop):
    """A control: the orders of another customer are listed, so that what is read leads to the wrong ones."""

    def orders(self, customer: str) -> str:
        """List a customer's orders, each as product, state and number.

        Args:
            customer: the name.
        """
        customers = list(dict.fromkeys(one.customer for one in self._select()))
        after = customers.index(customer) + 1 if customer in customers else 0
        return super().orders(customers[after % len(customers)])
