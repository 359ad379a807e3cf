"""Warnings about reward terms that misread what the data holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rlf.plan.warnings import find_reward_warnings
from rlf.spec import load_spec
from rlf.types import Message, Task

SPEC = {
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
    assert words.startswith(
        "rewards[0].normalize: got squad, which destroys the meaning of gold answers (3 in 4 tasks)"
    )
    assert "'-5' as '5', '3.0' as '30', 'C++' as 'c'. Write `normalize: text`." in words
    assert warnings(tmp_path, {"rule": "exact_match"}, "-5", "3.0", "C++", "O'Brien") == []
    (words,) = warnings(tmp_path, {"rule": "search_r1"}, "1/2")
    assert "'1/2' as '12'" in words
    (words,) = warnings(tmp_path, {"rule": "contains"}, "5!", "[0, 1)")
    assert "(2 in 2 tasks): '5!' as '5', '[0, 1)' as '0 1'. Write `rule: math`" in words


def test_a_schema_that_an_empty_value_satisfies_is_warned_of(tmp_path: Path) -> None:
    (words,) = warnings(tmp_path, {"rule": "json_schema", "schema": {"type": ["object", "null"]}})
    assert words.startswith("rewards[0].schema: got a schema that {} and null satisfies")
    required = {"type": "object", "required": ["town"]}
    assert warnings(tmp_path, {"rule": "json_schema", "schema": required}) == []


def test_golds_without_rows_are_warned_of_where_the_data_holds_them(tmp_path: Path) -> None:
    term = {"kind": "verify", "tool": "sql", "arguments": {"query": "{{ answer }}"}, "compare": "rows_set"}
    (words,) = warnings(tmp_path, term, "[]", "[[1]]", '{"rows": []}')
    assert "2 of 3 tasks expect no rows" in words
    assert warnings(tmp_path, {**term, "compare": "equal"}, "[]") == []
