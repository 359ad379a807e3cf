"""Messages of prompts: nothing of one is left out in silence, and a content in parts of text is read."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from rlf.core import SpecError
from rlf.data import load_tasks
from rlf.data.tasks import read_message
from rlf.types import Message

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
USER = {"role": "user", "content": "And now?"}


def rows(tmp_path, *messages):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": list(messages), "answer": "x"}) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("key", "value", "role"),
    [
        ("tool_calls", [CALL], "assistant"),
        ("function_call", {"name": "search", "arguments": "{}"}, "assistant"),
        ("tool_call_id", "c1", "user"),
        ("name", "Ann", "user"),
        ("reasoning_content", "Hm.", "assistant"),
        ("thinking", "Hm.", "assistant"),
        ("images", ["a.png"], "user"),
        ("prefix", True, "assistant"),
        ("weight", 0, "assistant"),
    ],
)
def test_a_key_that_a_prompt_cannot_show_is_refused_by_name(tmp_path, key, value, role):
    message = {"role": role, "content": "Let me look.", key: value}
    as_text = tmp_path / "b.jsonl"
    as_text.write_text(json.dumps({"prompt": json.dumps([message, USER]), "answer": "x"}) + "\n")
    for path in (rows(tmp_path, message, USER), str(as_text)):
        with pytest.raises(SpecError) as caught:
            load_tasks(path)
        assert f"a message of {role} has {key!r}" in str(caught.value)


@pytest.mark.parametrize("value", [None, "", [], {}, {"name": None, "arguments": ""}])
def test_a_key_that_says_nothing_is_as_if_it_were_not_there(tmp_path, value):
    empty = dict.fromkeys(["name", "tool_calls", "tool_call_id"], value)
    assert load_tasks(rows(tmp_path, USER | empty))[0].messages == (Message("user", "And now?"),)


def test_messages_of_a_table_share_their_keys(tmp_path):
    path = tmp_path / "a.parquet"
    messages = [{"role": "system", "content": "Be brief.", "name": None}, USER]
    pa.parquet.write_table(pa.Table.from_pylist([{"prompt": messages, "answer": "x"}]), path)
    assert len(load_tasks(str(path))[0].messages) == 2


def test_a_content_in_parts_of_text_is_read(tmp_path):
    parts = [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]
    assert load_tasks(rows(tmp_path, {"role": "user", "content": parts}))[0].question == "And now?"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": "a.png"}}, "expected parts of text"),
        ("text", "expected parts of text"),
        ({"type": "text"}, "expected parts of text"),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "a part of text has 'cache_control'"),
    ],
)
def test_other_parts_are_refused(part, words):
    with pytest.raises(ValueError, match=words):
        read_message({"role": "user", "content": [part]})
