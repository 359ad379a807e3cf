"""The shipped tool files: each passes its own tests, and the controls differ from the real search in target alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from rlf.apps.tools.examples import run_examples, shortfalls
from rlf.tools import Executor, Expectation, ToolDeclaration
from rlf.types import Outcome, ToolResult

FOLDER = Path(__file__).parents[2] / "tool_specs"
FILES = sorted([*FOLDER.glob("*.yaml"), *(FOLDER.parent / "benchmarks" / "tool_specs").glob("*.yaml")])
ALONE = [path for path in FILES if yaml.safe_load(path.read_text())["target"]["kind"] == "python"]
"""Tools that need no server."""


def load(path: Path) -> ToolDeclaration:
    return ToolDeclaration.model_validate(yaml.safe_load(path.read_text()), context={"folder": path.parent})


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_a_shipped_tool_passes_its_own_tests(path: Path) -> None:
    declaration = load(path)

    async def main() -> list[tuple[str, ...]]:
        async with Executor([declaration]) as executor:
            return [run.shortfalls for run in await run_examples(executor, declaration)]

    found = asyncio.run(main())
    assert found
    assert set(found) == {()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_says_what_it_is(path: Path) -> None:
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("name", ["search_disabled", "search_shuffled"])
def test_a_control_looks_to_the_model_like_the_real_search(name: str) -> None:
    real, control = load(FOLDER / "search.yaml"), load(FOLDER / f"{name}.yaml")
    assert control.description_for_model == real.description_for_model
    assert (control.limits, control.cache) == (real.limits, real.cache)


@pytest.mark.parametrize(
    ("expect", "outcome", "text", "holds"),
    [
        ({"contains": "b"}, Outcome.OK, "abc", True),
        ({"contains": "d"}, Outcome.OK, "abc", False),
        ({"equals": "abc"}, Outcome.OK, "abc", True),
        ({"equals": "ab"}, Outcome.OK, "abc", False),
        ({"matches": "^a.c$"}, Outcome.OK, "abc", True),
        ({"contains": "a", "matches": "^b"}, Outcome.OK, "abc", False),
        ({"contains": "a"}, Outcome.TIMEOUT, "error: abc", False),
        ({"error": "zero"}, Outcome.TOOL_ERROR, "error: division by zero", True),
        ({"error": "zero"}, Outcome.OK, "zero", False),
        ({"error": "one"}, Outcome.TOOL_ERROR, "error: zero", False),
    ],
)
def test_an_expectation_holds_or_says_why_not(expect: dict[str, str], outcome: Outcome, text: str, holds: bool) -> None:
    said = shortfalls(Expectation(**expect), ToolResult(outcome, text))
    assert (said == []) == holds
    assert all(text in line for line in said)
