"""`key=value` on the command line."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.core import Place
from rlf.spec import load_spec
from rlf.spec.models import EvalSpec
from rlf.spec.nodes import Node, deepest_node, plain
from rlf.spec.overrides import apply_override

from .project import TOOL


def test_values_are_yaml(project):
    overrides = ["train.learning_rate=1e-5", "rollout.stop=['</a>', b]", "model.lora={rank: 4}", "eval.greedy=false"]
    spec = load_spec([project()], overrides).spec
    assert spec.train.learning_rate == 1e-5
    assert spec.rollout.stop == ("</a>", "b")
    assert spec.model.lora is not None and spec.model.lora.rank == 4
    assert spec.eval.greedy is False


def test_the_last_one_wins(project):
    assert load_spec([project()], ["seed=1", "seed=2"]).spec.seed == 2


def test_items_are_named_by_index_with_dots_or_brackets(project):
    spec = load_spec([project()], ["tools.0.limits.timeout_s=1", "rewards[0].weight=3"]).spec
    assert (spec.tools[0].limits.timeout_s, spec.rewards[0].weight) == (1.0, 3.0)


def test_a_plus_adds_an_item_which_may_be_a_file(project):
    run = project({"tool_specs/new.yaml": TOOL.replace("name: look", "name: new")})
    spec = load_spec([run], ["+tools=tool_specs/new.yaml", "tools.1.limits.timeout_s=5"]).spec
    assert [(tool.name, tool.limits.timeout_s) for tool in spec.tools] == [("look", 10.0), ("new", 5.0)]


def test_a_plus_adds_a_key(project):
    assert load_spec([project()], ["+seed=4"]).spec.seed == 4


def test_a_tilde_deletes_a_key_or_an_item(project):
    spec = load_spec([project()], ["~train.steps", "~tools.0"]).spec
    assert (spec.train.steps, spec.tools) == (100, ())


@pytest.mark.parametrize("overrides", [["~eval"], ["~data.eval"], ["~eval", "~data.eval"], ["~data.eval", "~eval"]])
def test_without_settings_or_data_of_an_evaluation_nothing_is_evaluated(project, overrides):
    evaluated = ["+data.eval={path: builtin:encyclopedia/heldout, prompt: question, answer: answer}", "+eval.every=2"]
    spec = load_spec([project()], [*evaluated, *overrides]).spec
    assert (spec.data.eval, spec.eval) == (None, EvalSpec())


def test_a_bare_kind_can_be_refined(project):
    algorithm = load_spec([project()], ["train.algorithm=gae", "train.algorithm.lam=0.5"]).spec.train.algorithm
    assert algorithm.model_dump() == {"gamma": 1.0, "lam": 0.5, "observations": "bootstrap", "std_norm": True}


def test_paths_start_from_the_current_folder(project, tmp_path):
    spec = load_spec([project()], ["data.train.path=./x.jsonl"]).spec
    assert spec.data.train.path == f"{tmp_path}/x.jsonl"


NAMES = st.text(string.ascii_lowercase, max_size=5).map(lambda text: f"x{text}")  # no library's own name begins so
KEYS = st.lists(NAMES, min_size=1, max_size=4)
VALUES = st.integers() | st.booleans() | st.text(string.ascii_letters + " ")


@settings(deadline=None)
@given(KEYS, VALUES)
def test_what_was_set_is_found_and_nothing_else_changes(keys, value):
    place, faults = Place("x.yaml", 1, 1), []
    root = Node({"OTHER": Node(1, place, place, ("OTHER",), Path())}, place, place, (), Path())
    changed = apply_override(root, f"{'.'.join(keys)}={json.dumps(value)}", faults)
    assert not faults
    node, depth = deepest_node(changed, keys)
    assert (depth, node.value, node.origin) == (len(keys), value, "override")
    assert plain(changed)["OTHER"] == 1 and set(changed.mapping) == {"OTHER", keys[0]}
