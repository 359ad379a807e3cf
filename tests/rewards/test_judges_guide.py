"""What the guide to judges shows is right, and speaks of what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.plan import compile as compile_plan
from rlf.plan.warnings import Subject, find_warnings
from rlf.rewards.judging.settings import Compare, Read
from rlf.rewards.judging.words import SHAPES
from rlf.spec import load_spec
from rlf.spec.inputs import look

GUIDE = (Path(__file__).parents[2] / "docs/guides/judges.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for found in BLOCK.finditer(GUIDE)]
SPECS = [block["name"] for block in BLOCKS if (block["name"] or "").endswith(".yaml")]
COMMANDS = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block["name"]:
            path = tmp_path / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")


@pytest.mark.parametrize("name", SPECS)
def test_each_spec_has_neither_faults_nor_warnings(name: str) -> None:
    loaded = load_spec([Path(name)])
    looked = look(loaded)
    assert looked.faults == []
    assert list(find_warnings(Subject(loaded, looked.train, looked.evaluation))) == []
    assert compile_plan(loaded).spec.rewards[0].kind == "judge"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_ends_well(command: str) -> None:
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_every_name_and_choice_is_told() -> None:
    told = {*re.findall(r"`([\w ]+)`", GUIDE), *re.findall(r"`\w+: (\w+)`", GUIDE)}
    assert told >= {name for shape in SHAPES.values() for name in shape}
    assert told >= {*Compare, *Read}
