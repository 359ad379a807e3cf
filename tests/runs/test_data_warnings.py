"""Data that would mislead: overlap by normalised text, two golds for a question, columns and keys given twice."""

from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.data import load_tasks
from rlf.runs.planning import power_notices
from rlf.runs.plans import check_spec

SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def warned(tmp_path, train, evaluation):
    for name, rows in (("train", train), ("eval", evaluation)):
        lines = "\n".join(f'"{question}","{answer}"' for question, answer in rows)
        (tmp_path / f"{name}.csv").write_text(f"question,answer\n{lines}\n")
    data = [f"data.{name}={{path: {tmp_path}/{name}.csv, prompt: question}}" for name in ("train", "eval")]
    found = check_spec([SPEC], ["~data.train", "~data.eval", *(f"+{each}" for each in data)]).warnings
    return [str(warning.message) for warning in found if warning.path.startswith("data.")]


def test_an_overlap_is_found_by_normalised_text_with_its_count_and_rows(tmp_path):
    train = [("Where was  Ann born?", "Ur"), ("What is 2 + 3?", "5")]
    (message,) = warned(tmp_path, train, [("where was ann born", "Ur"), ("What is 2 - 3?", "-1"), ("Who?", "Bo")])
    assert "1 of 3 questions are in data.train too (row '000000-" in message
    assert warned(tmp_path, train, [("Where was Bo born?", "Ur")]) == []


def test_repeated_questions_with_different_golds_are_counted(tmp_path):
    train = [("Who won?", "Ann"), ("who won", "Bo"), ("Who won?", "ann"), ("Who  won?", "Cy"), ("Who lost?", "Bo")]
    (message,) = warned(tmp_path, train, [("Why?", "so")])
    assert "2 questions appear twice with different answers (e.g. rows '000000-" in message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "prompt,b,answer,answer,b,b\nq,1,a,b,2,3\n",
            "a.csv:1:1: the header has 'b' 3 times, 'answer' 2 times",
        ),
        (
            "a.jsonl",
            '{"prompt": "q"}\n{"prompt": "q", "a": "a", "a": "b"}\nno json\n{"a": 1, "a": 2, "b": {"c": 1, "c": 1}}\n',
            "a.jsonl:2:1: some keys are written more than once: 'a' in 2 objects, 'c' in 1 object, the first one here",
        ),
        (
            "a.json",
            '[{"prompt": "q", "answer": {"x": 1, "x": 2}}, {"x": 0, "x": 0, "x": 0, "y": 1, "y": 2}]',
            "'x' in 2 objects, 'y' in 1 object",
        ),
    ],
)
def test_columns_and_keys_given_twice_are_a_fault_that_counts_them_all(tmp_path, monkeypatch, name, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=said):
        load_tasks(name)


def test_the_start_of_a_run_reports_what_its_evaluations_can_show():
    checked = check_spec([SPEC], ["eval.limit=64"])
    (notice,) = power_notices(checked)
    assert notice.text.startswith("evaluations: 64 questions show a difference of 12.1 points with 80 % power")
    assert power_notices(check_spec([SPEC], ["~data.eval", "~eval"])) == []
