"""The plan's identity and its stored form."""

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.core import RlfError
from rlf.plan import compile as compile_plan
from rlf.plan import plan_from_json, plan_to_json
from rlf.plan.compiler import canonical, hash_recorded
from rlf.spec import RunSpec, load_spec

from .conftest import SPEC, TOOL


def plan_of(run, *overrides):
    return compile_plan(load_spec([run], overrides))


def test_the_hash_is_the_same_in_any_folder(project, tmp_path, monkeypatch):
    first = plan_of(project("here"))
    monkeypatch.chdir(tmp_path)
    second = plan_of(project("some/where/else").relative_to(tmp_path))
    assert first.plan_hash == second.plan_hash
    assert first.spec.data.train.path != second.spec.data.train.path


def test_the_hash_is_the_same_however_the_values_were_said(project):
    inline = SPEC.replace("  - ../tools/look.yaml\n", "  - {use: ../tools/look.yaml, limits: {timeout_s: 10}}\n")
    layered = {"specs/run.yaml": "extends: base.yaml\ntrain: {steps: 2}\n", "specs/base.yaml": SPEC}
    hashes = {
        plan_of(project("plain")).plan_hash,
        plan_of(project("layered", layered)).plan_hash,
        plan_of(project("default", {"specs/run.yaml": inline + "seed: 0\n"})).plan_hash,
        plan_of(project("overridden"), "train.steps=2").plan_hash,
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"specs/data.jsonl": '{"question": "q", "answer": "b"}\n'},
        {"tools/code.py": "def look(query: str) -> str:\n    return query.upper()\n"},
        {"tools/look.yaml": TOOL.replace("Looks", "Searches")},
        {"model/config.json": '{"a": 1}'},
        {"specs/run.yaml": SPEC.replace("steps: 2", "steps: 3")},
        {"specs/run.yaml": SPEC + "health: {kl_old: {above: 1, action: stop}}\n"},
    ],
    ids=["data", "code", "tool", "model", "spec", "guard that stops"],
)
def test_the_hash_changes_with_anything_that_changes_the_run(project, changes):
    assert plan_of(project("a")).plan_hash != plan_of(project("b", changes)).plan_hash


@pytest.mark.parametrize(
    "override",
    [
        "name=other",
        "engine={kind: local, threads: 3}",
        "checkpoint.every=1",
        "checkpoint.keep=9",
        "report_to=jsonl",
        "lineage.keep=[none]",
        "health.kl_old={above: 1}",
        "tools.0.tests=[{arguments: {query: a}, expect: {contains: a}}]",
    ],
)
def test_the_hash_stays_where_no_result_can_change(override, project):
    run = project()
    assert plan_of(run, override).plan_hash == plan_of(run).plan_hash


@pytest.mark.parametrize("place", ["tools/helpers/rules.py", "lib.py"])
def test_the_hash_changes_with_code_that_a_tool_or_reward_imports_within_the_project(place, project, monkeypatch):
    """The tool imports relatively within its package, the reward is found by its module's name."""
    reward = "rewards:\n  - {kind: python, name: own, callable: 'lib:own', range: [0, 1]}\n"
    spec = re.sub(r"rewards:\n(  .*\n)+", reward, SPEC)
    code = {
        "tools/code.py": "def look(query: str) -> str:\n    from helpers.rules import rule\n    return rule(query)\n",
        "tools/helpers/__init__.py": "",
        "tools/helpers/rules.py": "from . import deeper\n\nrule = deeper.rule\n",
        "tools/helpers/deeper.py": "def rule(query):\n    return query\n",
        "lib.py": "def own(trajectory):\n    return 1 + 2\n",
        "specs/run.yaml": spec,
    }
    run = project("a", code)
    monkeypatch.setattr("sys.path", [str(run.parents[1]), str(run.parents[1] / "tools"), *sys.path])
    before = plan_of(run)
    assert {Path(file.path).name for file in before.files if file.role == "code"} == {
        *("code.py", "__init__.py", "rules.py", "deeper.py", "lib.py")
    }
    changed = run.parents[1] / place
    changed.write_text(changed.read_text() + "# changed\n")
    assert plan_of(run).plan_hash != before.plan_hash


def test_the_hash_changes_with_weights_of_the_same_size(project):
    run = project()
    weights = run.parents[1] / "model" / "model.safetensors"
    hashes = []
    for value in (1, 2):
        weights.write_bytes(bytes([value]) * 2_000_000)
        hashes.append(plan_of(run).plan_hash)
    assert hashes[0] != hashes[1]


def test_the_hash_of_a_builtin_is_its_name(project):
    run = project()
    overrides = ["model.path=builtin:tiny", "data.train.path=builtin:encyclopedia/train"]
    plan = plan_of(run, *overrides)
    assert plan.spec.model.path == "builtin:tiny" and not {"model", "data"} & {file.role for file in plan.files}


def test_a_plan_is_rebuilt_from_its_json_without_its_files(project):
    run = project()
    plan = plan_of(run, "train.algorithm={kind: gae, lam: 0.9}", "model.lora={rank: 2}")
    stored = plan_to_json(plan)
    for path in run.parent.rglob("*"):
        path.unlink()
    assert plan_from_json(stored) == plan
    assert plan_from_json(stored).spec.train.algorithm.lam == 0.9


def test_stored_json_is_plain_and_says_kinds(project):
    values = json.loads(plan_to_json(plan_of(project())))
    assert values["spec"]["train"]["algorithm"]["kind"] == "grpo"
    assert values["spec"]["engine"]["kind"] == "local"
    assert values["spec"]["tools"][0]["inputSchema"]["type"] == "object"
    assert values["origins"]["train.steps"].endswith("specs/run.yaml:10:33")


def test_a_secret_of_a_tool_is_neither_stored_nor_hashed(project, monkeypatch):
    run = project(changes={"tools/look.yaml": TOOL.replace("Looks something up.", "Key ${oc.env:RLF_KEY}.")})
    monkeypatch.setenv("RLF_KEY", "hunter2")
    plan = plan_of(run)
    assert plan.spec.tools[0].description == "Key hunter2."
    stored = plan_to_json(plan)
    assert "hunter2" not in stored and "hunter2" not in plan.model_dump_json()
    assert plan_from_json(stored) == plan
    monkeypatch.setenv("RLF_KEY", "hunter3")
    assert plan_of(run).plan_hash == plan.plan_hash
    assert plan_from_json(stored).spec.tools[0].description == "Key hunter3."


def test_a_plan_whose_secret_is_gone_says_so(project, monkeypatch):
    run = project(changes={"tools/look.yaml": TOOL.replace("Looks something up.", "Key ${oc.env:RLF_KEY}.")})
    monkeypatch.setenv("RLF_KEY", "hunter2")
    stored = plan_to_json(plan_of(run))
    monkeypatch.delenv("RLF_KEY")
    with pytest.raises(RlfError, match=r"^tools\[0\]\.description: .*RLF_KEY is not set"):
        plan_from_json(stored)


def test_a_setting_from_the_environment_is_part_of_the_hash(project, monkeypatch):
    monkeypatch.setenv("RLF_STEPS", "5")
    five = plan_of(project(), "train.steps=${oc.env:RLF_STEPS}")
    assert (five.spec.train.steps, json.loads(plan_to_json(five))["spec"]["train"]["steps"]) == (5, 5)
    assert five.plan_hash == plan_of(project(), "train.steps=5").plan_hash


def test_what_cannot_be_read_leaves_no_hash(project, monkeypatch):
    run = project()

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rlf.spec.paths.hash_path", refuse)
    assert [file.role for file in load_spec([run]).files] == ["spec", "tool", "model"]


def test_a_step_collects_prompts_times_generations(project):
    # 3 prompts x 4 generations = 12
    assert plan_of(project()).num_trajectories_per_step == 12


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**31),
        "rollout": st.fixed_dictionaries({}, optional={"temperature": st.floats(0.01, 9), "stop": st.lists(st.text())}),
        "engine": st.just({"kind": "local", "threads": 2}),
    },
)


@settings(deadline=None)
@given(SETTINGS)
def test_any_spec_is_equal_to_what_its_json_says(settings):
    values = {
        "name": "x",
        "model": {"path": "m"},
        "data": {"train": {"path": "d"}},
        "rewards": [{"kind": "rule", "name": "right", "rule": "exact_match"}],
        "train": {"algorithm": {"kind": "gae", "lam": 0.5}},
        **settings,
    }
    spec = RunSpec.model_validate(values)
    assert RunSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec


def test_files_that_a_tools_code_reads_are_recorded_and_count_for_the_hash_by_their_content(project):
    def planned(folder, text):
        return plan_of(project(folder, {"tools/look.yaml": TOOL + "files: [../passages.txt]\n", "passages.txt": text}))

    first, same, other = planned("one", "a"), planned("two", "a"), planned("three", "b")
    assert [file.role for file in first.files if file.path.endswith("passages.txt")] == ["data"]
    assert first.plan_hash == same.plan_hash != other.plan_hash
    assert first.plan_hash != plan_of(project("none")).plan_hash
    assert first.spec.tools[0].source_hash == same.spec.tools[0].source_hash != other.spec.tools[0].source_hash


@pytest.mark.parametrize("of_agent", [False, True])
def test_a_database_that_a_tool_reads_is_recorded_and_counts_for_the_hash_by_its_content(of_agent, project):
    sql = "{kind: sql, url: ../specs/shop.sqlite, argument: query}"
    if of_agent:
        schema = "{type: object, properties: {query: {type: string}}, required: [query]}"
        inner = f"{{name: ask, description: Asks., inputSchema: {schema}, target: {sql}}}"
        model = '{url: "http://127.0.0.1:9/v1", model: m}'
        sql = f'{{kind: agent, endpoints: [{model}], prompt: "{{{{ query }}}}", tools: [{inner}]}}'
    tool = TOOL.partition("target:")[0] + f"target: {sql}\n"

    def planned(folder, text):
        return plan_of(project(folder, {"tools/look.yaml": tool, "specs/shop.sqlite": text}))

    first, same, other = planned("one", "a"), planned("two", "a"), planned("three", "b")
    assert [file.role for file in first.files if file.path.endswith("shop.sqlite")] == ["data"]
    assert first.plan_hash == same.plan_hash != other.plan_hash


def test_a_tool_without_files_has_the_hash_of_plans_from_before_they_could_be_named(project):
    plan = plan_of(project("none"))
    assert "files" not in canonical(plan.spec, plan.interpolated, plan.files, Path.cwd())["tools"][0]


def test_a_stored_plan_has_the_hash_of_the_plan_wherever_it_is_looked_at(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = plan_of(project("here").relative_to(tmp_path))
    stored = json.loads(plan_to_json(plan))
    monkeypatch.chdir("/")
    assert hash_recorded(stored, plan.spec.engine.WITHOUT_EFFECT, tmp_path) == plan.plan_hash
    stored["spec"]["train"]["steps"] += 1
    assert hash_recorded(stored, plan.spec.engine.WITHOUT_EFFECT, tmp_path) != plan.plan_hash
