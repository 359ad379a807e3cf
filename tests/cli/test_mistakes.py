"""Mistakes of real users and the words of the message: `mistakes.yaml` is the table of specs and command lines."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import invoke

PROJECT = {
    "specs/run.yaml": """\
name: mine
model: {path: builtin:tiny}
data:
  train: {path: ../data/train.jsonl, prompt: question, answer: answer}
tools:
  - ../tool_specs/look.yaml
rewards:
  - {kind: rule, name: right, rule: exact_match, weight: 1}
rollout: {num_generations: 4, max_total_tokens: 200}
train:
  algorithm: grpo
  steps: 2
  prompts_per_step: 3
engine: local
""",
    "tool_specs/look.yaml": """\
name: look
description: Looks something up.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "../code/look.py:look"}
limits: {max_output_chars: 200}
""",
    "code/look.py": "def look(query: str) -> str:\n    return query\n",
    "data/train.jsonl": "".join(
        f'{{"question": "What is {n}?", "answer": "Town {n}", "article": "a{n}"}}\n' for n in range(24)
    ),
}
TABLE = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


def write_project(folder: Path, case: dict[str, Any]) -> None:
    files: dict[str, str | None] = PROJECT | case.get("files", {})
    if "replace" in case:
        assert PROJECT["specs/run.yaml"].count(case["replace"]) == 1, "the case changes nothing"
        files["specs/run.yaml"] = PROJECT["specs/run.yaml"].replace(case["replace"], case["by"])
    data = {name: text.encode() for name, text in files.items() if text is not None}
    # YAML has no bytes beyond base64: they are written as Python's escapes
    data |= {
        name: text.encode().decode("unicode_escape").encode("latin-1") for name, text in case.get("bytes", {}).items()
    }
    for name, content in data.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def said(line: str) -> tuple[int, str]:
    """The exit code and every line that a command printed."""
    result = invoke(*shlex.split(line)[1:])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize("case", TABLE["specs"], ids=[case["name"] for case in TABLE["specs"]])
def test_a_mistake_in_a_spec_is_answered_with_where_and_what_to_write(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, case)
    line = case.get("line") or shlex.join(["rlf", "check", "specs/run.yaml", *case.get("set", [])])
    exit_code, output = said(line)
    words = [*case.get("says", []), *case.get("warns", [])]
    assert [word for word in words if str(word) not in output] == [], output
    assert [word for word in case.get("never", []) if word in output] == [], output
    assert exit_code == (0 if "warns" in case else 2), output
    assert not case.get("once") or len(output.strip().split("\n")) == 1, output


@pytest.mark.parametrize("case", TABLE["commands"], ids=[case["line"] for case in TABLE["commands"]])
def test_a_mistake_on_a_command_line_is_answered_with_what_to_write(case, tmp_path, monkeypatch, recorded_runs):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, case)
    if {"latest", "runs", "resume"} & set(case["line"].split()):
        shutil.copytree(recorded_runs, tmp_path / "runs")
    exit_code, output = said(case["line"])
    text = " ".join(output.replace("│", " ").split())  # typer draws a box around its own words
    assert [word for word in case["says"] if " ".join(str(word).split()) not in text] == [], output
    assert exit_code == case.get("exit", 2), output
