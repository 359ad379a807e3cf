"""Which value wins when several files and overrides speak of the same key."""

from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.spec import load_spec

from .project import SPEC, TOOL


def other_tool(**keys):
    lines = [f"{key}: {value}" for key, value in keys.items()]
    return TOOL.replace("description: Looks something up.", "\n".join(["description: Another.", *lines]))


def test_a_file_wins_over_what_it_extends_key_by_key(project):
    run = project({"specs/child.yaml": "extends: run.yaml\ntrain: {steps: 7}\n"})
    spec = load_spec([run.with_name("child.yaml")]).spec
    assert (spec.train.steps, spec.train.prompts_per_step, spec.name) == (7, 3, "base")


def test_what_is_extended_layers_from_left_to_right(project):
    run = project(
        {
            "specs/a.yaml": "seed: 1\nname: a\n",
            "specs/b.yaml": "seed: 2\n",
            "specs/child.yaml": "extends: [run.yaml, a.yaml, b.yaml]\n",
        }
    )
    spec = load_spec([run.with_name("child.yaml")]).spec
    assert (spec.seed, spec.name) == (2, "a")


def test_a_chain_of_extends_is_followed(project):
    run = project({"specs/a.yaml": "extends: run.yaml\nseed: 1\n", "specs/b.yaml": "extends: a.yaml\nname: b\n"})
    spec = load_spec([run.with_name("b.yaml")]).spec
    assert (spec.seed, spec.name) == (1, "b")


def test_one_file_may_be_extended_twice_without_a_circle(project):
    run = project({"specs/a.yaml": "extends: run.yaml\n", "specs/b.yaml": "extends: [run.yaml, a.yaml]\n"})
    assert load_spec([run.with_name("b.yaml")]).spec.name == "base"


def test_files_of_the_command_line_layer_from_left_to_right(project):
    run = project({"more.yaml": "name: more\nrollout: {num_generations: 6}\n"})
    rollout = load_spec([run, Path("more.yaml")]).spec.rollout
    assert (rollout.num_generations, rollout.max_total_tokens) == (6, 100)


def test_a_tool_file_replaces_the_tool_of_its_name_whole_and_in_place(project):
    run = project(
        {
            "specs/run.yaml": SPEC.replace("look.yaml", "look.yaml\n  - ../tool_specs/last.yaml"),
            "tool_specs/look.yaml": TOOL + "limits: {timeout_s: 3}\n",
            "tool_specs/last.yaml": TOOL.replace("name: look", "name: last"),
            "tool_specs/other.yaml": other_tool(),
            "specs/child.yaml": "extends: run.yaml\ntools: [../tool_specs/other.yaml]\n",
        }
    )
    tools = load_spec([run.with_name("child.yaml")]).spec.tools
    assert [tool.name for tool in tools] == ["look", "last"]
    assert (tools[0].description, tools[0].limits.timeout_s) == ("Another.", 10.0)


def test_an_inline_tool_is_laid_over_the_tool_of_its_name(project):
    run = project({"specs/child.yaml": "extends: run.yaml\ntools: [{name: look, limits: {timeout_s: 3}}]\n"})
    tool = load_spec([run.with_name("child.yaml")]).spec.tools[0]
    assert (tool.description, tool.limits.timeout_s) == ("Looks something up.", 3.0)


def test_a_tool_of_another_name_is_added(project):
    new = TOOL.replace("name: look", "name: new")
    run = project({"tool_specs/new.yaml": new, "child.yaml": "extends: specs/run.yaml\ntools: [tool_specs/new.yaml]\n"})
    assert run and [tool.name for tool in load_spec([Path("child.yaml")]).spec.tools] == ["look", "new"]


def test_rewards_merge_by_name_too(project):
    run = project({"specs/child.yaml": "extends: run.yaml\nrewards: [{name: right, weight: 5}]\n"})
    rewards = load_spec([run.with_name("child.yaml")]).spec.rewards
    assert [(term.name, term.kind, term.weight) for term in rewards] == [("right", "rule", 5.0)]


def test_an_empty_list_empties_the_list_below(project):
    run = project({"specs/child.yaml": "extends: run.yaml\ntools: []\n"})
    assert load_spec([run.with_name("child.yaml")]).spec.tools == ()


def test_another_kind_brings_none_of_the_former_kinds_keys(project):
    run = project(
        {
            "specs/run.yaml": SPEC.replace("algorithm: grpo", "algorithm: {kind: gae, lam: 0.9}"),
            "specs/child.yaml": "extends: run.yaml\ntrain: {algorithm: rloo}\n",
        }
    )
    loaded = load_spec([run.with_name("child.yaml")])
    assert loaded.value(("train", "algorithm")) == {"kind": "rloo"}


def test_the_same_kind_keeps_the_keys_below(project):
    run = project(
        {
            "specs/run.yaml": SPEC.replace("algorithm: grpo", "algorithm: {kind: gae, lam: 0.9}"),
            "specs/child.yaml": "extends: run.yaml\ntrain: {algorithm: {kind: gae, gamma: 0.5}}\n",
        }
    )
    loaded = load_spec([run.with_name("child.yaml")])
    assert loaded.value(("train", "algorithm")) == {"kind": "gae", "lam": 0.9, "gamma": 0.5}


def test_keys_beside_use_are_laid_over_the_file(project):
    loaded = load_spec([project()])
    assert (loaded.spec.rewards[0].weight, loaded.origins["rewards[0].weight"]) == (2.0, "specs/run.yaml:8:47")
    assert loaded.origins["rewards[0].rule"] == "reward_specs/right.yaml:3:7"


def test_each_path_starts_from_the_file_that_says_it(project, tmp_path):
    run = project(
        {
            "mine/code.py": "def look(query: str) -> str:\n    return query\n",
            "mine/data.jsonl": '{"question": "q", "answer": "a"}\n',
            "mine/child.yaml": "extends: ../specs/run.yaml\ndata: {train: {path: data.jsonl}}\n"
            "tools: [{name: look, target: {kind: python, callable: 'code.py:look'}}]\n",
        }
    )
    base, child = load_spec([run]).spec, load_spec([Path("mine/child.yaml")]).spec
    assert base.tools[0].target.callable == f"{tmp_path}/tool_specs/code.py:look"
    assert child.tools[0].target.callable == f"{tmp_path}/mine/code.py:look"
    assert child.data.train.path == f"{tmp_path}/mine/data.jsonl"


def test_names_that_are_no_files_are_left_alone(project):
    spec = load_spec([project()], ["model.path=Qwen/Qwen3-0.6B", "data.train.path=org/set"]).spec
    assert (spec.model.path, spec.data.train.path) == ("Qwen/Qwen3-0.6B", "org/set")


def test_every_file_that_was_read_is_listed_with_its_hash(project):
    loaded = load_spec([project({"specs/child.yaml": "extends: run.yaml\n"}).with_name("child.yaml")])
    assert [(file.role, file.path) for file in loaded.files] == [
        ("spec", "specs/child.yaml"),
        ("spec", "specs/run.yaml"),
        ("tool", "tool_specs/look.yaml"),
        ("reward", "reward_specs/right.yaml"),
        ("code", "tool_specs/code.py"),
    ]
    assert all(len(file.sha256) == 64 for file in loaded.files)


def test_a_default_has_no_origin(project):
    origins = load_spec([project()], ["seed=3"]).origins
    assert origins["train.steps"] == "specs/run.yaml:14:10"
    assert origins["seed"] == "override"
    assert "train.learning_rate" not in origins


def test_faults_of_the_layers_below_name_their_own_file(project):
    run = project({"specs/child.yaml": "extends: run.yaml\n", "specs/run.yaml": SPEC.replace("steps: 2", "steps: x")})
    with pytest.raises(SpecError, match=r"^specs/run\.yaml:14:10 train\.steps: got"):
        load_spec([run.with_name("child.yaml")])
