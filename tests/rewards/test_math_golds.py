"""`rule: math` by a table of bare golds as MATH has them, each with right and wrong answers: `math_golds.jsonl`."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlf.apps.rules.math_text import as_latex, gold_latex
from rlf.rewards import Term, TrajectoryFacts
from rlf.rewards.answers import result_of

from .scoring import score_with

LINES = (Path(__file__).parent / "math_golds.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
WAYS = {1: "right", 0: "wrong"}
TERM = Term.model_validate({"kind": "rule", "name": "right", "rule": "math", "workers": 1})


def values(pairs: list[tuple[str, str]]) -> list[float | None]:
    tried = [TrajectoryFacts(gold=gold, answer=answer).trajectory(str(at)) for at, (gold, answer) in enumerate(pairs)]
    return [scored.success for scored in asyncio.run(score_with([TERM], tried))]


@pytest.mark.usefixtures("warm_math")
def test_bare_golds_pay_their_right_answers_and_no_part_of_themselves() -> None:
    pairs = [(case["gold"], answer, value) for case in CASES for value in (1, 0) for answer in case[WAYS[value]]]
    assert len(CASES) >= 140 and len(pairs) >= 1000
    got = values([(gold, answer) for gold, answer, _ in pairs])
    wrong = [f"{pair}: got {value}" for pair, value in zip(pairs, got, strict=True) if value != pair[2]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("warm_math")
def test_a_gold_that_is_mathematics_which_nobody_reads_is_unscorable_and_pays_no_part_of_itself() -> None:
    assert values([("2+", "2"), ("x^2=", "2"), ("3 )", "3")]) == [None, None, None]


def test_a_text_is_read_in_whole_or_not_at_all() -> None:
    for text in (
        "March 5",
        "10:30",
        "4210_5",
        "east",
        "3 4",
        "2 dozen",
        "2, 3, ...",
        "5 \\pmod{7}",
        "A \\cup B",
        "2024-03-01",
        "01/03/2024",
    ):
        assert gold_latex(text) is None, text
    for text in ("#### 72", "So the answer is $72$.", "We get 71. Thus \\boxed{72}"):
        assert gold_latex(text) == "72", text
    assert as_latex("x" * 100_000) is None


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "{", "^", "1 ", "1,", "\\text{", "$", "sqrt(", "(", "answer is ", "ab", "\\"]
)
def test_reading_a_text_takes_time_in_proportion_to_it(piece: str) -> None:
    begun = time.process_time()
    for text in (piece * 900, f"{piece * 900}x", f"\\boxed{{{piece * 200}"):
        as_latex(text[:2000])
        result_of(text)
    assert time.process_time() - begun < 2
