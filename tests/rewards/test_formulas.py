"""The formulas of rules by numbers worked by hand."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rlf.apps.rules import math
from rlf.apps.rules.choice import chosen_letter
from rlf.apps.rules.collection import gold_items
from rlf.rewards import Term, TrajectoryFacts
from rlf.types import StopReason, Task, Trajectory

from .scoring import score, score_with


def value(rule: str, facts: dict[str, Any], **keys: Any) -> float | None:
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": rule, **keys})
    return score(TrajectoryFacts.model_validate(facts).trajectory(), term).success


def calls(*named: tuple[str, str], **keys: Any) -> dict[str, Any]:
    """One turn with calls of these tools and results."""
    return {"text": "call", "calls": [{"name": name, "result": result} for name, result in named], **keys}


SUB = {"unsolved_set": {"a": ["1", "2"], "b": ["Ann"]}}


@pytest.mark.parametrize(
    ("variant", "worth"),
    # p = 3 calls, q = 2 solved: 2 * 2 / (3 + 1), 2 / 3, 2, 2^2 / 3
    [("f1", 1.0), ("precision", 2 / 3), ("completion", 2.0), ("product", 4 / 3)],
)
def test_ftrl_weighs_what_is_solved_against_calls(variant: str, worth: float) -> None:
    facts = {"gold": "x", "columns": SUB, "turns": [calls(("a", "2"), ("a", "5"), ("b", "the Ann"))]}
    assert value("ftrl", facts, variant=variant) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("facts", "worth"),
    [
        # t = 3 left: 1 / (3 + 1)
        ({"answer": "x"}, 0.25),
        ({"answer": "y"}, 0.0),
        ({}, -0.5),
        ({"answer": "  "}, -0.5),
        ({"turns": [{"text": "<tool_call>", "failures": ["unterminated"]}]}, -0.3),
        # a bad call beside a good one counts as a call: 2 * 1 / (2 + 1); FTRL's code forgives it and gives 1
        ({"turns": [calls(("a", "1"), failures=["bad_json"])]}, 2 / 3),
        # the same answer solves once; 2 * 1 / (2 + 1)
        ({"turns": [calls(("b", "Ann"), ("b", "Ann"))]}, 2 / 3),
        # over all turns: p = 2, q = 2
        ({"answer": "y", "turns": [calls(("a", "1")), calls(("a", "2")), {"text": "y"}]}, 4 / 3),
    ],
)
def test_ftrl_over_a_whole_trajectory(facts: dict[str, Any], worth: float) -> None:
    assert value("ftrl", {"gold": "x", "columns": SUB, **facts}) == pytest.approx(worth)


def test_ftrl_with_everything_solved_and_no_call_has_no_more_than_its_answer_earns() -> None:
    assert value("ftrl", {"gold": "x", "columns": {"unsolved_set": {}}, "answer": "y"}) == 0.0  # FTRL's code gives 0.5


def test_ftrl_turn_by_turn_is_ftrls_reward_of_each_generation() -> None:
    # turn 1: p 1, q 1: 2 * 1 / 2; turn 2: the same answer again: 0; turn 3: right without a call, 2 of 3 left: 1 / 3
    turns = [calls(("a", "1")), calls(("a", "1")), {"text": "x"}]
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": "ftrl", "stage": "turn"})
    facts = TrajectoryFacts.model_validate({"gold": "x", "columns": SUB, "answer": "x", "turns": turns})
    (said,) = score(facts.trajectory(), term).scores
    assert said.turn_values == (1.0, 0.0, pytest.approx(1 / 3))


@pytest.mark.parametrize(("match", "worth"), [("exact", 0.0), ("words", 0.0), ("substring", 1.0)])
def test_only_ftrls_own_matching_takes_1_for_2013(match: str, worth: float) -> None:
    facts = {"gold": "x", "columns": SUB, "turns": [calls(("a", "in 2013"))]}
    assert value("ftrl", facts, match=match) == worth


def test_ftrl_reads_sub_questions_as_json_and_refuses_what_is_none() -> None:
    turns = [calls(("a", "1"))]
    assert value("ftrl", {"gold": "x", "columns": {"unsolved_set": '{"a": ["1"]}'}, "turns": turns}) == 1.0
    for column in ("{", [1], {"a": "1"}, None):
        assert value("ftrl", {"gold": "x", "columns": {"unsolved_set": column}, "turns": turns}) is None


FORM = {"structure_score": 0.2, "answer_score": 0.1, "retrieval_score": 0.05}


@pytest.mark.parametrize(
    ("answer", "turns", "plain", "formed"),
    [
        ("the Paris!", [{}], 1.0, 1.0),
        ("Paris", [{"failures": ["bad_json"]}], 1.0, 0.8),
        ("Rome", [{}], 0.0, 0.2),
        ("Rome", [calls(("search", "Paris is the capital")), {}], 0.0, 0.25),
        ("Rome", [calls(("search", "Parisian")), {}], 0.0, 0.2),
        ("Rome", [{"failures": ["bad_json"]}], 0.0, 0.1),
        (None, [{}], 0.0, 0.0),
    ],
)
def test_search_r1(answer: str | None, turns: list[Any], plain: float, formed: float) -> None:
    facts = {"gold": ["Paris"], "answer": answer, "turns": turns}
    assert value("search_r1", facts) == plain
    assert value("search_r1", facts, **FORM) == pytest.approx(formed)


THREE_CALLS = [calls(("s", ""), ("s", ""), ("s", ""))]


@pytest.mark.parametrize(
    ("answer", "turns", "worth"),
    [
        ("Paris", [{"text": "<answer>Paris</answer>"}], 1.05),
        ("Paris", [*THREE_CALLS, {"text": "<answer>Paris</answer>"}], 1.0),  # T = 0.1 - 0.1
        ("Paris", [{"text": "<answer>Paris"}], 0.95),  # T = -0.1
        ("Rome", [{"text": "<answer>Rome</answer>"}], 0.1),
        ("Rome", [*THREE_CALLS, {"text": "<answer>Rome"}], -0.2),
        (None, [{"text": "thinking"}], -0.15),  # -0.1 - 0.1 / 2
        (None, THREE_CALLS, -0.2),
        ("Paris", [{"text": "Paris"}], 1.05),  # no tags in this chat format
    ],
)
def test_rl_factory_search(answer: str | None, turns: list[Any], worth: float) -> None:
    assert value("rl_factory_search", {"gold": "Paris", "answer": answer, "turns": turns}) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("formula", "worth"),
    [
        ("calls", 3.0),
        ("max(0, 1 - 0.1 * calls)", 0.7),
        ("successes / calls", 2 / 3),
        ("1 if failures == 0 else 0", 0.0),
        ("-2 ** 2 + 7 // 2 + 7 % 4", 2.0),
        ("answered and tokens > 3", 1.0),
        ("not answered or turns <= 1", 0.0),
        ("sqrt(answer_words) + abs(-1) + exp(0) + log(1) + min(1, 2)", 5.0),
        ("calls / (turns - 2)", None),
        ("9 ** 9 ** 9", None),
        ("(0 - 1) ** 0.5", None),
    ],
)
def test_expression(formula: str, worth: float | None) -> None:
    failed = {"name": "s", "outcome": "tool_error"}
    turns = [calls(("s", ""), ("s", "")), {"calls": [failed], "failures": ["empty"], "text": "one two three four"}]
    facts = {"answer": "one two three four", "turns": turns}
    found = value("expression", facts, formula=formula, range=[-100, 100])
    assert found == (None if worth is None else pytest.approx(worth))


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')", "calls.real", "().__class__", "terms.a.b", "[calls]", "lambda: 1", "'a' * 9", "calls if",
        "max(calls, key=abs)", "f'{calls}'", "calls @ 2", "calls << 9", "terms", "min", "x := 1", "True and exec('1')",
        "1 + " * 200 + "1", "1" * 600, "calls in terms", "1e400",
    ],
)  # fmt: skip
def test_a_formula_that_is_more_than_arithmetic_is_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Term.model_validate({"name": "term", "kind": "rule", "rule": "expression", "formula": formula})


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        (" (b). ", "B"),
        ("\\boxed{C}", "C"),
        ("First \\boxed{A}, no: \\boxed{\\text{D}}", "D"),
        ("I think the answer is (B).", "B"),
        ("The answer is B because A is wrong", "B"),
        ("The correct choice: c", "C"),
        ("B) Paris", "B"),
        ("The answer is a river", None),
        ("A river flows through Paris", None),
        ("E", None),
        ("", None),
        ("42", None),
    ],
)
def test_a_chosen_letter(text: str, letter: str | None) -> None:
    assert chosen_letter(text, "ABCD") == letter


@pytest.mark.parametrize(
    ("gold", "answer", "worth"), [("B", "(B)", 1), ("(b) Rome", "B", 1), ("B", "A", 0), ("Rome", "B", None)]
)
def test_choice(gold: str, answer: str, worth: float | None) -> None:
    assert value("choice", {"gold": gold, "answer": answer}) == worth


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ann; Bob\nand Cid", ["ann", "bob", "cid"]),
        ('["Ann", 2]', ["ann", "2"]),
        ("brandy, sand", ["brandy", "sand"]),
        (["The Hague", None], ["hague", "none"]),
        (3, ["3"]),
        (None, []),
        (", ,", []),
    ],
)
def test_items_of_a_collection(text: Any, found: list[str]) -> None:
    assert gold_items(text) == found


@pytest.mark.parametrize(
    ("answer", "compare", "all_", "f1"),
    # gold: a b b
    [
        ("a, b, b", "list", 1, 1.0),
        ("b, a, b", "list", 0, 2 * 1 / 6),
        ("b, a, b", "multiset", 1, 1.0),
        ("b, a", "multiset", 0, 2 * 2 / 5),
        ("b, a", "set", 1, 1.0),
        ("b, c", "set", 0, 2 * 1 / 4),
        ("", "set", 0, 0.0),
    ],
)
def test_collection(answer: str, compare: str, all_: float, f1: float) -> None:
    facts = {"gold": ["x", "b", "b"], "answer": answer.replace("a", "x")}
    assert value("collection", facts, compare=compare) == all_
    assert value("collection", facts, compare=compare, credit="f1") == pytest.approx(f1)


@pytest.mark.parametrize(
    ("budgets", "worth"),
    # 4 calls, 2 turns, 10 tokens
    [
        ({"calls": 4}, 1.0),
        ({"calls": 2}, 0.5),
        ({"turns": 1}, 0.5),
        ({"tokens": 4}, 0.4),
        ({"calls": 3, "tokens": 6}, 0.6),
    ],
)
def test_efficiency(budgets: dict[str, int], worth: float) -> None:
    turns = [calls(*[("s", "")] * 4, num_tokens=8), {"num_tokens": 2}]
    assert value("efficiency", {"answer": "x", "turns": turns}, **budgets) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("words", "worth"), [(0, 0.0), (1, 0.25), (4, 1.0), (10, 1.0), (12, 0.8), (20, 0.0), (30, 0.0)]
)
def test_length_rises_to_its_bounds_and_falls_behind_them(words: int, worth: float) -> None:
    facts = {"answer": " ".join(["w"] * words)}
    assert value("length", facts, at_least=4, at_most=10) == pytest.approx(worth)


def test_length_in_characters() -> None:
    assert value("length", {"answer": "  abcd "}, unit="characters", at_least=8) == 0.5


def test_no_repeat_knows_a_call_by_tool_and_arguments() -> None:
    same = [{"name": "s", "arguments": {"a": 1, "b": 2}}, {"name": "s", "arguments": {"b": 2, "a": 1}}]
    other = [{"name": "t", "arguments": {"a": 1, "b": 2}}]
    assert value("no_repeat", {"turns": [{"calls": same}, {"calls": other}]}) == pytest.approx(2 / 3)
    assert value("no_repeat", {"answer": "x"}) == 1.0


def test_tool_success_counts_calls_of_the_named_tools() -> None:
    said = [{"name": "s"}, {"name": "s", "outcome": "timeout"}, {"name": "t", "outcome": "tool_error"}]
    assert value("tool_success", {"turns": [{"calls": said}]}) == pytest.approx(1 / 3)
    assert value("tool_success", {"turns": [{"calls": said}]}, tools=["s"]) == 0.5


@pytest.mark.parametrize(
    ("language", "text", "worth"),
    [
        ("en", "The river is in the north of the country.", 1.0),
        ("en", "Der Fluss ist im Norden und nicht im Süden.", 0.0),
        ("de", "Der Fluss ist im Norden und nicht im Süden.", 1.0),
        ("fr", "Le fleuve est dans le nord du pays.", 1.0),
        ("es", "El río está en el norte del país.", 1.0),
        ("en", "Paris", 1.0),
        ("de", "Paris 42", 1.0),
        ("en", "42", 0.0),
        ("ru", "Река на севере", 1.0),
        ("en", "Река", 0.0),
        ("zh", "河在北方", 1.0),
        ("zh", "川は北にあります", 0.0),
        ("ja", "川は北にあります", 1.0),
        ("ja", "河在北方", 0.0),
        # 4 Latin and 12 Cyrillic letters
        ("ru", "Река на севере abcd", 0.75),
    ],
)
def test_language(language: str, text: str, worth: float) -> None:
    assert value("language", {"answer": text}, language=language) == pytest.approx(worth)


@pytest.mark.parametrize(
    ("answer", "worth"),
    [
        ('{"town": "Paris"}', 1),
        ('```json\n{"town": "Paris"}\n```', 1),
        ('{"town": 3}', 0),
        ("{}", 0),
        ("Paris", 0),
        ('{"town": NaN}', 0),
        ('{"town": "Paris"} and more', 0),
    ],
)
def test_json_schema(answer: str, worth: float) -> None:
    schema = {"type": "object", "required": ["town"], "properties": {"town": {"type": "string"}}}
    assert value("json_schema", {"answer": answer}, schema=schema) == worth


def test_a_schema_without_a_type_that_any_number_satisfies_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"got a schema without `type`.* Write e.g. `type: object`"):
        value("json_schema", {"answer": "5"}, schema={"required": ["town"]})


def test_a_pattern_without_end_leaves_the_trajectory_unscorable() -> None:
    assert value("regex", {"answer": "a" * 60 + "!"}, pattern=r"^(a|a)*(a|a)*$") is None
    facts = {"answer": "no", "turns": [{"text": "<think>x</think>"}, {"text": "no"}]}
    assert value("regex", facts, pattern="^<think>.*</think>\nno$", where="text") == 1.0
    assert value("regex", facts, pattern="think") == 0.0


def test_a_gold_that_no_one_can_read_is_compared_as_text() -> None:
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": "math", "workers": 1, "timeout_s": 0.1})
    said = score(TrajectoryFacts(gold="(" * 3000, answer="7").trajectory(), term).scores[0]
    assert said.value == 0.0  # it is compared as text: no part of it is mathematics


@pytest.mark.usefixtures("warm_math")
def test_math_compares_what_is_meant_and_an_answer_that_nobody_can_compute_is_no_right_one() -> None:
    pairs = [
        ("1/2", r"\boxed{\frac{1}{2}}", 1.0),
        ("0.5", "so it is 1/2", 1.0),
        ("x^2-1", "(x-1)(x+1)", 1.0),
        (r"\{1, 2\}", r"\{2, 1\}", 1.0),
        ("-5", "5", 0.0),
        (["3", "4"], "4.0", 1.0),
        ("7", "", 0.0),
        ("7", "(" * 3000, 0.0),
        ("7", r"\boxed{99999^{99999^{99999}}}", 0.0),
        ("8", "8.0", 1.0),  # after one that had to be ended
    ]
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": "math", "workers": 1, "timeout_s": 1})
    tried = [TrajectoryFacts(gold=gold, answer=answer).trajectory() for gold, answer, _ in pairs]
    scored = asyncio.run(score_with([term], tried))
    assert [each.success for each in scored] == [worth for _, _, worth in pairs]
    assert scored[7].scores[0].reason == scored[8].scores[0].reason == "not compared within 2 s"


MATH_WORKER = """
import os, signal, sys
from rlf.sandbox.guest.wire import Bounds, pack, read_frame, write_all

channel = int(sys.argv[1])
while frame := read_frame(lambda size: os.read(channel, size), Bounds(10_000)):
    if frame.read().get("cpu_s") == 0.5:
        os.kill(os.getpid(), signal.SIGPROF)
    write_all(channel, pack(frame.number, {"is_readable": True, "is_equal": True}))
"""


def test_a_right_answer_that_used_up_its_time_on_the_first_try_is_worth_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math, "_COMMAND", (sys.executable, "-c", MATH_WORKER))
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": "math", "timeout_s": 0.5})
    assert score(TrajectoryFacts(gold="4", answer="2 + 2").trajectory(), term).reward == 1.0


def test_the_first_comparison_of_a_worker_has_its_processor_time_for_itself() -> None:
    term = Term.model_validate({"name": "term", "kind": "rule", "rule": "math", "workers": 1, "timeout_s": 0.1})
    for gold, answer in [("4", r"$2 + \frac{4}{2}$"), ("x^2-1", "(x-1)(x+1)")]:  # a run, and so a worker, for each
        assert score(TrajectoryFacts(gold=gold, answer=answer).trajectory(), term).reward == 1.0


@pytest.mark.parametrize(("num_sampled", "worth"), [(0, 0.0), (6, 0.0), (7, -0.25), (9, -0.75), (10, -1.0), (40, -1.0)])
def test_the_overlong_punishment_falls_over_its_buffer_and_counts_sampled_tokens_alone(
    num_sampled: int, worth: float
) -> None:
    """-(n - (10 - 4)) / 4 within the buffer: DAPO, equation 13."""
    term = Term.model_validate({"kind": "rule", "rule": "overlong", "name": "o", "max_tokens": 10, "buffer_tokens": 4})
    tool_output = 500
    tokens = num_sampled + tool_output
    trajectory = Trajectory(
        id="t",
        task=Task("q", ()),
        sample_index=0,
        tokens=[0] * tokens,
        action_mask=[True] * num_sampled + [False] * tool_output,
        rollout_logprobs=[0.0] * tokens,
        turns=(),
        stop=StopReason.ANSWERED,
        answer="x",
    )
    assert score(trajectory, term).reward == worth
