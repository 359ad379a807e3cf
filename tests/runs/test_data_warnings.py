"""Data that would mislead: overlap by normalised text, two golds for a question, columns and keys given twice."""

import json
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.data import load_tasks
from rlf.plan.datasets import _find_split
from rlf.runs.opening import power_notices
from rlf.runs.plans import check_spec
from rlf.spec.models import DataSource

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
    assert "1 of 3 questions are in data.train too, case, spaces and punctuation aside (row '000000-" in message
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


LONG = "A ferry leaves the port of Ur at nine and returns before noon; how many barrels of salt does it bring to Ann?"


@pytest.mark.parametrize(
    ("asked", "is_near"),
    [
        (LONG.replace("how many", "please say how many"), True),
        (LONG.replace("barrels", "barels"), True),
        (f"Question: {LONG}", True),
        (LONG.replace("Ann", "Bo"), False),
        (LONG.replace("noon", "10 o'clock"), False),
        ("What does a ferry of Ur bring to Ann?", False),
    ],
)
def test_questions_in_almost_the_words_of_a_training_question_are_counted_unless_numbers_or_names_differ(
    tmp_path, asked, is_near
):
    others = [(f"Where was {name} born, and who was there?", "Ur") for name in ("Cy", "Di", "Ed", "Flo")]
    train = [*others, (LONG, "9")]
    found = warned(tmp_path, train, [(asked, "9"), ("Where was Gil born, and who was there?", "Ur")])
    words = "1 of 2 questions stand in data.train in almost the same words"
    assert [words in one for one in found] == [True] * is_near


def faults_of(tmp_path, name, rows, *overrides):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(
        "".join(json.dumps({"question": f"Q{n}?", "answer": "a", **row}) + "\n" for n, row in enumerate(rows))
    )
    data = [f"+data.train={{path: {tmp_path / name}, prompt: question}}", *overrides]
    try:
        check_spec([SPEC], ["~data.train", *data])
    except SpecError as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("rows.jsonl", {"split": "test"}, "1 of 2 rows are of a test split (e.g. row '000001-"),
        ("rows.jsonl", {"split": "Heldout"}, "1 of 2 rows are"),
        ("rows.jsonl", {"extra_info": {"split": "test", "index": 1}}, "1 of 2 rows are"),
        ("gsm8k_test.jsonl", {}, "gsm8k_test.jsonl', a test split"),
        ("test-00000-of-00001.jsonl", {}, "a test split"),
        ("test/rows.jsonl", {}, "a test split"),
        ("rows.jsonl", {"split": "train"}, None),
        ("latest.jsonl", {"split": None}, None),
        ("test_plan.jsonl", {"extra_info": "test"}, None),
    ],
)
def test_training_on_rows_of_a_test_split_is_a_fault_unless_the_spec_allows_it(tmp_path, name, row, words):
    faults = faults_of(tmp_path, name, [{"split": "train"}, row])
    assert [path for path, _ in faults] == ["data.train.path"] * (words is not None)
    assert words is None or (words in faults[0][1] and "data.allow_test_data: true" in faults[0][1])
    assert faults_of(tmp_path, name, [{"split": "train"}, row], "+data.allow_test_data=true") == []


def test_a_test_split_within_a_mixture_is_a_fault(tmp_path):
    (tmp_path / "nq_test.jsonl").write_text('{"question": "Q?", "answer": "a"}\n')
    (tmp_path / "all.mix.yaml").write_text("- {path: nq_test.jsonl}\n")
    with pytest.raises(SpecError, match=r"nq_test\.jsonl', a test split"):
        check_spec([SPEC], ["~data.train", f"+data.train={{path: {tmp_path}/all.mix.yaml, prompt: question}}"])


@pytest.mark.parametrize(("split", "is_test"), [("test", True), ("train+test[:10]", True), ("train", False)])
def test_a_split_of_a_hub_that_is_for_tests_is_a_fault(split, is_test):
    source = DataSource(path="org/name", split=split)
    assert (_find_split(source) is not None) == is_test
    assert _find_split(DataSource(path="org/gsm8k_test", split="train")) is None


def test_an_evaluation_asks_with_a_spec_that_may_not_be_trained_by():
    overrides = ["data.train.path=builtin:encyclopedia/heldout"]
    with pytest.raises(SpecError, match="got 'builtin:encyclopedia/heldout', a test split"):
        check_spec([SPEC], overrides)
    assert check_spec([SPEC], overrides, trains=False).num_train_rows
