"""The commands and the example of the guide to evaluations work as they stand there."""

import re
import shlex
import shutil

import pytest
from typer.testing import CliRunner

from rlf.cli.main import app

from .conftest import ROOT

GUIDE = (ROOT / "docs/guides/evaluate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, _, text in BLOCKS if language == "console" for line in text.splitlines()]


@pytest.fixture(scope="module")
def project(trained, tmp_path_factory):
    """A project with a run that was trained, and the guide's files."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copytree(trained[0], folder / "runs")
    shutil.copytree(ROOT / "specs", folder / "specs")
    shutil.copytree(ROOT / "tool_specs", folder / "tool_specs")
    shutil.copytree(ROOT / "reward_specs", folder / "reward_specs")
    for _, name, text in BLOCKS:
        if name:
            (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_works(command, project, monkeypatch):
    monkeypatch.chdir(project)
    program, *arguments = shlex.split(command)
    result = CliRunner().invoke(app, arguments)
    assert (program, result.exit_code) == ("rlf", 0), result.output
    assert "success" in result.output


def test_the_example_in_python_works(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    (example,) = [text for language, _, text in BLOCKS if language == "python"]
    exec(compile(example, "evaluate.md", "exec"), {})
    assert "sampled" in capsys.readouterr().out
