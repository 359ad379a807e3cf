"""Every value of a plan knows who said it, and two plans differ in what they say."""

from rlf.plan import compile as compile_plan
from rlf.runs.planning import differences, planned_values
from rlf.spec import load_spec

from .conftest import SPEC, TOOL


def values_of(run, *overrides):
    loaded = load_spec([run], overrides)
    return {value.path: value for value in planned_values(compile_plan(loaded), loaded)}


def test_a_value_is_from_a_file_an_override_the_environment_or_nobody(project, monkeypatch):
    monkeypatch.setenv("RLF_SEED", "7")
    spec = SPEC + "seed: ${oc.env:RLF_SEED}\n"
    monkeypatch.setenv("RLF_NAME", "from-afar")
    found = values_of(project(changes={"specs/run.yaml": spec}), "train.epochs=2", "name=${oc.env:RLF_NAME}")
    assert found["train.steps"].source == "file" and found["train.steps"].place.endswith("specs/run.yaml:10:33")
    epochs, name = found["train.epochs"], found["name"]
    assert (epochs.source, epochs.value, epochs.place) == ("override", 2, ""), "a command line has no lines"
    assert (name.source, name.value, name.place) == ("environment", "from-afar", "${oc.env:RLF_NAME}")
    assert (found["seed"].source, found["seed"].value) == ("environment", 7)
    assert found["seed"].place.endswith("run.yaml:11:7 ${oc.env:RLF_SEED}")
    assert (found["train.warmup_steps"].source, found["train.warmup_steps"].place) == ("default", "")
    assert found["tools[0].name"].place.endswith("tools/look.yaml:1:7")
    assert found["tools[0].inputSchema"].value["type"] == "object"


def test_a_secret_of_a_tool_is_shown_as_written(project, monkeypatch):
    monkeypatch.setenv("RLF_KEY", "hunter2")
    run = project(changes={"tools/look.yaml": TOOL.replace("Looks something up.", "Key ${oc.env:RLF_KEY}.")})
    found = values_of(run)
    assert found["tools[0].description"].value == "Key ${oc.env:RLF_KEY}."
    assert "hunter2" not in repr(found)


def test_plans_differ_in_values_and_in_keys_that_one_lacks(project):
    left = values_of(project())
    right = values_of(project(), "train.algorithm={kind: gae, lam: 0.9}", "train.steps=3")
    found = {pair.path: pair for pair in differences(list(left.values()), list(right.values()))}
    assert set(found) == {"train.algorithm.kind", "train.steps", "train.algorithm.gamma", "train.algorithm.lam"} | {
        "train.algorithm.std_norm",
        "train.algorithm.observations",
    }
    assert found["train.algorithm.lam"].left is None and found["train.algorithm.lam"].right.value == 0.9
    assert differences(list(left.values()), list(left.values())) == []
