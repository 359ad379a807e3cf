"""Granite 3: a mark and a JSON list of calls."""

import pytest

from rlf.chat.repair import stand_in
from rlf.types import ToolCall

OPEN = "<|tool_call|>"
CALL = '{"name": "search", "arguments": {"query": "Vell"}}'
MALFORMED = {
    "not closed": (f"{OPEN}[{CALL}", ["bad_json"]),
    "no list": (f"{OPEN}{CALL}", ["bad_call"]),
    "nothing": (OPEN, ["bad_call"]),
    "an empty list": (f"{OPEN}[]", ["bad_call"]),
    "no call in it": (f"{OPEN}[{CALL}, 3]", ["search", "bad_call"]),
    "no name": (f'{OPEN}[{CALL}, {{"arguments": {{}}}}]', ["search", "missing_name"]),
    "thought": (f"<think>{OPEN}[{CALL}]</think>", ["in_thinking"]),
    "thought, then not closed": (f"<think>{OPEN}[{CALL}]</think>{OPEN}[{CALL}", ["in_thinking", "bad_json"]),
}


@pytest.fixture(scope="module")
def granite():
    return stand_in("granite")


@pytest.mark.parametrize("text", [f"{OPEN}[{CALL}, {CALL}]", f"I look. {OPEN} [{CALL},\n{CALL}]\n"])
def test_the_calls_of_a_list_are_read(granite, text):
    assert (
        granite.parse(f"{text}<|end_of_text|>", truncated=False).items == (ToolCall("search", {"query": "Vell"}),) * 2
    )


def test_a_turns_calls_are_written_in_one_list(granite):
    calls = [ToolCall("search", {"query": f"a]{OPEN}"}), ToolCall("now", {})]
    text = granite.write_calls(calls)
    assert text.startswith(f"{OPEN}[") and granite.parse(text, truncated=False).items == tuple(calls)


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_call_is_a_typed_failure(granite, kinds, case):
    text, expected = MALFORMED[case]
    parsed = granite.parse(text, truncated=False)
    assert (kinds(parsed), parsed.answer) == (expected, None)


def test_hostile_turns_are_read_in_linear_time(granite, assert_linear):
    assert_linear(granite, [OPEN, f"{OPEN}[", CALL, "[", "{", '"', "]", "<think>", "</think>"], num_characters=10_000)
