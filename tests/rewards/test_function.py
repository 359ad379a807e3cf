"""The weighted sum, and everything that makes a trajectory unscorable."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rlf.core import RlfError
from rlf.rewards import RewardFunction, Term
from rlf.rewards.term import Success
from rlf.types import Outcome, ScoreState, StopReason

from .scoring import CONTEXT, score, score_with

FOLDER = Path(__file__).parent


def term(name: str, weight: float = 1.0, **keys: Any) -> Term:
    return Term.model_validate({"name": name, "weight": weight, **keys}, context={"folder": FOLDER})


def rule(name: str, weight: float = 1.0) -> Term:
    return term(name, weight, kind="rule", rule=name)


def python(function: str, name: str = "own", **keys: Any) -> Term:
    return term(name, kind="python", callable=f"functions.py:{function}", **keys)


def test_the_reward_is_the_weighted_sum_and_success_the_first_term(trajectory: Any) -> None:
    one = trajectory("Paris", "Paris", outcomes=(Outcome.OK, Outcome.INVALID_ARGUMENTS))
    scored = score(one, rule("exact_match", 2.0), rule("tool_format", 0.1))
    # R = 2.0 * 1 + 0.1 * 1/2
    assert scored.reward == pytest.approx(2.05)
    assert scored.success == 1.0
    assert [(each.term, each.value, each.weight) for each in scored.scores] == [
        ("exact_match", 1.0, 2.0),
        ("tool_format", 0.5, 0.1),
    ]
    assert scored.trajectory is one
    assert all(each.elapsed_s > 0 for each in scored.scores)


@pytest.mark.parametrize(
    ("success", "value"),
    [
        (Success(term="calls", at_least=3), 1.0),
        (Success(term="calls", at_least=3.5), 0.0),
        (Success(term="calls", at_most=2), 0.0),
        (Success(term="calls", at_least=2, at_most=3), 1.0),
        (Success(term="calls"), (3 - -1) / (9 - -1)),
    ],
)
def test_success_is_a_declared_predicate_or_a_scaled_term(trajectory: Any, success: Success, value: float) -> None:
    term = {"kind": "rule", "rule": "expression", "name": "calls", "formula": "calls", "range": [-1, 9], "scale": 2}
    terms = [rule("exact_match"), Term.model_validate(term)]

    async def work() -> Any:
        async with RewardFunction(terms, CONTEXT, success) as function:
            return await function.score(trajectory("Paris", "Paris", outcomes=(Outcome.OK,) * 3), step=1)

    assert asyncio.run(work()).success == pytest.approx(value)


@pytest.mark.parametrize("stop", [StopReason.INFRA_FAILURE, StopReason.CANCELLED])
def test_no_term_runs_on_an_unscorable_trajectory(trajectory: Any, stop: StopReason) -> None:
    scored = score(trajectory("Paris", "Paris", stop=stop), rule("exact_match"))
    assert (scored.scores, scored.reward, scored.success) == ((), None, None)


def test_a_task_without_answer_is_unscorable_where_a_term_needs_one(trajectory: Any) -> None:
    scored = score(trajectory("Paris", None, outcomes=(Outcome.OK,)), rule("tool_format"), rule("exact_match"))
    assert scored.reward is None
    assert scored.success == 1.0
    assert scored.scores[1].value is None
    assert scored.scores[1].reason == "task task-1 has no gold answer"


@pytest.mark.parametrize(
    ("function", "value", "reason"),
    [
        ("fail", None, "ValueError: no such thing (functions.py:43)"),
        ("leave", None, "SystemExit: 3"),
        ("value", None, "returned None"),
        ("value", float("nan"), "nan is not a finite number"),
        ("value", float("-inf"), "-inf is not a finite number"),
        ("value", "0.5", "returned '0.5', which is not a number"),
        ("value", [1.0], "returned [1.0], which is not a number"),
        ("one_for_all", 0.5, "returned 0.5, which is not a list of numbers"),
        ("one_for_all", {0: 0.5}, "returned {0: 0.5}, which is not a list of numbers"),
        ("one_for_all", b"1", "returned b'1', which is not a list of numbers"),
        ("one_for_all", {0.5}, "returned {0.5}, which is not a list of numbers"),
        ("two_columns", 3, "missing 1 required positional argument: 'hops'"),
    ],
)
def test_a_term_that_cannot_say_makes_the_reward_absent_not_0(
    trajectory: Any, function: str, value: Any, reason: str
) -> None:
    one = trajectory("Paris", "Paris", value=value)
    scored = score(one, rule("exact_match"), python(function))
    assert scored.scores[1].value is None
    assert reason in scored.scores[1].reason
    assert scored.reward is None
    assert scored.success == 1.0


def test_a_sum_beyond_all_numbers_is_absent(trajectory: Any) -> None:
    assert score(trajectory(value=1e308), python("value", weight=1e308)).reward is None


@pytest.mark.parametrize(
    ("function", "columns", "value"),
    [
        ("two_columns", {"hops": 2, "other": "x"}, 2.5),
        ("two_columns", {"hops": 2, "bonus": 1.0}, 3.0),
        ("all_columns", {"a": 1, "b": 2, "trajectory": 3}, 2.0),
        ("later", {"a": 1}, 0.25),
        ("value", {"value": True}, 1.0),
    ],
)
def test_a_function_gets_the_columns_it_has_parameters_for(
    trajectory: Any, function: str, columns: dict[str, Any], value: float
) -> None:
    one = trajectory()
    object.__setattr__(one.task, "columns", columns)
    assert score(one, python(function)).reward == value


def test_a_function_that_never_ends_is_given_up(trajectory: Any) -> None:
    started = time.perf_counter()
    scored = score(trajectory(), python("never", timeout_s=0.05))
    assert scored.reward is None
    assert scored.scores[0].reason == "no value within 0.05 s"
    assert scored.scores[0].state is ScoreState.UNANSWERED
    assert time.perf_counter() - started < 3


def test_many_are_scored_at_once_in_the_order_given(trajectory: Any) -> None:
    terms = [python("value"), python("never", "slow", timeout_s=0.2)]
    started = time.perf_counter()
    scored = asyncio.run(score_with(terms, [trajectory(value=number) for number in range(10)]))
    assert [each.success for each in scored] == list(range(10))
    assert time.perf_counter() - started < 1.5  # one after the other the ten would take 2 s


def test_a_function_that_cannot_be_imported_is_refused_before_the_first_score() -> None:
    with pytest.raises(RlfError, match="did you mean 'later'"):
        RewardFunction([python("latr")], CONTEXT)


def test_two_terms_of_one_name_are_refused() -> None:
    with pytest.raises(RlfError, match="'exact_match' names two terms"):
        RewardFunction([rule("exact_match"), rule("exact_match")], CONTEXT)


@pytest.mark.parametrize(
    ("keys", "loc", "words"),
    [
        ({"kind": "rul"}, ("kind",), "did you mean 'rule'?"),
        ({}, ("kind",), "required"),
        ({"kind": "rule"}, ("rule",), "required"),
        ({"kind": "rule", "rule": "exact"}, ("rule",), "known: choice, collection, contains, "),
        ({"kind": "rule", "rule": "exact_match", "weight": "high"}, ("weight",), "number"),
        ({"kind": "rule", "rule": "exact_match", "weight": float("nan")}, ("weight",), "finite"),
        ({"kind": "rule", "rule": "exact_match", "tolerance": 1}, ("tolerance",), "not permitted"),
        ({"kind": "rule", "rule": "numeric", "tolerance": -1}, ("tolerance",), "greater than or equal to 0"),
        ({"kind": "python", "callable": "fn"}, ("callable",), "package.module:name"),
        ({"kind": "python", "callable": "a:b", "timeout_s": 0}, ("timeout_s",), "greater than 0"),
        ({"kind": "rule", "rule": "exact_match", "name": "two words"}, ("name",), "pattern"),
    ],
)
def test_a_fault_names_its_key_path(keys: dict[str, Any], loc: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Term.model_validate({"name": "term", **keys})
    (fault,) = caught.value.errors()
    assert fault["loc"] == loc
    assert words in fault["msg"]


def test_the_log_has_a_line_for_each_term_that_begins_and_one_when_all_are_done(
    trajectory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rlf.rewards.function"):
        score(trajectory("Paris", "Paris"), rule("exact_match"), python("right"))
    first, second, done = caplog.messages
    assert (first, second) == (
        "reward term exact_match begins: ExactMatch",
        "reward term own begins: PythonTerm",
    )
    assert done.startswith("reward terms done: exact_match, own, 1 trajectories scored, ")
