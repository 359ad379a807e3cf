"""Each shipped model's weights are those of its card, and its recipe is the one that they were made by."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from benchmarks.embedded.guesser.demonstrations import Wording
from benchmarks.embedded.places import place_of
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.model import hash_weights

FOLDERS = (place_of("tiny").parents[1], place_of("prober").parents[1])
MODELS = sorted(path.parent.parent.name for folder in FOLDERS for path in folder.glob("*/checkpoint/card.json"))


def card_of(name: str) -> dict[str, Any]:
    return json.loads((place_of(name) / "card.json").read_text(encoding="utf-8"))


def recipe_of(name: str, seed: int = 0) -> Recipe:
    build = import_module(f"benchmarks.embedded.{name}.build")
    wording = card_of(name).get("wording")
    return build.recipe(seed, Wording(**wording)) if wording else build.recipe(seed)


def test_every_model_that_ships_is_looked_at() -> None:
    assert MODELS == ["agent", "bookkeeper", "clerk", "games", "guesser", "prober", "reader", "small", "tiny"]


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_that_the_card_names(name: str) -> None:
    assert hash_weights(place_of(name)) == card_of(name)["sha256"]


@pytest.mark.parametrize("name", MODELS)
def test_a_recipe_that_changes_needs_its_model_made_again(name: str) -> None:
    assert recipe_of(name).digest() == card_of(name)["recipe"], (
        f"the recipe of {name} is not the one that its weights were made by: "
        f"`python -m benchmarks.embedded.{name}.build` makes them again, with their card"
    )


def test_another_seed_plan_weight_or_row_is_another_recipe() -> None:
    made = recipe_of("guesser")
    longer = replace(made.habits.plan, steps=made.habits.num_steps + 1)
    others = [
        recipe_of("guesser", seed=1),
        replace(made, copies=True),
        replace(made, shape=made.shape._replace(layers=4)),
        replace(made, habits=replace(made.habits, plan=longer, batch_of_step=lambda step: [])),
        replace(made, habits=replace(made.habits, scale=0.5)),
        replace(made, skills=replace(made.skills, batch_of_step=made.habits.batch_of_step)),
    ]
    assert len({recipe.digest() for recipe in (made, *others)}) == 1 + len(others)
    assert recipe_of("guesser").digest() == made.digest()
