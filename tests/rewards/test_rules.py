"""Each rule's formula by worked numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.apps.rules.token_f1 import token_f1
from rlf.core.redact import fold
from rlf.rewards.answers import read_answer_text, same
from rlf.rewards.normalization import Normalization, normalize
from rlf.rewards.rules.numeric import last_number
from rlf.types import Outcome

OK, INVALID, UNKNOWN = Outcome.OK, Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN_TOOL


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Eiffel-Tower,\n Paris!", "eiffeltower paris"),
        ("an apple a day", "apple day"),
        ("Theory of the theater", "theory of theater"),
        ("the", ""),
        ("3.14", "314"),
        ("ÉCOLE", "école"),
    ],
)
def test_normalisation_is_search_r1s(text: str, normal: str) -> None:
    assert normalize(text, Normalization.SQUAD) == normal


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalize(text, Normalization.SQUAD)
    assert normalize(once, Normalization.SQUAD) == once


@given(st.text())
def test_an_answer_is_the_same_as_itself_unless_it_is_blank(text: str) -> None:
    assert same(text, text) == (fold(text).strip() != "")


@pytest.mark.parametrize("code", [0x200B, 0xAD, 0x34F, 0x3164, 0xFFA0, 0x115F, 0xFE0F, 0xE0101, 0x180B, 0x17B4])
def test_characters_that_nobody_sees_are_no_part_of_a_text(code: int) -> None:
    assert fold(f"{chr(code)}a{chr(code) * 300}b") == "ab" and fold(chr(code) * 9) == ""


@given(st.text(), st.sampled_from(["the ", "An ", " ", "...", "(", "\t"]))
def test_articles_punctuation_and_space_before_a_word_do_not_matter(text: str, noise: str) -> None:
    answer = f"word {text}"
    assert same(noise + answer, answer)


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("the Paris.", "Paris", 1),
        ("Paris, France", "Paris", 0),
        ("Lyon", ["Paris", "Lyon"], 1),
        ("Nice", ["Paris", "Lyon"], 0),
        ("42", 42, 1),
        ("", "Paris", 0),
        ("the", "a", 0),
        ("A", "a", 1),
        ("-5", "5", 0),
        ("?", "+", 0),
        (None, "Paris", 0),
    ],
)
def test_exact_match(trajectory: Any, judge: Any, answer: str | None, gold: Any, value: float) -> None:
    assert judge(trajectory(answer, gold), kind="rule", rule="exact_match").value == value


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("It is Paris, France.", "Paris", 1),
        ("the comparison", "paris", 0),
        ("New York City", "york city", 1),
        ("New York", ["Boston", "new york"], 1),
        ("City of York", "york city", 0),
        ("", "the", 0),
        (None, "Paris", 0),
    ],
)
def test_contains(trajectory: Any, judge: Any, answer: str | None, gold: Any, value: float) -> None:
    assert judge(trajectory(answer, gold), kind="rule", rule="contains").value == value


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("Paris", "Paris", 1.0),
        # 1 word in common, P = 1/2, R = 1/1: F1 = 2 * 0.5 * 1 / 1.5 = 2/3
        ("Paris France", "Paris", 2 / 3),
        # the second "x" has no partner: common 1, P = 1/2, R = 1/2
        ("x x", "x y", 0.5),
        ("nothing", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("the", "the", 1.0),
    ],
)
def test_token_f1(answer: str, gold: str, value: float) -> None:
    assert token_f1(answer, gold) == pytest.approx(value)


def test_token_f1_takes_the_best_gold(trajectory: Any, judge: Any) -> None:
    verdict = judge(trajectory("Paris France", ["Paris", "France Paris"]), kind="rule", rule="token_f1")
    assert verdict[:2] == (1.0, "closest to 'France Paris'")


@given(st.text(), st.text())
def test_token_f1_is_symmetric_and_within_0_and_1(one: str, other: str) -> None:
    value = token_f1(one, other)
    assert 0 <= value <= 1
    if normalize(one) and normalize(other):
        assert value == token_f1(other, one)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("about 1,250.5 km2", 1250.5),
        ("first 3, then -4", -4.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12.", 12.0),
        ("$1,000,000", 1e6),
        ("x2", None),
        ("none", None),
        ("7 and " + "9" * 400, 7.0),
    ],
)
def test_the_last_number_counts(text: str, number: float | None) -> None:
    assert last_number(text) == number


@given(st.from_regex(r"-?\d{1,18}", fullmatch=True))
def test_bare_digits_are_read_as_they_are_beside_a_space(text: str) -> None:
    # A text of digits alone is read on a way of its own, where that is quicker.
    assert read_answer_text(text) == read_answer_text(f" {text}")


@given(st.text(alphabet="0123456789.,eE+- x"))
def test_a_number_found_is_finite(text: str) -> None:
    number = last_number(text)
    assert number is None or math.isfinite(number)


@pytest.mark.parametrize(
    ("answer", "gold", "tolerance", "value"),
    [
        ("it is 168", "168", 1e-6, 1),
        ("167", 168, 1e-6, 0),
        # |1009 - 1000| = 9 <= 0.01 * max(1, 1000) = 10
        ("1009", 1000, 0.01, 1),
        ("1011", 1000, 0.01, 0),
        # |0.005 - 0| <= 0.01 * max(1, 0)
        ("0.005", 0, 0.01, 1),
        ("4", ["3", "4"], 0, 1),
        ("many", 4, 0, 0),
        (None, 4, 0, 0),
        ("4", "four", 0, 1),
        ("4", "many", 0, None),
    ],
)
def test_numeric(trajectory: Any, judge: Any, answer: Any, gold: Any, tolerance: float, value: float | None) -> None:
    assert judge(trajectory(answer, gold), kind="rule", rule="numeric", tolerance=tolerance).value == value


@pytest.mark.parametrize(
    ("outcomes", "failures", "value"),
    [
        ((), 0, 0.0),
        ((OK,), 0, 1.0),
        ((Outcome.TOOL_ERROR, Outcome.TIMEOUT), 0, 1.0),
        # 1 well-formed of 2 calls + 2 failures
        ((OK, INVALID), 2, 0.25),
        ((UNKNOWN,), 0, 0.0),
        ((), 3, 0.0),
    ],
)
def test_tool_format(trajectory: Any, judge: Any, outcomes: tuple[Outcome, ...], failures: int, value: float) -> None:
    assert judge(trajectory("x", outcomes=outcomes, failures=failures), kind="rule", rule="tool_format").value == value
