"""Olmo 3: lines of Python calls in a section."""

import pytest

from rlf.chat.repair import stand_in
from rlf.types import ToolCall

OPEN, CLOSE = "<function_calls>", "</function_calls>"
ONE, OTHER = ToolCall("search", {"query": "Vell"}), ToolCall("now", {"exact": True, "zone": None, "at": [1, -2.5]})


@pytest.fixture(scope="module")
def olmo3():
    return stand_in("olmo3")


@pytest.mark.parametrize(
    "text",
    [
        f"{OPEN}\nsearch(query='Vell')\nnow(exact=True, zone=None, at=[1, -2.5])\n{CLOSE}",
        f'{OPEN}search(query="Vell")\nnow(exact=true, zone=null, at=[1, -2.5]){CLOSE}',
        f"I look.\n{OPEN}\nsearch(query='Vell')\n{CLOSE}\n{OPEN}\nnow(exact=true, zone=null,\n at=[1, -2.5])\n{CLOSE}",
    ],
)
def test_the_calls_of_sections_are_read_line_by_line(olmo3, text):
    assert olmo3.parse(f"{text}<|im_end|>", truncated=False).items == (ONE, OTHER)


def test_a_turns_calls_are_written_in_one_section(olmo3):
    text = olmo3.write_calls([ONE, OTHER])
    assert text.count(OPEN) == text.count(CLOSE) == 1
    assert olmo3.parse(text, truncated=False).items == (ONE, OTHER)


@pytest.mark.parametrize("mark", [OPEN, CLOSE, "<think>", "</think>", "\n", '"', "'"])
def test_a_mark_inside_a_string_is_data(olmo3, mark):
    call = ToolCall("search", {"query": f"a{mark}b"})
    assert olmo3.parse(olmo3.write_call(call), truncated=False).items == (call,)


MALFORMED = {
    "no end": (f"{OPEN}\nsearch(query='Vell')", ["unterminated"]),
    "no end before a section": (f"{OPEN}\nsearch(query='Vell')\n{OPEN}\nnow()\n{CLOSE}", ["unterminated", "now"]),
    "nothing": (f"{OPEN}\n{CLOSE}", ["bad_call"]),
    "a statement": (f"{OPEN}\nx = 1\n{CLOSE}", ["bad_call"]),
    "an expression": (f"{OPEN}\nsearch(query='a')\n1 + 1\n{CLOSE}", ["search", "bad_call"]),
    "a quote": (f"{OPEN}\nsearch(query='a)\n{CLOSE}", ["bad_call"]),
    "a position": (f"{OPEN}\nsearch('Vell')\n{CLOSE}", ["bad_arguments"]),
    "code": (f"{OPEN}\nsearch(query=open('x').read())\n{CLOSE}", ["bad_arguments"]),
    "JSON": (f'{OPEN}\n{{"name": "search", "arguments": {{}}}}\n{CLOSE}', ["bad_call"]),
    "invoke": (f'{OPEN}\n<invoke name="search">\n</invoke>\n{CLOSE}', ["bad_call"]),
    "an end alone": (CLOSE, ["stray_tag"]),
    "thought": (f"<think>{OPEN}\nsearch(query='Vell')\n{CLOSE}</think>", ["in_thinking"]),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_call_is_a_typed_failure(olmo3, kinds, case):
    text, expected = MALFORMED[case]
    parsed = olmo3.parse(text, truncated=False)
    assert (kinds(parsed), parsed.answer) == (expected, None)


def test_hostile_turns_are_read_in_linear_time(olmo3, assert_linear):
    assert_linear(
        olmo3, [OPEN, CLOSE, "search(query='", "'", '"', "(", "[", "\\", "<think>", "\n"], num_characters=10_000
    )
