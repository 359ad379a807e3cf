"""Every example of the guides to tools is a file or a command that works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rlf.runs.declared import load_tools

GUIDES = sorted((Path(__file__).parents[2] / "docs/guides").glob("tools*.md"))
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for guide in GUIDES for found in BLOCK.finditer(guide.read_text("utf-8"))]
PYTHON_TOOLS = ["tool_specs/convert.yaml", "tool_specs/notebook.yaml"]
COMMANDS = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block["name"]:
            path = tmp_path / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")


@pytest.fixture
def rlf() -> Callable[..., Result]:
    from rlf.cli.main import app

    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("name", [block["name"] for block in BLOCKS if (block["name"] or "").startswith("tool_specs/")])
def test_a_tool_of_the_guide_is_declared_as_rlf_reads_it(name: str) -> None:
    if name.endswith(".yaml"):
        assert load_tools([Path(name)])


def test_the_python_tools_of_the_guide_pass_their_examples_and_the_drill(rlf: Callable[..., Result]) -> None:
    result = rlf("tools", "test", *PYTHON_TOOLS)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", [line for line in COMMANDS if "convert" in line])
def test_a_command_of_the_guide_works(command: str, rlf: Callable[..., Result]) -> None:
    program, *words = shlex.split(command)
    result = rlf(*words, *([] if "--call" in words else [PYTHON_TOOLS[0]]))
    assert (program, result.exit_code) == ("rlf", 0), result.output


def test_a_class_tells_its_own_description_and_arguments() -> None:
    (tool,) = load_tools([Path("tool_specs/notebook.yaml")])
    assert tool.description == "Keep a note."
    assert tool.input_schema["properties"]["note"] == {"type": "string", "description": "What to remember."}
