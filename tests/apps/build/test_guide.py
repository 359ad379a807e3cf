"""Every example of the guide to building worlds is a file or a command that works."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.apps.build.kind import load_build
from rlf.cli.main import app

from ...reference import load_reference

REPOSITORY = Path(__file__).parents[3]
GUIDE = REPOSITORY / "docs/guides/env-build.md"
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
COMMANDS = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    for block in BLOCKS:
        if block["name"]:
            path = folder / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
    return folder


def test_the_commands_of_the_guide_work_in_their_order(project, monkeypatch):
    monkeypatch.chdir(project)
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if words[:2] == ["tools", "test"]:  # all of them take a minute
            words = [*words[:2], *map(str, sorted((project / "worlds/towns/tools").glob("*.yaml"))[:3])]
        result = CliRunner().invoke(app, words)
        assert (program, result.exit_code) == ("rlf", 0), f"{command}\n{result.output}"


def test_the_committed_schema_and_reference_of_build_files_are_current():
    for name, text in load_reference().build_files().items():
        assert (REPOSITORY / "docs" / name).read_text(encoding="utf-8") == text, "run `make reference`"


@pytest.mark.parametrize("path", sorted((REPOSITORY / "specs/builds").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_build_file_has_no_faults(path):
    assert load_build(path).build.estimate(load_build(path))["tasks"] > 0
