"""Matching by value and type, and FTRL's reward by it."""

import json

import pytest

from rlf.apps.peers.ftrl_reward import Ftrl
from rlf.rewards.facts import TrajectoryFacts
from rlf.rewards.values import Finding, Solved, count_solved, keyed_golds, solved_by, text_keys, value_key, value_keys


@pytest.mark.parametrize(
    ("text", "gold", "holds"),
    [
        ("2013", 1, False),
        ("2013", 2013, True),
        ("2013", "2013", True),
        ('{"year": "2013"}', 2013, False),
        ('{"year": 2013}', 2013.0, True),
        ('[{"town": {"name": "The Kaldun "}}]', "kaldun", True),
        ('{"kaldun": 3}', "kaldun", False),
        ("Kaldunia", "Kaldun", False),
        ("true", True, True),
        ("true", 1, False),
    ],
)
def test_a_result_holds_a_gold_as_one_whole_value_of_its_type(text, gold, holds):
    assert (value_key(gold) in text_keys(text)) is holds


@pytest.mark.parametrize(
    ("gold", "found", "holds"),
    [
        ("7", {"tons": 7}, True),
        ("7.50", {"tons": 7.5}, True),
        ("7", {"tons": "7"}, True),
        ("true", {"is_open": True}, True),
        ("7", {"tons": 17}, False),
        ("7", {"is_open": True}, False),
        (7, {"tons": "7"}, False),
        ('{"tons": 7}', {"tons": 7}, False),
        ('"7"', {"tons": 7}, False),
    ],
)
def test_a_gold_that_is_a_text_of_a_number_is_found_as_either(gold, found, holds):
    call = Finding("weigh", text_keys(json.dumps(found)), frozenset())
    assert count_solved([call], keyed_golds({"weigh": [gold]})) == holds


def test_a_call_ticks_one_gold_of_its_own_tool_that_it_was_not_given():
    golds = keyed_golds({"a": ["x", "x", "y"], "b": ["z"]})

    def call(tool, found, **given):
        return Finding(tool, text_keys(json.dumps(found)), value_keys(given))

    assert count_solved([call("a", ["x", "y"])], golds) == 1
    assert count_solved([call("a", ["x"])] * 3, golds) == 2
    assert count_solved([call("a", "z"), call("c", "z"), call("b", "z", hint="z")], golds) == 0
    assert count_solved([call("b", "z"), call("a", "y"), call("a", "y")], golds) == 2


def judged(calls, answer=None, **options):
    facts = TrajectoryFacts.model_validate(
        {
            "gold": "9",
            "columns": {"unsolved_set": {"length": [4, 5]}},
            "turns": [{"calls": [{"name": "length", "result": result} for result in calls]}] if calls else [],
            **({"answer": answer} if answer else {}),
        }
    )
    rule = Ftrl(name="solve", rule="ftrl", match="value", **options)
    return rule.judge(facts.trajectory()).value


def test_solve_f1_is_2q_over_p_plus_n_and_pays_nothing_without_a_call():
    assert judged(["4", "5"], variant="solve_f1") == 2 * 2 / (2 + 2)
    assert judged(["4"], variant="solve_f1") == 2 * 1 / (1 + 2)
    assert judged(["4", "5", "7", "14"], variant="solve_f1") == 2 * 2 / (4 + 2)
    assert judged([], answer="9", variant="solve_f1") == 0.0
    assert judged(["4", "5"]) == 2 * 2 / (2 + 1)


def test_solves_of_a_trajectory_count_what_could_not_be_read_as_calls():
    facts = TrajectoryFacts.model_validate(
        {
            "columns": {"unsolved_set": '{"length": [4, 5]}'},
            "turns": [
                {"calls": [{"name": "length", "result": "4"}, {"name": "length", "result": "5", "outcome": "timeout"}]},
                {"failures": ["bad_json"]},
            ],
        }
    )
    solved = solved_by(facts.trajectory())
    assert solved == Solved(1, 3, 2)
    assert (solved.precision, solved.recall, solved.f1) == (1 / 3, 1 / 2, 2 / (3 + 2))
    assert solved_by(TrajectoryFacts.model_validate({"columns": {"unsolved_set": "no JSON"}}).trajectory()) is None
