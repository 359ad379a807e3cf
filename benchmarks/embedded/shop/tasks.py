"""Tasks of the shop, each with its goal and the shortest way there, found by search over the shop's own calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.embedded.rows import write_rows
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.shop.world import PRODUCTS, Order, Shop, stock_shop

_MAX_CALLS = 3
_NUM_TRAIN, _NUM_EVALUATION = 384, 256


class TaskKind(StrEnum):
    """The wish of a customer."""

    GIVE_BACK = "give_back"
    """To be rid of an order: it is cancelled or refunded, as its state allows."""
    BY_STATE = "by_state"
    """To be rid of the order in some state, whatever its product."""
    SWAP = "swap"
    """To be rid of an order, and to have another product."""


class Call(NamedTuple):
    """One call of a tool."""

    name: str
    arguments: dict[str, str]


class ShopTask(NamedTuple):
    """One task, as a row of a dataset has it."""

    shop: int
    split: NameSplit
    kind: TaskKind
    question: str
    customer: str
    changes: dict[str, str]
    bought: list[list[str]]

    def row(self, number: int) -> dict[str, Any]:
        """The columns."""
        gold = [call._asdict() for call in find_gold(self)]
        return {"id": f"{self.kind}-{self.split}-{number:04d}", **self._asdict(), "gold": gold}

    def open_shop(self) -> Shop:
        """The shop at the task's start."""
        shop = Shop()
        shop.reset(self.shop, self.split, self.changes, self.bought)
        return shop


def draw_task(rng: random.Random, split: NameSplit, kind: TaskKind | None = None) -> ShopTask:
    """A task about a shop of its own."""
    number, kind = rng.getrandbits(32), kind or rng.choice(list(TaskKind))
    stock = stock_shop(number, split)
    order = rng.choice([one for one in stock if one.state in _END])
    customer = order.customer
    own = [one.product for one in stock if one.customer == customer]
    wanted = rng.choice([product for product in PRODUCTS if product not in own])
    bought = [[customer, wanted]] if kind is TaskKind.SWAP else []
    changes = {order.number: _END[order.state]}
    return ShopTask(number, split, kind, _question(kind, order, wanted), customer, changes, bought)


_END = {"open": "cancelled", "delivered": "refunded"}


def _question(kind: TaskKind, order: Order, wanted: str) -> str:
    match kind:
        case TaskKind.GIVE_BACK:
            return f"{order.customer} gives back the {order.product}."
        case TaskKind.BY_STATE:
            return f"{order.customer} gives back what is {order.state}."
        case TaskKind.SWAP:
            return f"{order.customer} gives back the {order.product} and wants the {wanted}."


def find_gold(task: ShopTask) -> list[Call]:
    """The shortest calls that change the shop to the goal, after a look at the orders; by breadth-first search."""
    paths: list[list[Call]] = [[]]
    for _ in range(_MAX_CALLS):
        for path in paths:
            if _reaches_goal(task, path):
                return [Call("orders", {"customer": task.customer}), *path]
        paths = [[*path, call] for path in paths for call in _possible_calls(task) if call not in path]
    raise ValueError(f"no {_MAX_CALLS - 1} calls do {task.question!r}")


def _possible_calls(task: ShopTask) -> Iterator[Call]:
    """Calls about the task's customer."""
    for order in stock_shop(task.shop, task.split):
        if order.customer == task.customer:
            yield Call("cancel", {"number": order.number})
            yield Call("refund", {"number": order.number})
    for product in PRODUCTS:
        yield Call("buy", {"customer": task.customer, "product": product})


def _reaches_goal(task: ShopTask, path: list[Call]) -> bool:
    shop = task.open_shop()
    try:
        for call in path:
            getattr(shop, call.name)(**call.arguments)
    except (PermissionError, ValueError):
        return False
    else:
        return shop.score()["goal"] == 1.0
    finally:
        shop.close()


def write_tasks(folder: Path) -> None:
    """Writes `orders_*.jsonl`, of which the state is named, and `orders_mixed_*.jsonl` of all kinds, into `folder`.

    Customers of the training files are in no other.
    """
    for name, kinds in (("orders", [TaskKind.BY_STATE]), ("orders_mixed", list(TaskKind))):
        for part, split, count in (
            ("train", NameSplit.TRAIN, _NUM_TRAIN),
            ("heldout", NameSplit.HELDOUT, _NUM_EVALUATION),
        ):
            rng = random.Random(f"{name}:{part}")
            rows = (draw_task(rng, split, kinds[number % len(kinds)]).row(number) for number in range(count))
            write_rows(folder / f"{name}_{part}.jsonl", rows)
