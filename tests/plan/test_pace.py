"""`schedule: logical` beside a slow tool is a warning, by what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import load_spec

SPECS = Path(__file__).parents[2] / "specs"
TOOL: dict[str, Any] = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "target": {"kind": "python", "callable": "rlf.builtin.encyclopedia.search:search"},
}
SLOW_TEST = {"tests": [{"arguments": {"query": "a"}, "expect": {"max_ms": 400}}]}


def warnings(tmp_path: Path, tool: dict[str, Any], *overrides: str) -> list[str]:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump({"extends": str(SPECS / "search.yaml"), "tools": [TOOL | tool]}))
    found = find_warnings(Subject(load_spec([spec], overrides)))
    return [fault.message for fault in found if fault.path == "rollout.schedule"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (SLOW_TEST, "'look' may take 400 ms a call (max_ms of its tests)"),
        ({"limits": {"timeout_s": 60}}, "'look' may take up to 60 s a call (limits.timeout_s)"),
    ],
)
def test_a_slow_tool_under_the_logical_schedule_is_named(tmp_path: Path, tool: dict[str, Any], words: str) -> None:
    (message,) = warnings(tmp_path, tool)
    assert words in message and "Write invariant" in message
    assert warnings(tmp_path, tool, "rollout.schedule=invariant") == []
    assert warnings(tmp_path, tool, "rollout.schedule=clock") == []


def test_a_tool_that_declares_nothing_slow_is_not_warned_of(tmp_path: Path) -> None:
    assert warnings(tmp_path, {}) == []
