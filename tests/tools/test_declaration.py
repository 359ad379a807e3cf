"""What a tool file may say, and where its faults are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rlf.tools import TOOL_KINDS, ToolDeclaration

MAPPING: dict[str, Any] = {
    "name": "search",
    "description": "Find passages.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "target": {"kind": "python", "callable": "./tools.py:search"},
}


def faults(**changes: Any) -> list[tuple[tuple[Any, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        ToolDeclaration.model_validate({**MAPPING, **changes}, context={"folder": Path("/specs")})
    return [(fault["loc"], fault["msg"]) for fault in caught.value.errors()]


@pytest.mark.parametrize(
    ("changes", "loc", "words"),
    [
        ({"name": "two words"}, ("name",), "pattern"),
        ({"description": ""}, ("description",), "at least 1 character"),
        ({"target": {"kind": "pyton"}}, ("target", "kind"), "did you mean 'python'?"),
        ({"target": {"callable": "a:b"}}, ("target", "kind"), "required"),
        ({"target": {"kind": "python"}}, ("target", "callable"), "required"),
        ({"target": {"kind": "python", "callable": "search"}}, ("target", "callable"), "package.module:name"),
        ({"target": {"kind": "python", "callable": "a:b", "url": ""}}, ("target", "url"), "not permitted"),
        ({"target": "python"}, ("target",), "mapping"),
        ({"inputSchema": {"type": "array"}}, ("inputSchema", "type"), "type: object"),
        (
            {"inputSchema": {"type": "object", "properties": {"q": {"type": "text"}}}},
            ("inputSchema", "properties", "q", "type"),
            "text",
        ),
        ({"inputSchema": {"type": "object", "$ref": "http://127.0.0.1:1/x"}}, ("inputSchema",), "$defs"),
        ({"limits": {"timeout_s": 0}}, ("limits", "timeout_s"), "greater than 0"),
        ({"limits": {"timeout_s": float("inf")}}, ("limits", "timeout_s"), "finite"),
        ({"limits": {"retries": 1}}, ("limits", "retries"), "idempotent: true"),
        ({"cache": {"scope": "for ever"}}, ("cache", "scope"), "'none', 'run' or 'forever'"),
        ({"tests": [{"arguments": {}}]}, ("tests", 0, "expect"), "required"),
        ({"tests": [{"arguments": {}, "expect": {}}]}, ("tests", 0, "expect"), "expects nothing"),
        ({"tests": [{"arguments": {}, "expect": {"matches": "("}}]}, ("tests", 0, "expect", "matches"), "regular"),
        ({"tests": [{"arguments": {}, "expect": {"error": "", "equals": ""}}]}, ("tests", 0, "expect"), "excludes the"),
        ({"input_schema": {}}, ("input_schema",), "not permitted"),
    ],
)
def test_a_fault_names_its_key_path_and_the_fix(changes: dict[str, Any], loc: tuple[Any, ...], words: str) -> None:
    (found,) = faults(**changes)
    assert found[0] == loc
    assert words in found[1]


def test_all_faults_are_reported_at_once() -> None:
    found = {loc for loc, _ in faults(name="", limits={"timeout": 1}, target={"kind": "python", "isolation": "cage"})}
    assert found == {("name",), ("limits", "timeout"), ("target", "callable"), ("target", "isolation")}


def test_a_relative_file_resolves_against_the_folder() -> None:
    declaration = ToolDeclaration.model_validate(MAPPING, context={"folder": Path("/specs/tools")})
    assert declaration.target.model_dump() == {
        "kind": "python",
        "callable": "/specs/tools/tools.py:search",
        "isolation": "auto",
        "state": "trajectory",
        "processes": None,
    }


def test_a_dumped_declaration_validates_to_itself() -> None:
    tests = [{"arguments": {"query": "x"}, "expect": {"contains": "y"}}]
    declaration = ToolDeclaration.model_validate({**MAPPING, "tests": tests, "cache": {"scope": "run"}})
    again = ToolDeclaration.model_validate(declaration.model_dump(mode="json", by_alias=True, exclude_unset=True))
    assert again == declaration
    assert ToolDeclaration.model_validate(declaration.model_dump(by_alias=True)).target == declaration.target


def test_every_kind_has_its_own_name_as_default_of_kind() -> None:
    for name in TOOL_KINDS.names():
        assert TOOL_KINDS.get(name).model_fields["kind"].default == name
