"""A field that holds a kind takes a mapping that names one, and writes what gives an equal model."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from rlf.algo import Estimator
from rlf.algo.advantages.gae import Gae
from rlf.core.kinds import Kind
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.rules.exact_match import ExactMatch
from rlf.rewards.term import Term
from rlf.spec.engines import EngineSpec
from rlf.tools.kind import ToolKind
from rlf.trackers import Tracker

RIGHT = {"kind": "rule", "name": "right", "rule": "exact_match"}


class Holder(BaseModel):
    terms: tuple[Term, ...] = ()
    estimator: Estimator | None = None


def faults_of(base, value):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(base).validate_python(value)
    return [(found["loc"], found["type"]) for found in error.value.errors()]


def test_a_mapping_becomes_the_kind_that_it_names_through_bases_of_bases():
    assert type(Term.model_validate(RIGHT)) is ExactMatch and type(Rule.model_validate(RIGHT)) is ExactMatch
    assert Estimator.model_validate({"kind": "gae", "lam": 0.9}) == Gae(lam=0.9)


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"kind": "rul"}, [(("kind",), "unknown_kind")]),
        (RIGHT | {"rule": "exact"}, [(("rule",), "unknown_kind")]),
        ({"name": "right"}, [(("kind",), "missing")]),
        ({"kind": 5}, [(("kind",), "string_type")]),
        ("rule", [((), "model_type")]),
        (RIGHT | {"wight": 2}, [(("wight",), "extra_forbidden")]),
    ],
)
def test_errors_are_at_the_keys_that_they_are_about(value, faults):
    assert faults_of(Term, value) == faults
    assert faults_of(Holder, {"terms": [value]}) == [(("terms", 0, *loc), kind) for loc, kind in faults]


def test_what_is_written_names_the_kind_and_gives_an_equal_model():
    holder = Holder.model_validate({"terms": [RIGHT], "estimator": {"kind": "gae", "lam": 0.9}})
    written = holder.model_dump(mode="json")
    assert written["estimator"]["kind"] == "gae" and written["terms"][0]["rule"] == "exact_match"
    assert Holder.model_validate(written) == holder == Holder.model_validate_json(holder.model_dump_json())


@pytest.mark.parametrize("base", [EngineSpec, Estimator, Term, Rule, ToolKind, Tracker])
def test_every_kind_knows_the_name_that_chooses_it(base):
    for name in base.registry().names():
        kind = base.registry().get(name)
        assert issubclass(kind, Kind) and (kind.is_base() or kind.kind_name() == name)
