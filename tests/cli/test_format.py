"""`rlf format`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Rlf = Callable[..., Result]
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def test_show_prints_the_prompt_with_its_ids(rlf: Rlf) -> None:
    result = rlf("format", "show", SPEC)
    assert result.exit_code == 0, result.output
    assert "<|im_start|>assistant" in result.stdout
    assert "hermes: its chat template asks for calls" in result.stdout


def test_show_json_has_each_token_with_its_text(rlf: Rlf) -> None:
    data = json.loads(rlf("format", "show", SPEC, "--json").stdout)["data"]
    assert "".join(token["text"] for token in data["tokens"]) == data["text"]
    assert data["tokens"][0]["is_special"] and data["tools"] == ["search", "calculator"]
    assert [message["role"] for message in data["messages"]] == ["user"]


def test_parse_tells_calls_and_failures(rlf: Rlf, tmp_path: Path) -> None:
    file = tmp_path / "turn.txt"
    file.write_text('<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{</tool_call>')
    data = json.loads(rlf("format", "parse", "--format", "hermes", file, "--json").stdout)["data"]
    assert data["calls"] == [{"name": "a", "arguments": {}}]
    assert [failure["kind"] for failure in data["failures"]] == ["bad_json"] and data["answer"] is None
    assert "bad_json" in rlf("format", "parse", "--format", "hermes", file).stdout


@pytest.mark.parametrize("arguments", [(), ("--format", "hermse"), ("--format", "hermes", "absent.txt")])
def test_parse_refuses_what_it_cannot_read(rlf: Rlf, arguments: tuple[str, ...]) -> None:
    result = rlf("format", "parse", *arguments)
    assert result.exit_code == 2 and result.stderr


def test_certify_lists_what_holds(rlf: Rlf) -> None:
    result = rlf("format", "certify", SPEC)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("ok ") == 7
    assert json.loads(rlf("format", "certify", SPEC, "--json").stdout)["data"]["differences"] == []
