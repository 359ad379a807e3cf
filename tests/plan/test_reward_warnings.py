"""Warnings about reward terms that misread what the data holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rlf.plan.warnings import Subject, find_reward_warnings, find_warnings
from rlf.spec import load_spec
from rlf.types import Message, Task

SPEC: dict[str, Any] = {
    "name": "s",
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"path": "builtin:encyclopedia/train", "prompt": "question", "answer": "answer"}},
    "tools": [
        {
            "name": "sql",
            "description": "Runs a query.",
            "hidden": True,
            "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
            "target": {"kind": "sql", "url": "builtin:shop/database"},
        }
    ],
    "rollout": {"num_generations": 4, "max_turns": 1, "max_total_tokens": 320},
    "train": {"algorithm": "grpo", "learning_rate": 3e-4, "steps": 1, "prompts_per_step": 2},
}


def warnings(tmp_path: Path, term: dict[str, Any], *golds: Any) -> list[str]:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "rewards": [{"kind": "rule", "name": "t", **term}]}))
    tasks = [Task(f"t{at}", (Message("user", "?"),), gold) for at, gold in enumerate(golds)]
    return [f"{fault.path}: {fault.message}" for fault in find_reward_warnings(load_spec([path]), [tasks])]


def test_golds_that_the_normalisation_destroys_are_warned_of_with_what_is_left(tmp_path: Path) -> None:
    squad = {"rule": "exact_match", "normalize": "squad"}
    (words,) = warnings(tmp_path, squad, "-5", ["3.0", "Paris"], "O'Brien", "C++")
    assert words.startswith("rewards[0].normalize: got exact_match, which misreads 3 gold answers of 4 tasks: ")
    assert "'-5' (row 't0') loses its meaning, as '5'; '3.0' (row 't1') loses its meaning, as '30'" in words
    assert words.endswith("'C++' (row 't3') loses its meaning, as 'c'. Write `normalize: text`.")
    assert warnings(tmp_path, {"rule": "exact_match"}, "-5", "3.0", "C++", "O'Brien") == []
    (words,) = warnings(tmp_path, {"rule": "search_r1"}, "1/2")
    assert "'1/2' (row 't0') loses its meaning, as '12'" in words
    (words,) = warnings(tmp_path, {"rule": "contains"}, "5!", "[0, 1)")
    assert "'5!' (row 't0') loses its meaning, as '5'; '[0, 1)' (row 't1') loses its meaning, as '0 1'." in words
    assert "Write `rule: math`" in words


def test_a_schema_that_an_empty_value_satisfies_is_warned_of(tmp_path: Path) -> None:
    (words,) = warnings(tmp_path, {"rule": "json_schema", "schema": {"type": ["object", "null"]}})
    assert words.startswith("rewards[0].schema: got a schema that {} and null satisfies")
    required = {"type": "object", "required": ["town"]}
    assert warnings(tmp_path, {"rule": "json_schema", "schema": required}) == []


def test_golds_that_math_compares_as_text_are_warned_of(tmp_path: Path) -> None:
    (words,) = warnings(tmp_path, {"rule": "math"}, "2^{10}", "3, 5, 7", "March 5", ["10:30", "1/2"])
    assert words.startswith(
        "rewards[0].rule: got math, which misreads 2 gold answers of 4 tasks: 'March 5' (row 't2') "
    )
    assert "'10:30' (row 't3') is no mathematics in whole, and is compared as text. Write them as LaTeX" in words
    assert warnings(tmp_path, {"rule": "math"}, "2^{10}", "3!", r"5 \text{ cm}", "x=5", "C", "[0,1)") == []


def test_golds_that_a_rule_cannot_read_as_what_it_compares_are_warned_of_with_their_rows(tmp_path: Path) -> None:
    (words,) = warnings(
        tmp_path, {"rule": "numeric"}, "12", "12 apples", "Paris", "5 or 6", "Room 3, floor 4", "twelve"
    )
    assert words.startswith(
        "rewards[0].rule: got numeric, which misreads 3 gold answers of 6 tasks: 'Paris' (row 't2') "
    )
    assert "'5 or 6' (row 't3') is no number, and is unscorable" in words
    assert "'Room 3, floor 4' (row 't4') is not one number; read as 4. Write each as one number" in words
    (words,) = warnings(tmp_path, {"rule": "choice"}, "B", "(C)", 2, "Paris")
    assert "'2' (row 't2') names none of ABCD, and is unscorable; 'Paris' (row 't3')" in words
    (words,) = warnings(tmp_path, {"rule": "exact_match"}, "2024-03-01", "01/03/2024", "25/12/2024")
    assert "1 gold answer of 3 tasks: '01/03/2024' (row 't1') may be two dates, and is compared as text" in words
    (words,) = warnings(tmp_path, {"rule": "collection"}, ["Ann", "Bob"], [], "a; b")
    assert "'[]' (row 't1') lists nothing, and is unscorable" in words
    assert warnings(tmp_path, {"rule": "numeric"}, "$1,234.50", "20 °C", "3/4", "a = 5", "#### 7") == []


def about_data(tmp_path: Path, rows: list[tuple[str, str]], **train: float) -> list[str]:
    path = tmp_path / "s.yaml"
    terms = [{"kind": "rule", "name": "t", "rule": "exact_match"}]
    path.write_text(yaml.safe_dump({**SPEC, "rewards": terms, "train": {**SPEC["train"], **train}}))
    tasks = [Task(f"t{at}", (Message("user", question),), gold) for at, (question, gold) in enumerate(rows)]
    found = find_warnings(Subject(load_spec([path]), tasks))
    return [f"{fault.path}: {fault.message}" for fault in found if fault.path.startswith(("data", "train"))]


def test_golds_that_are_all_equal_are_warned_of(tmp_path: Path) -> None:
    (words,) = about_data(tmp_path, [(f"Who wrote book {at}?", ("Ann", "ann.")[at % 2]) for at in range(8)])
    assert words.startswith("data.train.path: all 8 rows have the gold answer 'Ann'")
    assert about_data(tmp_path, [(f"Who wrote book {at}?", "Ann" if at else "Bo") for at in range(8)]) == []


def test_golds_that_stand_in_every_question_are_warned_of_but_for_choices(tmp_path: Path) -> None:
    towns = ["Rome", "Oslo", "Bern", "Lima", "Kyiv", "Riga", "Bonn", "Nice"]
    (words,) = about_data(tmp_path, [(f"Which town? It is {town}.", town) for town in towns])
    assert words.startswith("data.train.path: the gold answer stands in each of the 8 questions (e.g. 'Rome' in row")
    assert about_data(tmp_path, [(f"Is book {at} good, yes or no?", ("yes", "no")[at % 2]) for at in range(8)]) == []
    asked = [(f"Which town {at}? It is {town if at else 'far'}.", town) for at, town in enumerate(towns)]
    assert about_data(tmp_path, asked) == []


def test_a_learning_rate_without_the_minus_of_its_exponent_is_warned_of_however_short_the_run(tmp_path: Path) -> None:
    rows = [(f"What is {at}?", str(at + 50)) for at in range(8)]
    for rate in (1e4, 3e4, 1.0):
        (words,) = about_data(tmp_path, rows, learning_rate=rate)
        assert words.startswith(f"train.learning_rate: got {rate:g} (is the minus of its exponent missing?)")
    assert about_data(tmp_path, rows, learning_rate=3e-4) == []


def test_golds_without_rows_are_warned_of_where_the_data_holds_them(tmp_path: Path) -> None:
    term = {"kind": "verify", "tool": "sql", "arguments": {"query": "{{ answer }}"}, "compare": "rows_set"}
    (words,) = warnings(tmp_path, term, "[]", "[[1]]", '{"rows": []}')
    assert "2 of 3 tasks expect no rows" in words
    assert warnings(tmp_path, {**term, "compare": "equal"}, "[]") == []
