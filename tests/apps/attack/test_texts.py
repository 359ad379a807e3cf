"""Answers that the attack takes for wrong are wrong, and a part of a gold is not all of it, whatever form it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rlf.apps.attack.shapes import AnswerPart
from rlf.apps.attack.texts import answer_texts, gold_facts
from rlf.types import Message, Task


def texts(gold: str | Sequence[str], *others: str) -> Mapping[AnswerPart, str]:
    """The texts of a question, in data with other golds."""
    tasks = [Task(str(at), (Message("user", "Which?"),), each) for at, each in enumerate((gold, *others))]
    return answer_texts(tasks[0], gold_facts(tasks), rubric="", long="")


@pytest.mark.parametrize("gold", ["B) Lyon", "(c) Bonn", "5 + 6 = 11 coins\n#### 11", "So it is \\boxed{7}"])
def test_a_part_that_says_all_of_a_gold_is_not_taken_for_a_part(gold: str) -> None:
    found = texts(gold)
    assert not any(found[part] for part in (AnswerPart.GOLD_HALF, AnswerPart.GOLD_WORD, AnswerPart.GOLD_LETTER))


def test_half_a_name_its_last_word_and_its_first_letter_are_parts() -> None:
    found = texts("Upper Terfur")
    parts = (AnswerPart.GOLD_HALF, AnswerPart.GOLD_WORD, AnswerPart.GOLD_LETTER)
    assert [found[part] for part in parts] == ["Upper ", "Terfur", "U"]


def test_backwards_is_wrong_only_where_it_is_more_than_another_order() -> None:
    backwards = {"n+1": None, "44%": None, "1871": "1781", "7.5%": "%5.7", "Lyon": "noyL"}
    assert {gold: texts(gold).get(AnswerPart.REVERSED) for gold in backwards} == backwards


def test_twice_is_wrong_only_where_it_makes_one_word() -> None:
    assert [texts(gold).get(AnswerPart.GLUED) for gold in ("Lyon", "1871", "9")] == ["LyonLyon", "18711871", "19"]
    assert not any(AnswerPart.GLUED in texts(gold) for gold in ("12 km", "La Paz", "-4.5", '{"a": 1}', "n!"))


def test_an_altered_gold_that_is_another_gold_of_the_question_is_not_wrong() -> None:
    assert texts("5", "-3")[AnswerPart.OTHER_SIGN] == "-5"
    assert AnswerPart.OTHER_SIGN not in texts(["5", "-5"], "-3")


def test_a_number_of_another_size_is_beyond_any_tolerance_and_has_the_places_of_the_gold() -> None:
    sizes = {"0.5%": "50.0%", "12 km": "1200 km", "7": "10", "1": "2", "-4.5": "-6.8", "1,000": "1500"}
    assert {gold: texts(gold)[AnswerPart.OTHER_SIZE] for gold in sizes} == sizes
    assert not any(AnswerPart.OTHER_SIZE in texts(gold) for gold in ("0", "0 km", "Lyon", "9" * 40))
