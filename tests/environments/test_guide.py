"""Every example of the guide to worlds is a file or a command that works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlf
from rlf.cli.main import app
from rlf.environments import EnvSpec
from rlf.spec import load_spec
from rlf.types import Message, Task

from .conftest import STOP, call

GUIDE = Path(__file__).parents[2] / "docs/guides/worlds.md"
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
COMMANDS = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The guide's files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block["name"]:
            path = tmp_path / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")


def test_every_block_is_a_file_or_commands():
    assert all(block["name"] or block["language"] == "console" for block in BLOCKS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_is_right(command):
    program, *verb, file = shlex.split(command)
    assert program == "rlf" and tuple(verb) in {("check",), ("run",), ("env", "prove"), ("env", "attack")}
    if verb[0] == "env":
        assert CliRunner().invoke(app, [*verb, file]).exit_code == 0
    else:
        assert not rlf.check(file).faults


def env_of(file) -> EnvSpec:
    return load_spec([Path(file)]).spec.env


def test_the_till_is_a_world(played):
    script = [call("put", coin=3) + STOP, call("put", coin=5) + call("put", coin=2) + STOP, f"Done.{STOP}"]
    (trajectory,), _ = played(env_of("specs/till.yaml"), script, task=_task(amount=7))
    assert trajectory.calls[0].result.text == "error: ValueError: there is no coin of 3"
    assert trajectory.world.scores["exact"] == 1.0
    assert trajectory.turns[1].world.reward == pytest.approx(-0.02)
    assert trajectory.turns[1].world.changes[-1].difference == "coins[1]: nothing -> 2"


def test_the_game_speaks(played):
    (trajectory,), _ = played(env_of("specs/guess.yaml"), [f"3{STOP}", f"7{STOP}"], task=_task(amount=7))
    assert [turn.world.reply for turn in trajectory.turns] == ["higher", "Right."]
    assert trajectory.world.scores == {"score": 0.5}


def _task(**columns):
    return Task("t", (Message("user", "Go."),), columns=columns)
