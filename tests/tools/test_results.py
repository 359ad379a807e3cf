"""From what a tool returns to what a model reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.core.redact import clean
from rlf.core.text import size_bytes
from rlf.tools.outputs import to_output, to_text
from rlf.tools.results import ToolFailure, cut_middle
from rlf.types import Outcome

WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("none", "null"),
        ("bytes", "text"),
        ("nul", "a\ufffdb"),
        ("surrogate", "a\ufffdb"),
        ("pair", "\U0001f600"),
        ("ansi", "\x1b[31mred\x1b[0m"),
        ("json", '{"a": [1, 2.5, "é"]}'),
        ("subclass", "plain"),
    ],
)
def test_what_has_a_text_is_shown(declare: Any, call_once: Any, what: str, text: str) -> None:
    result = call_once(declare("give", WHAT), what=what)
    assert (result.outcome, result.text) == (Outcome.OK, text)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nan", "float that is not JSON"),
        ("circular", "Circular reference"),
        ("object", "object that is not JSON"),
        ("binary", "3 bytes that are not UTF-8"),
        ("digits", "int that is not JSON"),
        ("deep", "RecursionError"),
        ("coroutine", "coroutine that is not JSON"),
    ],
)
def test_what_has_none_is_rejected_in_words(declare: Any, call_once: Any, what: str, words: str) -> None:
    result = call_once(declare("give", WHAT), what=what)
    assert result.outcome is Outcome.OUTPUT_REJECTED
    assert words in result.text


def test_50_megabytes_are_cut_to_head_and_tail(declare: Any, call_once: Any) -> None:
    result = call_once(declare("give", WHAT, limits={"max_output_chars": 200}), what="big")
    assert (result.outcome, result.truncated, result.size_bytes) == (Outcome.OK, True, 50_000_000)
    assert len(result.text) <= 200
    # room = 200 - len("\n[... 50000000 characters left out ...]\n") = 200 - 40 = 160, so 49,999,840 are left out
    assert result.text == "x" * 107 + "\n[... 49999840 characters left out ...]\n" + "x" * 53


def test_a_text_within_the_budget_is_not_cut() -> None:
    assert cut_middle("x" * 100, 100) == "x" * 100


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=101, max_size=400), st.integers(100, 300))
def test_a_cut_text_fits_and_says_what_is_missing(text: str, max_chars: int) -> None:
    short = cut_middle(text, max_chars)
    assert len(short) <= max_chars
    assert (short != text) == (len(text) > max_chars)
    if short != text:
        head, middle = short.split("\n[... ", 1) if short.count("\n[... ") == 1 else (text[: len(short)], "")
        assert text.startswith(head)
        if middle:
            missing, tail = middle.split(" characters left out ...]\n", 1)
            assert text.endswith(tail)
            assert int(missing) == len(text) - len(head) - len(tail)


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_a_clean_text_is_utf_8_without_nul(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert size_bytes(cleaned) == len(cleaned.encode())
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_any_json_value_gives_text_or_a_typed_failure(value: Any) -> None:
    try:
        assert isinstance(to_text(value), str)
    except ToolFailure as failure:
        assert failure.outcome is Outcome.OUTPUT_REJECTED


@pytest.mark.parametrize("length", [1001, 3000, 4500, 9000])
def test_a_cut_keeps_the_first_and_the_last_characters(length: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(length))
    head, _, rest = cut_middle(text, 1000).partition("\n[... ")
    number, _, tail = rest.partition(" characters left out ...]\n")
    assert text == head + text[len(head) : len(text) - len(tail)] + tail
    assert int(number) == len(text) - len(head) - len(tail)
    assert 1.8 < len(head) / len(tail) < 2.2


class Drawn:
    """An image as Pillow has it."""

    def save(self, file: Any, form: str) -> None:
        file.write(f"{form} of it".encode())


def test_the_content_of_a_message_with_images_is_its_texts_and_its_images() -> None:
    image = {"type": "image", "image": Drawn()}
    output = to_output([image, {"type": "text", "text": "Speed: 3"}, image, {"type": "text", "text": "No one."}])
    assert output.text == "Speed: 3\nNo one."
    assert [(one.data, one.mime_type) for one in output.images] == [(b"PNG of it", "image/png")] * 2


@pytest.mark.parametrize(
    "value", [[], [1], [{"type": "text", "text": "a"}], [{"type": "image", "image": "a.png"}], [{"image": None}]]
)
def test_other_lists_are_json(value: Any) -> None:
    assert to_output(value).text == to_text(value) and not to_output(value).images
