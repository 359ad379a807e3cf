"""What one door of data refuses, every door refuses: JSON Lines, JSON, parquet, Hugging Face, JSON as text, Python."""

import datetime
import json
import uuid
from decimal import Decimal
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from rlf.core import SpecError
from rlf.core.plain_json import NoJsonValue, json_value, read_json
from rlf.data import load_tasks
from rlf.data.files import read_values
from rlf.data.tables import read_hub


def parquet(path: Path, table: pa.Table) -> str:
    pa.parquet.write_table(table, path)
    return str(path)


def hub(path: Path, table: pa.Table) -> object:
    """The answer of the one row of a table as `datasets` gives it."""
    path.mkdir()
    datasets.Dataset(table).to_parquet(path / "train.parquet")
    (row,) = read_hub(str(path), None, "train")
    return read_values(row).values["answer"]


def fault_of(path: str, **keys: object) -> str:
    with pytest.raises(SpecError) as caught:
        load_tasks(path, **keys)
    return str(caught.value)


NOT_A_NUMBER = "got NaN, which JSON does not have"
HALF = "is half of a character (a surrogate)"
TWICE = "more than once"


@pytest.mark.parametrize(("text", "words"), [("NaN", NOT_A_NUMBER), ('"\\ud83d"', HALF), ("1e999", "got Infinity")])
def test_text_doors_refuse_what_json_lacks(tmp_path, text, words):
    row = f'{{"prompt": "p", "answer": {text}}}'
    for name, content in (("a.jsonl", row + "\n"), ("a.json", f"[{row}]")):
        (tmp_path / name).write_text(content)
        assert words in fault_of(str(tmp_path / name))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), NOT_A_NUMBER),
        (float("-inf"), "got -Infinity"),
        (b"ab", "got 2 bytes"),
        ([{"a": b"ab"}], "got 2 bytes"),
    ],
)
def test_tables_refuse_what_json_lacks(tmp_path, value, words):
    table = pa.table({"prompt": ["p"], "answer": pa.array([value])})
    assert words in fault_of(parquet(tmp_path / "a.parquet", table))
    assert " answer: " in fault_of(parquet(tmp_path / "a.parquet", table))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"g": NaN}', NOT_A_NUMBER),
        ('{"g": "\\ud83d"}', HALF),
        ('{"g": 1, "g": 2}', TWICE),
        ('{"g": -1e999}', "-Infinity"),
    ],
)
@pytest.mark.parametrize("key", ["answer", "prompt", "kind", "id"])
def test_columns_of_json_as_text_refuse_what_json_lacks(tmp_path, key, text, words):
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "p", "answer": "a", "extra": text}) + "\n")
    (tmp_path / "a.csv").write_text('prompt,answer,extra\np,a,"' + text.replace('"', '""') + '"\n')
    table = pa.table({"prompt": ["p"], "answer": ["a"], "extra": [text]})
    for path in (str(tmp_path / "a.jsonl"), str(tmp_path / "a.csv"), parquet(tmp_path / "a.parquet", table)):
        assert words in fault_of(path, **{key: "extra.g"})


@pytest.mark.parametrize(
    "text", ['[{"role": "user", "content": "\\ud83d"}]', '[{"role": "user", "role": "user", "content": "a"}]']
)
def test_messages_kept_as_text_refuse_what_json_lacks(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": text, "answer": "a"}) + "\n")
    said = fault_of(str(tmp_path / "a.jsonl"))
    assert HALF in said or TWICE in said


def test_a_question_that_only_looks_like_json_is_a_question(tmp_path):
    for text in ("[NaN] is what?", "[1, 2", '["\\ud83d"]'):
        (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": text, "answer": "a"}) + "\n")
        assert load_tasks(str(tmp_path / "a.jsonl"))[0].question == text


def test_inline_examples_refuse_what_json_lacks(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "p", "answer": "a"}\n')
    assert HALF in fault_of(str(tmp_path / "a.jsonl"), examples=[{"prompt": "half \ud83d", "answer": "a"}])


def test_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays(
        [pa.array(["p"]), pa.array(["a"]), pa.array(["b"])], names=["prompt", "answer", "answer"]
    )
    assert "'answer' 2 times" in fault_of(parquet(tmp_path / "a.parquet", twice))
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    table = pa.table({"prompt": ["p"], "answer": ["a"], "extra": inner})
    assert "'x' 2 times" in fault_of(parquet(tmp_path / "b.parquet", table))


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([0.1], pa.float32()), 0.1),
        (pa.array([np.float16(0.1)], pa.float16()), 0.1),
        (pa.array([[0.1, None]], pa.list_(pa.float32())), [0.1, None]),
        (pa.array([{"x": [0.7]}], pa.struct([("x", pa.list_(pa.float32()))])), {"x": [0.7]}),
        (pa.array([[("a", 0.1), ("b", None)]], pa.map_(pa.string(), pa.float32())), {"a": 0.1, "b": None}),
        (pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())), {"1": "x"}),
        (pa.array([[[("a", 1)]]], pa.list_(pa.map_(pa.string(), pa.int64()))), [{"a": 1}]),
        (pa.array([Decimal("1.50")]), "1.50"),
        (pa.array([datetime.date(2024, 1, 2)]), "2024-01-02"),
        (pa.array([datetime.datetime(2024, 1, 2, 3)]), "2024-01-02T03:00:00"),
        (pa.array(["a"]).dictionary_encode(), "a"),
    ],
)
def test_values_of_tables_are_those_that_json_lines_would_hold(tmp_path, array, value):
    table = pa.table({"prompt": ["p"], "answer": array})
    assert load_tasks(parquet(tmp_path / "a.parquet", table))[0].answer == value
    if not any(check(array.type) for check in (pa.types.is_map, pa.types.is_list, pa.types.is_float16)):
        assert hub(tmp_path / "set", table) == value


def test_a_key_twice_in_a_map_is_refused(tmp_path):
    table = pa.table({"prompt": ["p"], "answer": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))})
    assert TWICE in fault_of(parquet(tmp_path / "a.parquet", table))


def test_text_that_is_not_utf_8_in_a_table_is_a_fault(tmp_path):
    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"]).buffers())
    table = pa.table({"prompt": ["p"], "answer": raw})
    assert "cannot be read" in fault_of(parquet(tmp_path / "a.parquet", table))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.float32(0.1), 0.1),
        (np.array([0.1, 0.7], np.float32), [0.1, 0.7]),
        (np.int8(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ((1, [2]), [1, [2]]),
        ({1: "a"}, {"1": "a"}),
        ("\ud83d\ude00", "😀"),
        (datetime.time(1, 2), "01:02:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_values_of_python_are_those_of_json(value, read):
    found = json_value(value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), np.float32("inf"), np.float64("nan"), Decimal("NaN"), np.array([1.0, float("nan")])),
        *(b"", bytearray(b"a"), np.bytes_(b"a"), {1, 2}, object(), 1j, {(1, 2): 3}, {"1": 1, 1: 2}, {"\udce9": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_python_that_json_lacks_are_refused(value):
    with pytest.raises(NoJsonValue):
        json_value({"x": [value]})


def test_nesting_without_end_is_refused():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(NoJsonValue):
        json_value(ring)
    with pytest.raises(NoJsonValue):
        read_json("[" * 100_000)


@pytest.mark.parametrize("value", [b"ab", [{"bytes": b"ab", "path": None}], {"a": [b"ab"]}])
def test_a_column_of_bytes_that_no_key_reads_is_not_there(tmp_path, value):
    table = pa.table({"prompt": ["p", "q"], "answer": ["1", "2"], "photo": pa.array([None, value])})
    path = parquet(tmp_path / "a.parquet", table)
    tasks = load_tasks(path)
    assert [dict(task.columns) for task in tasks] == [
        {"prompt": "p", "answer": "1", "photo": None},
        {"prompt": "q", "answer": "2"},
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"prompt": "photo"},
        {"answer": "photo"},
        {"answer": "photo.path"},
        {"kind": "photo"},
        {"id": "photo"},
        {"tools": "photo"},
        {"template": "{{ photo }} {{ prompt }}"},
        {"system": "See {{ photo }}"},
    ],
)
def test_a_column_of_bytes_that_a_key_reads_is_refused_by_name(tmp_path, keys):
    photo = pa.array([{"bytes": b"ab", "path": "a.png"}])
    path = parquet(tmp_path / "a.parquet", pa.table({"prompt": ["p"], "answer": ["1"], "photo": photo}))
    words = fault_of(path, **keys)
    assert "photo" in words
    assert "got 2 bytes, which JSON does not have" in words


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("number", [65504.0, 2048.0, -0.0, 0.1, 1e-5])
def test_a_float_of_fewer_bits_keeps_every_whole_number_and_the_shortest_other(tmp_path, kind, number):
    path = parquet(tmp_path / "a.parquet", pa.table({"prompt": ["p"], "answer": np.array([number], dtype=kind)}))
    assert repr(load_tasks(path)[0].answer) == repr(number)
    assert repr(json_value(kind(number))) == repr(number)


@pytest.mark.parametrize("make", ["list_", "large_list", "list_view", "large_list_view"])
def test_floats_in_every_kind_of_list_are_the_shortest(tmp_path, make):
    table = pa.table({"prompt": ["p"], "answer": pa.array([[0.1]], getattr(pa, make)(pa.float32()))})
    assert load_tasks(parquet(tmp_path / "a.parquet", table))[0].answer == [0.1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.array([np.nan], dtype=np.float32)),
        pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([{"b": [np.inf]}], pa.struct([("b", pa.list_(pa.float16()))])),
    ],
)
def test_a_fault_of_a_converted_value_names_its_column(tmp_path, column):
    table = pa.table({"prompt": ["p"], "answer": ["1"], "level": column})
    assert " level: " in fault_of(parquet(tmp_path / "a.parquet", table))


def test_a_field_of_csv_may_be_as_long_as_a_text_of_json(tmp_path):
    text = "word " * 50_000
    (tmp_path / "a.csv").write_text(f'prompt,answer\n"{text}",1\n')
    assert load_tasks(str(tmp_path / "a.csv"))[0].question == text


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        (datasets.Audio(), {"bytes": b"RIFF", "path": None}),
        (datasets.Video(), {"bytes": b"mp4", "path": None}),
        (datasets.List(datasets.Image()), [{"bytes": b"png", "path": None}]),
        ({"photo": datasets.Image(), "words": datasets.Value("string")}, {"photo": {"bytes": b"png"}, "words": "a"}),
        (datasets.List({"photo": datasets.Image()}), [{"photo": {"bytes": b"png", "path": None}}]),
    ],
    ids=["audio", "video", "images", "nested", "list"],
)
def test_media_of_hugging_face_that_no_key_reads_are_neither_decoded_nor_in_the_way(tmp_path, feature, value):
    features = datasets.Features({"prompt": datasets.Value("string"), "media": feature})
    table = pa.Table.from_pylist([{"prompt": "p", "media": value}], schema=features.arrow_schema)
    (tmp_path / "set").mkdir()
    parquet(tmp_path / "set/train.parquet", table)
    (row,) = read_hub(str(tmp_path / "set"), None, "train")
    assert read_values(row).values == {"prompt": "p"}
