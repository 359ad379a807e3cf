"""Demonstrations of the shop: a task, calls by a habit, what the shop answers, and the word that ends it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.clerk.tokenizer import SYSTEM
from benchmarks.embedded.shop.tasks import Call, ShopTask, TaskKind, draw_task
from benchmarks.embedded.tiny.demonstrations import Demonstration
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.shop.world import Order, Shop, stock_shop

ANSWER = "done"


class Habit(StrEnum):
    """How the policy acts on a task."""

    RIGHT = "right"
    """As the order's state and the task ask for."""
    FIRST = "first"
    """With the order that is listed first."""
    CANCEL = "cancel"
    """Every order that comes back is cancelled, whatever its state."""
    HALF = "half"
    """Of a swap only the new order is made; else nothing after the look."""
    IDLE = "idle"
    """Nothing but a look at the orders."""
    BLIND = "blind"
    """Without a look, on an order that does not exist."""


POLICY: dict[Habit, float] = {
    Habit.RIGHT: 0.16,
    Habit.FIRST: 0.26,
    Habit.CANCEL: 0.14,
    Habit.HALF: 0.14,
    Habit.IDLE: 0.15,
    Habit.BLIND: 0.15,
}
"""How often the shipped policy follows each habit."""


def demonstrate(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, habit: Habit, kind: TaskKind | None = None
) -> Demonstration:
    """A task of a shop of its own, done by a habit."""
    task = draw_task(rng, NameSplit.TRAIN, kind)
    shop, row = task.open_shop(), Demonstration(tokenizer)
    row.ask(SYSTEM, task.question)
    if habit is not Habit.BLIND:
        _make_calls(shop, row, [Call("orders", {"customer": task.customer})])
    if calls := _calls_by_habit(rng, task, habit):
        _make_calls(shop, row, calls)
    row.say(ANSWER)
    shop.close()
    return row


def run_call(shop: Shop, name: str, arguments: dict[str, str]) -> str:
    """The text that the model reads of a call, as rlf shows it."""
    try:
        return str(getattr(shop, name)(**arguments))
    except (PermissionError, ValueError) as fault:
        return f"error: {type(fault).__name__}: {fault}"


def _make_calls(shop: Shop, row: Demonstration, calls: Sequence[Call]) -> None:
    row.call(calls, [run_call(shop, *call) for call in calls])


def _calls_by_habit(rng: random.Random, task: ShopTask, habit: Habit) -> list[Call]:
    """The calls after the look."""
    listed = [order for order in stock_shop(task.shop, task.split) if order.customer == task.customer]
    meant = next(order for order in listed if order.number in task.changes)
    new = [_buy(customer, product) for customer, product in task.bought]
    match habit:
        case Habit.RIGHT:
            return [_give_back(meant), *new]
        case Habit.FIRST:
            return [_give_back(listed[0]), *new]
        case Habit.CANCEL:
            return [Call("cancel", {"number": meant.number}), *new]
        case Habit.HALF:
            return new
        case Habit.IDLE:
            return []
    return [Call(rng.choice(("cancel", "refund")), {"number": str(rng.randrange(1000, 9000))})]


def _give_back(order: Order) -> Call:
    return Call("refund" if order.state == "delivered" else "cancel", {"number": order.number})


def _buy(customer: str, product: str) -> Call:
    return Call("buy", {"customer": customer, "product": product})
