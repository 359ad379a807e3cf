"""`.env` next to a spec."""

import os
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.plan import compile as compile_plan
from rlf.plan import plan_to_json
from rlf.spec import load_spec
from rlf.spec.reader import forget_env_files, mentioned, take_env_file

from .project import SPEC, TOOL


@pytest.fixture(autouse=True)
def clean():
    yield
    forget_env_files()


def described(project, env, text="${oc.env:RLF_A}", **files):
    changes = {"specs/.env": env, "tool_specs/look.yaml": TOOL.replace("Looks something up.", text)}
    return load_spec([project(changes | files)])


def test_interpolation_sees_it(project):
    assert described(project, "RLF_A=one\n").spec.tools[0].description == "one"


def test_a_real_variable_wins(project, monkeypatch):
    monkeypatch.setenv("RLF_A", "real")
    assert described(project, "RLF_A=one\n").spec.tools[0].description == "real"


def test_the_users_code_sees_it_until_the_next_spec_is_loaded(project):
    described(project, "RLF_A=one\n")
    assert os.environ["RLF_A"] == "one"
    load_spec([project({"specs/.env": "", "tool_specs/look.yaml": TOOL})])
    assert "RLF_A" not in os.environ


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("RLF_A=one two  # a comment", "one two"),
        ("export RLF_A = one", "one"),
        ("RLF_A='a # b \\n'", "a # b \\n"),
        ('RLF_A="a\\n\\"b\\"" # c', 'a\n"b"'),
        ("RLF_A=a=b#c", "a=b#c"),
        ("# RLF_B=2\n\nRLF_A=", ""),
    ],
)
def test_its_lines_are_read_as_shells_and_compose_read_them(tmp_path, line, value):
    (tmp_path / ".env").write_text(line)
    faults = []
    take_env_file(tmp_path, faults)
    assert (os.environ["RLF_A"], faults) == (value, [])


def test_a_spec_that_is_extended_brings_its_own_and_the_extending_one_wins(project):
    child = "extends: ../specs/run.yaml\nseed: ${oc.env:RLF_A}${oc.env:RLF_B}\n"
    files = {"specs/.env": "RLF_A=1\nRLF_B=2\n", "mine/.env": "RLF_A=3\n", "mine/child.yaml": child}
    assert project(files) and load_spec([Path("mine/child.yaml")]).spec.seed == 32


def test_its_values_are_neither_in_the_plan_nor_among_the_files(project):
    loaded = described(project, "RLF_A=hunter2hunter2\n")
    assert loaded.spec.tools[0].description == "hunter2hunter2"
    stored = plan_to_json(compile_plan(loaded))
    assert "hunter2" not in stored and not [file for file in loaded.files if file.path.endswith(".env")]
    assert mentioned(item.text for item in loaded.interpolated) == {"RLF_A"}


def test_a_fault_of_a_value_from_it_does_not_show_it(project):
    with pytest.raises(SpecError) as caught:
        load_spec([project({"specs/.env": "RLF_A=hunter2\n", "specs/run.yaml": SPEC + "seed: ${oc.env:RLF_A}\n"})])
    assert "hunter2" not in str(caught.value)
    assert "the value of ${oc.env:RLF_A}" in str(caught.value)
