"""Every rule by a table of cases: `rule_cases.jsonl`, each with the value and where it comes from.

A source is a formula, a public test suite whose facts the case carries over, or a decision of ours (`by hand`).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlf.rewards import RULES, Term, TrajectoryFacts

from .scoring import score_with

LINES = (Path(__file__).parent / "rule_cases.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
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


def test_every_rule_has_thirty_cases_with_a_source_each() -> None:
    number = Counter(case["rule"] for case in CASES)
    assert {name: number[name] for name in RULES.names() if number[name] < MIN_CASES} == {}
    assert all(case["source"] for case in CASES)
