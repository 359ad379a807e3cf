"""The shop as a world: policies, goals that the gold reaches and nothing else does, snapshots, controls."""

import json
import random

import pytest

from benchmarks.embedded.shop.tasks import TaskKind, draw_task, find_gold
from rlf.builtin.encyclopedia.names import NameSplit
from rlf.builtin.names import builtin_path
from rlf.builtin.shop.world import STATES, Shop, ShopForgetful, ShopShuffled, stock_shop

NAMES = ("shop/orders_heldout", "shop/orders_mixed_heldout")
ROWS = [json.loads(line) for name in NAMES for line in builtin_path(name).read_text(encoding="utf-8").splitlines()]
SWAP = next(row for row in ROWS if row["kind"] == "swap")


def opened(row, made_by=Shop):
    shop = made_by()
    shop.reset(row["shop"], row["split"], row["changes"], row["bought"])
    return shop


def do(shop, calls):
    for call in calls:
        getattr(shop, call["name"])(**call["arguments"])
    return shop.score()["goal"]


def test_the_shipped_rows_are_what_the_generator_makes():
    rng = random.Random("orders_mixed:heldout")
    kinds = list(TaskKind)
    mixed = builtin_path("shop/orders_mixed_heldout").read_text(encoding="utf-8").splitlines()
    for number, row in enumerate(map(json.loads, mixed[:6])):
        assert draw_task(rng, NameSplit.HELDOUT, kinds[number % 3]).row(number) == row


def test_gold_reaches_the_goal_of_every_held_out_task():
    assert [do(opened(row), row["gold"]) for row in ROWS] == [1.0] * len(ROWS)


def test_without_one_of_its_calls_gold_reaches_no_goal():
    for row in ROWS[-60:]:
        for left_out in row["gold"][1:]:
            assert do(opened(row), [call for call in row["gold"] if call != left_out]) == 0.0


def test_doing_nothing_reaches_no_goal():
    assert {opened(row).score()["goal"] for row in ROWS} == {0.0}


@pytest.mark.parametrize("control", [ShopForgetful, ShopShuffled])
def test_in_a_control_gold_reaches_no_goal(control):
    asked = [row for row in ROWS if control is ShopForgetful]
    assert {do(opened(row, control), row["gold"]) for row in asked} <= {0.0}


def test_shuffled_orders_are_another_customers():
    for row in ROWS[:20]:
        assert opened(row, ShopShuffled).orders(row["customer"]) != opened(row).orders(row["customer"])


def test_orders_move_as_the_policies_allow():
    order = {one.state: one for one in stock_shop(3, NameSplit.TRAIN)}
    for action, allowed in (("cancel", "open"), ("refund", "delivered")):
        for state in STATES:
            shop = opened({"shop": 3, "split": "train", "changes": {}, "bought": []})
            move = getattr(shop, action)
            if state == allowed:
                assert order[state].number in move(order[state].number)
                continue
            with pytest.raises(PermissionError, match=f"is {state}"):
                move(order[state].number)
    with pytest.raises(ValueError, match="no order"):
        move("0000")


def test_a_snapshot_is_the_same_shop_and_a_shop_of_its_own():
    row = SWAP
    shop = opened(row)
    do(shop, row["gold"][:2])
    fork = Shop()
    fork.restore(shop.snapshot())
    assert fork.state() == shop.state()
    assert do(fork, row["gold"][2:]) == 1.0
    assert shop.score()["goal"] == 0.0


def test_gold_is_found_again():
    task = draw_task(random.Random(5), NameSplit.VALIDATION, TaskKind.SWAP)
    assert [call.name for call in find_gold(task)][0::2] == ["orders", "buy"]
