"""`rlf tools`: listing and dry runs through the real executor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Rlf = Callable[..., Result]
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"

CODE = '''
def add(a: int, b: int) -> int:
    """Adds."""
    if a < 0:
        raise ValueError("a is negative")
    return a + b
'''
TOOL = """
name: add
description: "Adds [bold]two[/bold] numbers."
inputSchema: {type: object, properties: {a: {type: integer}, b: {type: integer}}, required: [a, b]}
target: {kind: python, callable: "adding.py:add"}
tests:
  - {arguments: {a: 1, b: 2}, expect: {equals: "3"}}
  - {arguments: {a: -1, b: 2}, expect: {error: negative}}
"""
FAILING = '  - {arguments: {a: 2, b: 2}, expect: {equals: "5"}}\n'


@pytest.fixture
def tool(rlf: Rlf, tmp_path: Path) -> Path:
    (tmp_path / "tool_specs").mkdir()
    (tmp_path / "tool_specs" / "adding.py").write_text(CODE)
    file = tmp_path / "tool_specs" / "add.yaml"
    file.write_text(TOOL)
    return file


def test_list_shows_arguments_and_takes_descriptions_as_they_are(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "list", tool)
    assert result.exit_code == 0, result.output
    flowed = " ".join(result.stdout.split())
    assert "add" in flowed
    assert "python" in flowed
    assert "[bold]" in flowed


def test_without_a_file_the_folder_tool_specs_is_taken(rlf: Rlf, tool: Path) -> None:
    listed = json.loads(rlf("tools", "list", "--json").stdout)
    assert [item["name"] for item in listed["data"]] == ["add"]
    tool.unlink()
    result = rlf("tools", "list")
    assert result.exit_code == 2
    assert "no tool is declared" in result.stderr


def test_a_spec_brings_its_tools(rlf: Rlf) -> None:
    listed = json.loads(rlf("tools", "list", SPEC, "--json").stdout)
    assert [item["name"] for item in listed["data"]] == ["search", "calculator"]


def test_examples_run_and_pass(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool)
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" ok ") == 2
    assert " ms" in result.stdout


def test_a_failing_example_exits_with_3_and_says_what_came(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL + FAILING)
    result = rlf("tools", "test", tool)
    assert result.exit_code == 3
    assert "failed" in result.stdout
    assert "equals '5': got '4'" in " ".join(result.stdout.split())
    assert result.stderr == "1 of 3 examples failed\n"


def test_json_has_a_verdict_per_example(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL + FAILING)
    result = rlf("tools", "test", tool, "--json")
    verdicts = json.loads(result.stdout)["data"]
    assert result.exit_code == 3
    assert [verdict["ok"] for verdict in verdicts] == [True, True, False]
    assert verdicts[0]["result"]["text"] == "3"


def test_a_tool_without_examples_is_told_and_does_not_fail(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.partition("tests:")[0])
    result = rlf("tools", "test", tool)
    assert result.exit_code == 0
    assert "no example" in result.stdout


def test_one_call_prints_what_the_model_would_read(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool, "--call", "add", '{"a": 20, "b": 22}')
    assert result.exit_code == 0
    assert result.stdout == "42\n"


def test_a_call_that_fails_exits_with_3(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool, "--call", "add", '{"a": "x"}')
    assert result.exit_code == 3
    assert "invalid arguments for add" in result.stdout
    assert "add: invalid_arguments" in result.stderr


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_arguments_that_are_no_object_are_refused(rlf: Rlf, tool: Path, text: str) -> None:
    result = rlf("tools", "test", tool, "--call", "add", text)
    assert result.exit_code == 2
    assert "expected a JSON object" in result.stderr


def test_faults_of_a_tool_file_have_their_places(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.replace("kind: python", "kind: pyton") + "limit: {}\n")
    result = rlf("tools", "test", tool)
    assert result.exit_code == 2
    assert "add.yaml:5:16 target.kind: unknown tool kind 'pyton'; did you mean 'python'?" in result.stderr
    assert "add.yaml:9:1 limit: unknown key 'limit'; did you mean 'limits'?" in result.stderr


def test_the_shipped_tools_pass_their_examples(rlf: Rlf) -> None:
    result = rlf("tools", "test", SPEC)
    assert result.exit_code == 0, result.output


def test_files_that_declare_one_name_in_several_ways_are_each_tried(
    rlf: Rlf, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = TOOL.replace('equals: "3"', 'equals: "4"')
    (tool.parent / "add_wrong.yaml").write_text(wrong)
    result = rlf("tools", "test")
    assert result.exit_code == 3
    assert "1 of 4 examples failed" in result.stderr
    monkeypatch.chdir(SPEC.parents[1])
    assert rlf("tools", "test").exit_code == 0


def test_one_call_of_a_name_that_several_files_declare_asks_which(rlf: Rlf, tool: Path) -> None:
    (tool.parent / "other.yaml").write_text(TOOL.replace("Adds", "Also adds"))
    result = rlf("tools", "test", "--call", "add", '{"a": 1, "b": 2}')
    assert result.exit_code == 2
    assert "'add' is declared in several files" in result.stderr
