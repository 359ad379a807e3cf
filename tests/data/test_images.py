"""Rows with pictures: every form in which datasets hold them, and the place of what is wrong."""

from __future__ import annotations

import base64
import json

import pytest

from rlf.core import SpecError
from rlf.core.images import read_image_file
from rlf.data import dataset_hash, load_tasks

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
URI = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def write(tmp_path, *rows):
    (tmp_path / "a.png").write_bytes(PNG)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"answer": "x", **row}) + "\n" for row in rows))
    return str(path)


def faults_of(path):
    with pytest.raises(SpecError) as caught:
        load_tasks(path, images="images")
    return [str(fault) for fault in caught.value.faults]


def test_pictures_are_dealt_out_to_the_marks_of_the_users_messages(tmp_path):
    said = [
        {"role": "user", "content": "<image> and <image>?"},
        {"role": "assistant", "content": "An <image>."},
        {"role": "user", "content": "And <image>?"},
    ]
    (task,) = load_tasks(write(tmp_path, {"prompt": said, "images": ["a.png", URI, "a.png"]}), images="images")
    here = str(tmp_path / "a.png")
    assert [message.images for message in task.messages] == [(here, URI), (), (here,)]
    assert task.messages[0].texts == ("", " and ", "?")
    assert task.messages[1].texts == ("An <image>.",)
    assert task.images == (here, URI, here)
    assert "images" not in task.columns
    assert {read_image_file(image).data for image in task.images} == {PNG}


@pytest.mark.parametrize("value", [None, []])
def test_a_row_without_pictures_is_text_and_its_marks_too(tmp_path, value):
    (task,) = load_tasks(write(tmp_path, {"prompt": "<image>?", "images": value}), images="images")
    assert (task.images, task.messages[0].texts) == ((), ("<image>?",))


def test_parquet_holds_the_bytes_as_hugging_face_writes_them(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": "<image>?", "answer": "x", "images": [{"bytes": PNG, "path": None}]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (task,) = load_tasks(str(tmp_path / "rows.parquet"), images="images")
    assert task.images == (URI,)
    assert json.dumps(dict(task.columns))


def test_a_hugging_face_dataset_gives_the_files_of_its_image_columns(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "prompt": datasets.Value("string"),
            "answer": datasets.Value("string"),
            "images": datasets.List(datasets.Image()),
            "one": datasets.Image(),
        }
    )
    row = {"prompt": "<image>?", "answer": "x", "images": [{"bytes": PNG, "path": None}], "one": {"bytes": PNG}}
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_list([row], features=features).to_parquet(tmp_path / "set" / "train.parquet")
    from rlf.data.tables import read_hub

    (read,) = read_hub(str(tmp_path / "set"), None, "train")
    assert read.values["images"][0]["bytes"] == PNG == read.values["one"]["bytes"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "What?", "images": "a.png"}, "images of the row: 1, <image> in its user messages: 0"),
        ({"prompt": "<image><image>", "images": ["a.png"]}, "images of the row: 1, <image> in its user messages: 2"),
        ({"prompt": "<image>", "images": "b.png"}, "b.png: the image cannot be read: No such file"),
        ({"prompt": "<image>", "images": "rows.jsonl"}, "rows.jsonl is not a PNG, JPEG, GIF or WebP file"),
        ({"prompt": "<image>", "images": "https://example.com/a.png"}, "could not be repeated"),
        ({"prompt": "<image>", "images": "data:image/png;base64,AAAA"}, "no PNG, JPEG, GIF or WebP file"),
        ({"prompt": "<image>", "images": "data:image/png,AAAA"}, "not in base64"),
        ({"prompt": "<image>", "images": 7}, "got '7'; expected a path"),
    ],
)
def test_what_is_wrong_with_a_rows_pictures_is_reported_at_the_row(tmp_path, row, said):
    path = write(tmp_path, {"prompt": "ok", "images": []}, row)
    (fault,) = faults_of(path)
    assert ":2:1 images: " in fault and said in fault


def test_a_jpeg_whose_previews_are_large_is_a_picture(tmp_path):
    """Its size stands behind two segments of 60,000 bytes."""
    size = b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x03" + b"\0" * 9
    preview = b"\xff\xe2" + (60_002).to_bytes(2, "big") + b"\0" * 60_000
    path = write(tmp_path, {"prompt": "<image>?", "images": "a.jpg"})
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8" + preview * 2 + size)
    (task,) = load_tasks(path, images="images")
    assert task.images == (str(tmp_path / "a.jpg"),)


def test_the_hash_of_a_dataset_is_of_what_its_pictures_show(tmp_path):
    path = write(tmp_path, {"prompt": "<image>?", "images": "a.png"})
    before = dataset_hash(load_tasks(path, images="images"))
    assert dataset_hash(load_tasks(path, images="images")) == before
    (tmp_path / "a.png").write_bytes(PNG + b"\0")
    assert dataset_hash(load_tasks(path, images="images")) != before
