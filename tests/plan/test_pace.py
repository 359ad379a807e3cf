"""`schedule: logical` beside a slow tool is a warning, by what was measured, and else by what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlf.plan.pace import Latency, find_pace_warnings
from rlf.spec import load_spec

SPECS = Path(__file__).parents[2] / "specs"
TOOL: dict[str, Any] = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "target": {"kind": "python", "callable": "rlf.builtin.encyclopedia.search:search"},
}
SLOW_TEST = {"tests": [{"arguments": {"query": "a"}, "expect": {"max_ms": 400}}]}


def warnings(tmp_path: Path, tool: dict[str, Any], latencies: dict[str, Latency], *overrides: str) -> list[str]:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump({"extends": str(SPECS / "search.yaml"), "tools": [TOOL | tool]}))
    return [fault.message for fault in find_pace_warnings(load_spec([spec], overrides), latencies)]


@pytest.mark.parametrize(
    ("tool", "latencies", "words"),
    [
        ({}, {"look": Latency(0.21, 120, "run-1")}, "'look' takes 0.21 s a call (mean of 120 calls in run run-1)"),
        (SLOW_TEST, {}, "'look' may take 400 ms a call (max_ms of its tests)"),
        ({"limits": {"timeout_s": 60}}, {}, "'look' may take up to 60 s a call (limits.timeout_s)"),
    ],
)
def test_a_slow_tool_under_the_logical_schedule_is_named(
    tmp_path: Path, tool: dict[str, Any], latencies: dict[str, Latency], words: str
) -> None:
    (message,) = warnings(tmp_path, tool, latencies)
    assert words in message and "Write invariant" in message
    assert warnings(tmp_path, tool, latencies, "rollout.schedule=invariant") == []
    assert warnings(tmp_path, tool, latencies, "rollout.schedule=clock") == []


def test_what_was_measured_counts_before_what_is_declared(tmp_path: Path) -> None:
    assert warnings(tmp_path, SLOW_TEST, {"look": Latency(0.001, 120, "run-1")}) == []


def test_shipped_specs_have_no_such_warning() -> None:
    for name in ("search", "sql", "code"):
        assert list(find_pace_warnings(load_spec([SPECS / f"{name}.yaml"], []), {})) == []
