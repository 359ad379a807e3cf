"""One pass tells every fault that does not hang on another: a wrong key hides neither data nor functions nor tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlf.core.errors import SpecError
from rlf.runs.plans import check_spec

SPEC = """name: broken
model: {path: builtin:tiny}
data:
  train: {path: nowhere.jsonl}
tools:
  - {name: a, description: x, inputSchema: {type: object}, target: {kind: python, callable: "no:f"}, limits: {time: 3}}
  - {name: b, description: x, inputSchema: {type: object}, target: {kind: python, callable: "no:g"}}
rewards:
  - {kind: rule, name: e, rule: exact_match, weight: 0.5}
  - {kind: verify, name: v, tool: a, arguments: {}, expected: {column: answer}}
train: {algorithm: grpo, steps: 3}
rollout: {num_generations: 1}
"""


def list_faults(folder: Path, text: str) -> list[str]:
    (folder / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        check_spec([folder / "spec.yaml"], [])
    return [fault.path for fault in caught.value.faults]


def test_a_broken_tool_hides_nothing_else_and_makes_no_fault_of_what_names_it(tmp_path):
    assert list_faults(tmp_path, SPEC) == [
        "data.train.path",
        "tools[0].limits.time",
        "tools[1].target",
        "rollout.num_generations",
    ]


def test_a_wrong_value_hides_neither_data_nor_functions(tmp_path):
    assert list_faults(tmp_path, SPEC.replace("steps: 3", "steps: many")) == [
        "data.train.path",
        "tools[0].limits.time",
        "tools[1].target",
        "train.steps",
        "rollout.num_generations",
    ]


def test_no_fault_is_made_of_a_value_that_stands_in_for_a_wrong_one(tmp_path):
    wrong = SPEC.replace("limits: {time: 3}", "limits: {retries: 0}").replace(
        "num_generations: 1", "num_generations: few"
    )
    assert list_faults(tmp_path, wrong) == [
        "data.train.path",
        "tools[0].target",
        "tools[1].target",
        "rollout.num_generations",
    ]


def test_a_spec_without_what_every_spec_has_is_reported_as_far_as_it_goes(tmp_path):
    assert list_faults(tmp_path, SPEC.replace("model: {path: builtin:tiny}\n", "")) == [
        "model",
        "data.train.path",
        "tools[0].limits.time",
        "tools[1].target",
        "rollout.num_generations",
    ]
