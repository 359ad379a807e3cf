"""Text that is not valid Unicode, or has no bounds, in whatever a tool says, wherever its code runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlf.core.redact import Redactor
from rlf.core.text import MAX_ERROR_CHARS
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.results import outcome_of_fault
from rlf.types import Outcome, ToolCall, ToolResult
from rlf.types.written import write

from ..hostile import FAULTS, TEXTS

WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
HOSTILE = Path(__file__).parents[1] / "hostile.py"


def declare(name: str, isolation: str = "auto", **keys: Any) -> ToolDeclaration:
    target = {"kind": "python", "callable": f"{HOSTILE}:{name}", "isolation": isolation}
    return ToolDeclaration.model_validate(
        {"name": name, "description": "A tool.", "inputSchema": WHAT, "target": target} | keys,
        context={"folder": HOSTILE.parent},
    )


def call_all(declaration: ToolDeclaration, names: list[str]) -> dict[str, ToolResult]:
    async def go() -> dict[str, ToolResult]:
        async with Executor([declaration]) as executor:
            made = [
                await executor.invoke(ToolCall(declaration.name, {"what": name}), trajectory_id="t") for name in names
            ]
        return dict(zip(names, made, strict=True))

    return asyncio.run(go())


def assert_storable(result: ToolResult) -> None:
    """A result can be written to a file and a database, and an error has its bounds."""
    for text in (result.text, *(attempt.error or "" for attempt in result.attempts)):
        text.encode()
        assert "\0" not in text
        if result.outcome is not Outcome.OK:
            assert len(text) <= MAX_ERROR_CHARS + len("error: ")
    Redactor({}).json(write(result)).encode()


@pytest.mark.parametrize(
    ("function", "place"), [("fail_async", "inline"), *(("fail", place) for place in ("thread", "process"))]
)
def test_whatever_a_function_raises_is_an_error_that_can_be_read_and_stored(function: str, place: str) -> None:
    results = call_all(declare(function, place, limits={"breaker": None}), [*FAULTS])
    for name, result in results.items():
        assert result.outcome is Outcome.TOOL_ERROR, name
        assert_storable(result)
    assert results["name"].text == "error: ValueError: no file 'caf\ufffd.txt'"


@pytest.mark.parametrize("place", ["thread", "process"])
@pytest.mark.parametrize("function", ["give", "say"])
def test_whatever_a_function_returns_is_a_result_that_can_be_read_and_stored(function: str, place: str) -> None:
    for name, result in call_all(declare(function, place), [*TEXTS]).items():
        assert result.outcome is Outcome.OK, name
        assert_storable(result)


def test_a_class_that_cannot_be_made_is_a_failure_that_can_be_stored() -> None:
    result = call_all(declare("Kept"), ["x"])["x"]
    assert result.outcome is Outcome.INFRA
    assert "caf\ufffd.txt" in result.text
    assert_storable(result)


def test_a_group_is_the_failure_that_its_exceptions_are() -> None:
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [ConnectionRefusedError()])])
    assert outcome_of_fault(group) is Outcome.UNREACHABLE
    assert outcome_of_fault(ExceptionGroup("one", [ValueError("a")])) is Outcome.TOOL_ERROR


def test_a_secret_at_the_place_where_an_error_is_cut_is_struck_whole(monkeypatch: Any) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "s3cret-canary-s3cret-canary")

    numbers = {"type": "object", "additionalProperties": {"type": "number"}}

    async def go(declaration: ToolDeclaration, before: int) -> ToolResult:
        async with Executor([declaration]) as executor:
            text = "x" * (MAX_ERROR_CHARS - before) + "s3cret-canary-s3cret-canary"
            return await executor.invoke(ToolCall(declaration.name, {"what": text}), trajectory_id="t")

    for declaration in (declare("repeat"), declare("echo", outputSchema=numbers)):
        for before in range(10, 100, 9):
            result = asyncio.run(go(declaration, before))
            assert result.outcome in (Outcome.TOOL_ERROR, Outcome.OUTPUT_REJECTED)
            assert "s3cret" not in result.text
            assert all("s3cret" not in (attempt.error or "") for attempt in result.attempts)


@pytest.mark.parametrize("name", ["half", "name", "nul", "long"])
def test_the_name_and_arguments_of_a_refused_call_can_be_stored(name: str) -> None:
    async def go() -> list[ToolResult]:
        async with Executor([declare("say")]) as executor:
            calls = [
                ToolCall(TEXTS[name], {}),
                ToolCall("say", {TEXTS[name]: 1}),
                ToolCall("say", {"what": [TEXTS[name]]}),
            ]
            return [await executor.invoke(call, trajectory_id="t") for call in calls]

    for result in asyncio.run(go()):
        assert result.outcome in (Outcome.UNKNOWN_TOOL, Outcome.INVALID_ARGUMENTS)
        assert_storable(result)


@pytest.mark.parametrize("place", ["thread", "process"])
def test_names_of_what_a_tool_used_up_are_valid_and_its_numbers_finite(place: str) -> None:
    results = call_all(declare("use", place, limits={"breaker": None}), ["half", "nan", "text", "list", "huge"])
    assert dict(results["half"].usage) == {"half \ufffd": 1.0}
    assert results["half"].isolation == place
    for name, result in results.items():
        assert result.outcome is (Outcome.OK if name == "half" else Outcome.OUTPUT_REJECTED), name
        assert_storable(result)
