"""What the guide to judges shows is right, and speaks of what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlf.apps.judges.prompts import SHAPES
from rlf.apps.judges.settings import Compare, Read
from rlf.plan import compile as compile_plan

from .guide import Guide, ends_well, flawless

GUIDE = Guide("judges")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    GUIDE.write(tmp_path)


@pytest.mark.parametrize("name", GUIDE.specs)
def test_each_spec_has_neither_faults_nor_warnings(name: str) -> None:
    assert compile_plan(flawless(name)).spec.rewards[0].kind == "judge"


def test_the_judge_that_is_served_has_no_other_endpoint() -> None:
    (judge, _) = compile_plan(flawless("specs/served.yaml")).spec.rewards
    assert (judge.endpoints, judge.serve.model) == ((), "builtin:tiny")


@pytest.mark.parametrize("command", GUIDE.commands)
def test_each_command_ends_well(command: str) -> None:
    ends_well(command)


def test_every_name_and_choice_is_reported() -> None:
    told = {*re.findall(r"`([\w ]+)`", GUIDE.text), *re.findall(r"`\w+: (\w+)`", GUIDE.text)}
    assert told >= {name for shape in SHAPES.values() for name in shape}
    assert told >= {*Compare, *Read}
