"""Datasets as tasks, and what is said of those that are none."""

import datetime
import json
from decimal import Decimal

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.core import SpecError
from rlf.data import dataset_hash, load_tasks
from rlf.types import Message

ROWS = [{"prompt": "one?", "answer": "1", "level": 1}, {"prompt": "two?", "answer": "2", "level": 2}]


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return save


def parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def load_faulty(path, **columns):
    with pytest.raises(SpecError) as caught:
        load_tasks(path, **columns)
    return str(caught.value)


def test_every_format_gives_the_same_tasks(write, tmp_path):
    rows = [{key: str(value) for key, value in row.items()} for row in ROWS]
    expected = load_tasks(write("a.jsonl", jsonl(*rows)), kind="level")
    assert [(task.messages[0].content, task.answer, task.kind) for task in expected] == [
        ("one?", "1", "1"),
        ("two?", "2", "2"),
    ]
    assert load_tasks(write("a.json", json.dumps(rows)), kind="level") == expected
    assert load_tasks(write("a.csv", "prompt,answer,level\none?,1,1\ntwo?,2,2\n"), kind="level") == expected
    assert load_tasks(parquet(tmp_path / "a.parquet", rows), kind="level") == expected


def test_a_hugging_face_dataset_is_read_by_its_split(monkeypatch):
    asked = []

    def load_dataset(name, config, split):
        asked.append((name, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    tasks = load_tasks("org/set", config="hard", split="test", limit=1)
    assert (asked, [task.answer for task in tasks]) == ([("org/set", "hard", "test")], ["1"])


def test_a_hugging_face_dataset_that_cannot_be_had_is_reported(monkeypatch):
    def load_dataset(name, config, split):
        raise ConnectionError("no way there")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: None)
    assert load_faulty("org/set") == (
        "org/set: ConnectionError: no way there. Expected a Hugging Face dataset with a split 'train'. "
        "For a file, write its path."
    )


@pytest.mark.parametrize(("split", "size"), [("train", 4608), ("validation", 512), ("heldout", 512)])
def test_the_builtin_questions_are_there(split, size):
    tasks = load_tasks(f"builtin:encyclopedia/{split}", prompt="question", kind="kind")
    assert {task.cluster for task in tasks} == {None}
    named = load_tasks(f"builtin:encyclopedia/{split}", prompt="question", cluster="kind")
    assert [task.cluster for task in named] == [task.kind for task in tasks]
    assert len(tasks) == size and tasks[0].id == f"{split}-0000" and all(task.kind for task in tasks)


def test_a_prompt_may_be_a_list_of_messages(write):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one?"}]
    tasks = load_tasks(write("a.jsonl", jsonl({"prompt": messages, "answer": 1})))
    assert tasks[0].messages == (Message("system", "Be brief."), Message("user", "one?"))


def test_the_system_message_comes_first(write):
    tasks = load_tasks(write("a.jsonl", jsonl(*ROWS)), system="Be brief.")
    assert tasks[0].messages == (Message("system", "Be brief."), Message("user", "one?"))


def test_all_columns_are_kept(write):
    assert [dict(task.columns) for task in load_tasks(write("a.jsonl", jsonl(*ROWS)))] == ROWS


def test_answers_may_be_left_out_when_no_column_is_named(write):
    assert load_tasks(write("a.jsonl", jsonl({"prompt": "one?"})), answer=None)[0].answer is None


def test_answers_may_be_lists_zero_or_false(write):
    rows = [{"prompt": "p", "answer": value} for value in (["a", "b"], 0, False)]
    assert [task.answer for task in load_tasks(write("a.jsonl", jsonl(*rows)))] == [["a", "b"], 0, False]


def test_the_limit_takes_the_first_rows_and_reads_no_further(write):
    assert len(load_tasks(write("a.jsonl", jsonl(*ROWS) + "not json"), limit=2)) == 2


def test_the_column_id_names_the_task(write):
    assert load_tasks(write("a.jsonl", jsonl({"id": 7, **ROWS[0]})))[0].id == "7"


def test_without_it_the_row_number_and_content_do(write):
    first, second = load_tasks(write("a.jsonl", jsonl(ROWS[0], ROWS[0])))
    assert first.id.startswith("000000-") and second.id.startswith("000001-")
    assert first.id[-8:] == second.id[-8:]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)).filter(lambda row: row[0].strip()), min_size=1))
def test_reading_what_was_written_gives_it_back_in_order(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    path.write_text(jsonl(*({"prompt": prompt, "answer": answer} for prompt, answer in rows)), encoding="utf-8")
    tasks = load_tasks(str(path))
    assert [(task.messages[0].content, task.answer) for task in tasks] == rows
    assert len({task.id for task in tasks}) == len(rows)


def test_the_hash_depends_on_content_and_order_not_on_the_file(write):
    tasks = load_tasks(write("a.jsonl", jsonl(*ROWS)))
    assert dataset_hash(tasks) == dataset_hash(load_tasks(write("b.json", json.dumps(ROWS))))
    assert dataset_hash(tasks) != dataset_hash(tasks[::-1])
    assert dataset_hash(tasks) != dataset_hash(load_tasks(write("c.jsonl", jsonl(*ROWS)), system="x"))


def test_columns_that_json_has_as_text_alone_are_hashed_too(tmp_path):
    rows = [{"prompt": "p", "answer": datetime.date(2024, 1, 2), "price": Decimal("1.50")}]
    path = parquet(tmp_path / "a.parquet", rows)
    assert dataset_hash(load_tasks(path)) == dataset_hash(load_tasks(path))
    assert load_tasks(path)[0].columns == {"prompt": "p", "answer": "2024-01-02", "price": "1.50"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "there are no rows; expected at least one. Check the file and its split."),
        ("a.jsonl", '{"prompt": 1\n', ":1:13: not JSON: expecting ',' delimiter. Correct this line."),
        (
            "a.jsonl",
            jsonl(ROWS[0]) + "\n[1]\n",
            ":3:1: the line is a list; expected an object. Write the columns as {...}.",
        ),
        (
            "a.jsonl",
            '{"prompt": "\\ud800"}\n',
            ":1:1 prompt: '\\ud800' is half of a character (a surrogate). Write both halves, or remove it.",
        ),
        ("a.jsonl", '{"prompt": NaN}\n', ":1:1: not JSON: got NaN, which JSON does not have. Correct the value."),
        ("a.jsonl", b"\xff\n", ":1:1: this is not UTF-8; byte 0 is 0xff: Latin-1 or Windows-1252, it seems."),
        ("a.json", '{"rows": []}', ": the file holds an object; expected a list of objects. Write [{...}, ...]."),
        (
            "a.json",
            '[\n{"prompt": "p"}\n{}]',
            ":3:1: not JSON: expecting ',' delimiter. Correct this line.",
        ),
        ("a.json", '["p"]', ": row 0 is text; expected an object. Write the columns as {...}."),
        ("a.csv", "prompt,answer\na,b,c\n", ":2:1: the record has more fields than the header's 2 columns. "),
        ("a.csv", 'prompt,answer\n"a,b\n', "not CSV: unexpected end of data. Check the quotes around here."),
        ("a.parquet", "x", "not parquet: "),
        (
            "a.txt",
            "x",
            "this is not a data file; expected one that ends in .jsonl, .json, .csv, .parquet. Convert it.",
        ),
    ],
)
def test_a_file_that_is_no_dataset_is_reported_with_its_place(write, name, content, message):
    said = load_faulty(write(name, content))
    assert said.startswith(name) and message in said


def test_a_missing_file_is_reported_with_the_nearest(write):
    path = write("train.jsonl", jsonl(*ROWS))
    assert load_faulty(path.replace("train", "trian")) == (
        "trian.jsonl: no such file; did you mean 'train.jsonl'? Check the path."
    )


def test_missing_columns_are_reported_all_at_once_with_the_nearest(write):
    said = load_faulty(write("a.jsonl", jsonl(*ROWS)), prompt="promt", answer="gold", kind="type")
    assert said == (
        "a.jsonl answer: no column 'gold' (columns: prompt, answer, level). "
        "Name the column with the answer, e.g. `answer: answer`, or write `answer: null` when no reward term needs "
        "it.\n"
        "a.jsonl kind: no column 'type' (columns: prompt, answer, level). Name the column with the kind.\n"
        "a.jsonl prompt: no column 'promt'; did you mean 'prompt'? (columns: prompt, answer, level). "
        "Name the column with the prompt."
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"prompt": "p", "answer": ""},
            "answer: the row has no answer; every row needs one. Fill it in or drop the row.",
        ),
        ({"prompt": "p"}, "answer: the row has no answer; every row needs one. Fill it in or drop the row."),
        ({"prompt": 3, "answer": "a"}, "prompt: got 3; expected text or a list of messages. Write a question."),
        ({"prompt": " ", "answer": "a"}, "prompt: got the content ' '; expected text. Write what the user says."),
        ({"prompt": [], "answer": "a"}, "prompt: got []; expected text or a list of messages. Write a question."),
        (
            {"prompt": [{"role": "human", "content": "p"}], "answer": "a"},
            "prompt: got the role 'human'; expected system, user, assistant. Write {role, content} messages.",
        ),
        (
            {"prompt": [{"role": "assistant", "content": "p"}], "answer": "a"},
            "prompt: the last message is of role assistant; expected user. End with the user's question.",
        ),
    ],
)
def test_a_row_that_cannot_be_asked_is_reported_with_its_line(write, row, message):
    assert load_faulty(write("a.jsonl", jsonl(ROWS[0], row))) == f"a.jsonl:2:1 {message}"


def test_two_system_messages_are_refused(write):
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "p"}]
    said = load_faulty(write("a.jsonl", jsonl({"prompt": messages, "answer": "a"})), system="y")
    assert said == "a.jsonl:1:1 prompt: both the row and the spec have a system message. Keep one of them."


def test_an_id_used_twice_is_refused(write):
    said = load_faulty(write("a.jsonl", jsonl({"id": 1, **ROWS[0]}, {"id": 1, **ROWS[1]})))
    assert said == "a.jsonl:2:1 id: the id '1' is also that of a.jsonl:1:1; ids must be unique. Change one."


def test_many_faulty_rows_are_counted_not_listed(write):
    said = load_faulty(write("a.jsonl", jsonl(ROWS[0], *[{"prompt": "p"}] * 500))).split("\n")
    assert len(said) == 11
    assert said[-1].endswith("490 more faults in 501 rows are not shown. Fix these first.")


def test_a_file_that_cannot_be_opened_is_reported(write, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    path = write("a.jsonl", jsonl(*ROWS))
    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert load_faulty(path) == "a.jsonl: cannot be read: Permission denied. Check its permissions."


def test_a_folder_is_no_dataset(write, tmp_path):
    (tmp_path / "rows.jsonl").mkdir()
    write("a", "")
    assert load_faulty(str(tmp_path / "rows.jsonl")) == (
        "rows.jsonl: this is a folder; expected a data file. Name a file in it."
    )
