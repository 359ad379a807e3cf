"""A reward that ends the process, blocks it or never ends is a fault of the command, and ends it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlf.apps.attack import command
from rlf.cli import app

SOURCE = """
import os
import re


def runs(trajectory):
    program = re.search(r"```python\\n(.*?)```", trajectory.answer or "", re.DOTALL)
    if program is not None:
        exec(program[1], {})
    return float(trajectory.answer == trajectory.task.answer)


def backtracks(trajectory):
    return float(bool(re.match(r"(\\w+\\s?)+$", "a" * 60 + "!")))


def never_ends(trajectory):
    while True:
        pass


def ends_on_most(trajectory):
    while "Wait" in (trajectory.answer or ""):
        pass
    return float(trajectory.answer == trajectory.task.answer)
"""
SPEC = """
name: attacked
model: {{path: builtin:tiny}}
data: {{train: {{path: builtin:encyclopedia/train, prompt: question}}}}
rewards: [{{kind: python, name: own, callable: "own.py:{name}", range: [0, 1], timeout_s: 0.5}}]
rollout: {{max_turns: 2, max_total_tokens: 300}}
train: {{algorithm: grpo}}
"""


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """What each process of an attack needs is imported before it is forked."""
    importlib.import_module("transformers.models.auto.tokenization_auto")
    importlib.import_module("rlf.training.harness")


def attack(folder: Path, name: str) -> Any:
    (folder / "own.py").write_text(SOURCE)
    (folder / "spec.yaml").write_text(SPEC.format(name=name))
    return CliRunner().invoke(app, ["rewards", "attack", f"{folder}/spec.yaml", "--questions", "2", "--seconds", "0"])


def test_an_answer_that_ends_the_process_of_its_reward_is_a_fault(tmp_path: Path) -> None:
    result = attack(tmp_path, "runs")
    assert result.exit_code == 2 and "ended the process of the attack (exit code 0)" in result.output


def test_a_reward_that_holds_python_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_MAX_STILL_S", 3.0)
    result = attack(tmp_path, "backtracks")
    assert result.exit_code == 2 and "has held Python" in result.output


def test_a_reward_that_never_ends_is_a_fault(tmp_path: Path) -> None:
    result = attack(tmp_path, "never_ends")
    assert result.exit_code == 2 and "term 'own': no value within 0.5 s, on 3 answers" in result.output


def test_a_reward_that_ends_on_most_texts_has_a_verdict_that_counts_the_others(tmp_path: Path) -> None:
    result = attack(tmp_path, "ends_on_most")
    assert result.exit_code == 0, result.output
    assert "could not be scored" in result.output
