"""What the guide to rewards shows is what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlf.rewards import RULES, TrajectoryFacts
from rlf.spec import load_spec
from rlf.types import Scored

from .guide import Guide, ends_well, flawless
from .scoring import score

GUIDE = Guide("rewards")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    GUIDE.write(tmp_path)


@pytest.mark.parametrize("name", GUIDE.specs)
def test_each_spec_has_neither_faults_nor_warnings(name: str) -> None:
    flawless(name)


@pytest.mark.parametrize("command", GUIDE.commands)
def test_each_command_ends_well(command: str) -> None:
    ends_well(command)


def worked(answer: str, *outcomes: str) -> Scored:
    calls = [{"name": "search", "arguments": {"n": n}, "outcome": outcome} for n, outcome in enumerate(outcomes)]
    facts = {"gold": "Lyon", "answer": answer, "turns": [{"calls": calls}, {"text": answer}]}
    return score(TrajectoryFacts.model_validate(facts).trajectory(), *load_spec([Path("specs/base.yaml")]).spec.rewards)


def test_the_worked_example_comes_out_as_told() -> None:
    assert worked("Lyon", "ok", "ok", "tool_error").reward == pytest.approx(1.2167, abs=1e-4)
    assert worked("Lyon", "ok", "unknown_tool", "invalid_arguments").reward == pytest.approx(-0.1)
    assert worked("Nice", "ok", "ok", "tool_error").reward == pytest.approx(0.15)


def test_every_rule_is_in_the_table() -> None:
    rules = GUIDE.text[GUIDE.text.index("## Rules") : GUIDE.text.index("## Your own function")]
    assert sorted(re.findall(r"^\| `(\w+)` \|", rules, re.MULTILINE)) == RULES.names()
