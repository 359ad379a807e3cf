"""Every key has a meaning, and the reference that is committed is the one the code gives."""

import inspect
from enum import StrEnum
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from rlf.algo import ESTIMATORS
from rlf.apps.schema.schemas import FILES
from rlf.chat import FORMATS
from rlf.rewards.kinds.rule import RULES
from rlf.rewards.term import TERM_KINDS
from rlf.spec.engines import ENGINES
from rlf.spec.facts import KeyFact, field_doc, is_discriminator, key_facts, submodels
from rlf.spec.models import RunSpec
from rlf.tools.kind import TOOL_KINDS
from rlf.trackers import TRACKERS

from ..metrics import METRICS, find_metric
from ..reference import load_reference

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGES = load_reference().pages()
REGISTRIES = (ENGINES, ESTIMATORS, TERM_KINDS, RULES, TOOL_KINDS, TRACKERS)


def models():
    waiting = [*FILES.values(), *(registry.get(name) for registry in REGISTRIES for name in registry.names())]
    found = []
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.append(model)
            waiting += [below for _, below in submodels(model)]
    return found


@pytest.mark.parametrize("name", list(PAGES))
def test_the_committed_reference_is_current(name):
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name], "run `make reference`"


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_key_has_a_meaning_and_every_choice_of_it_too(model):
    for fact in key_facts(model):
        assert fact.meaning, f"{model.__name__}.{fact.name} has no docstring"
        assert all(said for _, said in fact.choices), f"{model.__name__}.{fact.name}: a choice without a docstring"


@pytest.mark.parametrize("registry", [*REGISTRIES, FORMATS], ids=lambda registry: registry.noun)
def test_every_kind_says_what_it_is(registry):
    for name in registry.names():
        assert inspect.cleandoc(registry.get(name).__doc__ or ""), name


class Colour(StrEnum):
    """What it looks like."""

    RED = "red"
    """As blood."""


class Example(BaseModel):
    """A mapping."""

    timeout_s: float | None = Field(1.5, gt=0)
    """How long
    it may take."""
    colour: Colour = Colour.RED
    pair: tuple[float, float] = (0.0, 1.0)
    """Two of them."""
    names: tuple[str, ...] = Field(min_length=1)
    """Some."""


def test_facts_are_read_off_a_field():
    assert key_facts(Example) == [
        KeyFact("timeout_s", "How long it may take.", "number or `null`", "seconds", "1.5", "> 0", ()),
        KeyFact("colour", "What it looks like.", "`red`", "", "red", "", (("red", "As blood."),)),
        KeyFact("pair", "Two of them.", "[number, number]", "", "[0.0, 1.0]", "", ()),
        KeyFact("names", "Some.", "list of text", "", "required", "at least 1 long", ()),
    ]


def test_every_top_level_key_is_reported():
    text = PAGES["spec.md"]
    assert all(f"| `{name}` |" in text for name in RunSpec.model_fields)


def test_a_name_of_a_metric_is_found_by_its_family():
    assert find_metric("rewards/exact_match/mean").unit == ""
    assert find_metric("stop/answered").unit == "share"
    assert find_metric("rewards/exact_match/median") is None
    assert find_metric("success/two_hop").name == "success/<kind>" and find_metric("success/low").name == "success/low"
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_nine_in_ten_keys_have_a_docstring_right_under_them():
    keys = [
        bool(field_doc(model, name))
        for model in models()
        for name, info in model.model_fields.items()
        if name in inspect.get_annotations(model) and not is_discriminator(info)
    ]
    assert sum(keys) >= 0.9 * len(keys)
