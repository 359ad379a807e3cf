"""Every rule by a table of cases: `rule_cases.jsonl`, each with the value and where it comes from.

`answers.jsonl` holds what models answer to a gold, right and wrong, by rule.

A source is a formula, a public test suite whose facts the case carries over, or a decision of ours (`by hand`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rlf.rewards import RULES, Term, TrajectoryFacts

from .scoring import score_with

LINES = (Path(__file__).parent / "rule_cases.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
ANSWERS = [
    json.loads(line) for line in (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]
MIN_CASES = 30


def scored(term: Term, cases: list[dict[str, Any]]) -> list[float | None]:
    tried = [TrajectoryFacts.model_validate(case["facts"]).trajectory(str(at)) for at, case in enumerate(cases)]
    return [each.success for each in asyncio.run(score_with([term], tried))]


@pytest.mark.usefixtures("warm_math")
@pytest.mark.parametrize("name", RULES.names())
def test_a_rule_gives_each_case_the_value_of_the_table(name: str) -> None:
    by_options: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if case["rule"] == name:
            by_options.setdefault(json.dumps(case["options"]), []).append(case)
    wrong = []
    for options, cases in by_options.items():
        term = Term.model_validate({"name": "term", "kind": "rule", "rule": name, **json.loads(options)})
        for case, value in zip(cases, scored(term, cases), strict=True):
            if value != (None if case["value"] is None else pytest.approx(case["value"])):
                wrong.append(f"{case}: got {value}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", ["choice", "collection", "exact_match", "numeric"])
def test_answers_as_models_write_them_are_read_by_type_and_hedges_and_denials_are_wrong(rule: str) -> None:
    rows = [row for row in ANSWERS if row["rule"] == rule]
    assert sum(len(row["right"]) + len(row["wrong"]) for row in rows) >= 60
    wrong = []
    for row in rows:
        term = Term.model_validate({"name": "t", "kind": "rule", "rule": rule, **row.get("options", {})})
        answers = [(answer, value) for value, way in ((1.0, "right"), (0.0, "wrong")) for answer in row[way]]
        got = scored(term, [{"facts": {"gold": row["gold"], "answer": answer}} for answer, _ in answers])
        wrong += [f"{row['gold']!r}: {pair}" for pair, value in zip(answers, got, strict=True) if value != pair[1]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", ["choice", "collection", "exact_match", "numeric"])
@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "0." + "3" * 5000, "1e-9999", "1e9999", "10^-9999", "5e-9999 km", "1 1" + "0" * 5000 + "/3", "1/0"],
)
def test_a_number_that_nobody_writes_is_a_wrong_answer_and_no_fault_of_the_rule(rule: str, text: str) -> None:
    term = Term.model_validate({"name": "t", "kind": "rule", "rule": rule})
    gold = {"choice": "A", "collection": ["5", "6"]}.get(rule, "5")
    assert scored(term, [{"facts": {"gold": gold, "answer": text}}]) == [0.0]


@pytest.mark.parametrize(
    ("rule", "piece"),
    [
        *product(
            ("numeric", "exact_match"), ("1 ", "1,", "1.", "or 5 ", "not ", "the answer is ", "five ", "$1", "5 m/")
        ),
        *product(("choice",), ("A ", "not ", "A or ", "the answer is ", "(", "answer to ", "Is it A? ")),
        *product(("collection",), ("1, ", "and ", "May 1, ", "- a\n")),
    ],
)
def test_reading_an_answer_takes_time_in_proportion_to_it(rule: str, piece: str) -> None:
    term = Term.model_validate({"name": "t", "kind": "rule", "rule": rule})
    gold = {"choice": "A", "collection": ["2024-03-01", "5"]}.get(rule, "5")
    begun = time.process_time()
    scored(term, [{"facts": {"gold": gold, "answer": text}} for text in (piece * 3000, f"{piece * 3000}x")])
    assert time.process_time() - begun < 8


def test_every_rule_has_thirty_cases_with_a_source_each() -> None:
    number = Counter(case["rule"] for case in CASES)
    assert {name: number[name] for name in RULES.names() if number[name] < MIN_CASES} == {}
    assert all(case["source"] for case in CASES)
