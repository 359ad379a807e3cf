"""Text from outside: made valid, whatever it is and whatever an exception's own code does."""

import time

import pytest

from rlf.core.redact import Redactor, clean
from rlf.core.text import MAX_FAULT_CHARS, clean_value, describe, text_of

from ..hostile import FAULTS, NAME, TEXTS, _Word


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_becomes_one_that_every_file_and_database_takes(name):
    text = clean(TEXTS[name])
    assert "\0" not in text
    assert text.encode().decode() == text


def test_two_halves_of_a_pair_are_joined_and_others_replaced():
    assert clean("\ud83d\ude00 \ude00\ud83d\0") == "😀 \ufffd\ufffd\ufffd"


def test_a_subclass_of_text_becomes_a_plain_text():
    text = clean(_Word(NAME))
    assert (type(text), text) == (str, "no file 'caf\ufffd.txt'")


def test_texts_and_keys_within_a_value_become_valid():
    assert clean_value({"\udce9": ["\ud83d", 1, None, {"a": "b\0"}]}) == {
        "\ufffd": ["\ufffd", 1, None, {"a": "b\ufffd"}]
    }


@pytest.mark.parametrize("name", FAULTS)
def test_any_exception_is_described_in_bounds(name):
    words = describe(FAULTS[name]())
    words.encode()
    assert 0 < len(words) <= MAX_FAULT_CHARS


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (FAULTS["no_text"](), "_NoText: its text cannot be shown (RuntimeError)"),
        (FAULTS["subclass"](), "_Subclass: no file 'caf\ufffd.txt'"),
        (KeyError(), "KeyError"),
        (
            ExceptionGroup("two", [ValueError("a"), OSError("b")]),
            "ExceptionGroup: two (2 sub-exceptions); ValueError: a; OSError: b",
        ),
    ],
)
def test_a_description_names_class_and_text_and_the_exceptions_of_a_group(fault, words):
    assert describe(fault) == words


def test_notes_are_part_of_the_description():
    fault = ValueError("a")
    fault.add_note("look there")
    assert describe(fault) == "ValueError: a; look there"


def test_what_a_redactor_writes_as_json_is_valid():
    text = Redactor({}).json({"\udce9": "\ud83d", "pair": "\ud83d\ude00"})
    assert text.encode().decode() == '{"\ufffd":"\ufffd","pair":"😀"}'


class _Blocks(Exception):
    def __str__(self) -> str:
        time.sleep(600)
        return "late"


class _BlockingWord:
    def __repr__(self) -> str:
        time.sleep(600)
        return "late"


class _BlockingNotes(Exception):
    def __getattribute__(self, name: str) -> object:
        return time.sleep(600) if name == "__notes__" else super().__getattribute__(name)


class _BlockingGroup(ExceptionGroup[Exception]):
    def __str__(self) -> str:
        time.sleep(600)
        return "late"


@pytest.mark.parametrize(
    "fault",
    [
        _Blocks(),
        ValueError(_BlockingWord()),
        KeyError("a", [_BlockingWord()]),
        ExceptionGroup("two", [_Blocks()]),
        _BlockingNotes("a"),
        _BlockingGroup("two", [ValueError("a")]),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_an_exception_whose_own_code_blocks_is_named_by_its_class_in_time(fault):
    started = time.monotonic()
    assert describe(fault) == f"{type(fault).__name__}: its text cannot be shown"
    assert text_of(fault)
    assert time.monotonic() - started < 60
