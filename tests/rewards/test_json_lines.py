"""JSONL files of trajectories that a user wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlf.apps.rewards.scoring import read_saved
from rlf.core import RlfError, SpecError


def test_a_line_separator_within_a_text_ends_no_line(tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text(json.dumps({"question": "Where?", "answer": "a\u2028b\x85c"}, ensure_ascii=False) + "\n\n")
    assert [scored.trajectory.answer for scored in read_saved(file)] == ["a\u2028b\x85c"]


def test_every_wrong_line_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text('{"answer": 1}\n{"answer": "x"}\n{\n{"scored": null}\n')
    with pytest.raises(SpecError) as caught:
        read_saved(file)
    lines = str(caught.value).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        f"{file}:{number}:1" + ":" * (number > 1) for number in (1, 3, 4)
    ]
    assert " answer: input should be a valid string. Correct the line." in lines[0]
    words = "it is not JSON: Expecting property name enclosed in double quotes at column 2. Correct the line."
    assert lines[1] == f"{file}:3:1: {words}"


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(
        RlfError, match=r"cannot be read: No such file or directory\. Name a JSONL file of trajectories"
    ):
        read_saved(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"answer": "x", "gold": NaN}', "got NaN"),
        ('{"answer": "x", "gold": ["\\ud83d"]}', "half of a character"),
        ('{"answer": "x", "columns": {"a": 1e999}}', "got Infinity"),
    ],
)
def test_a_gold_or_a_column_that_json_lacks_is_a_fault(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "saved.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(SpecError, match=words):
        read_saved(file)
