"""Declarations over `toolbox.py`, and calls run through an executor."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlf.core.callables import load_callable
from rlf.tools import Executor, ToolDeclaration
from rlf.types import ToolCall, ToolResult

FOLDER = Path(__file__).parent
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}

Declare = Callable[..., ToolDeclaration]
CallOnce = Callable[..., ToolResult]


@pytest.fixture(autouse=True)
def _own_lists(own_lists: None) -> None:
    """As of `tests/conftest.py`: most of what is here declares a tool of a server somewhere."""


@pytest.fixture
def toolbox() -> Iterator[ModuleType]:
    """The module of test tools; its hung threads are let go at the end."""
    module = sys.modules[load_callable(f"{FOLDER / 'toolbox.py'}:echo").__module__]
    module.CALLS.clear()
    module.RELEASE.clear()
    yield module
    module.RELEASE.set()


@pytest.fixture
def declare(toolbox: ModuleType) -> Declare:
    """Declares a function of the toolbox; keys go to the declaration, `isolation` and `target` to its target."""

    def build(function: str, schema: dict[str, Any] = QUERY, isolation: str = "auto", **keys: Any) -> ToolDeclaration:
        own = keys.pop("target", {})
        target = {"kind": "python", "callable": f"toolbox.py:{function}", "isolation": isolation, **own}
        mapping = {"name": function, "description": "A tool.", "inputSchema": schema, "target": target, **keys}
        return ToolDeclaration.model_validate(mapping, context={"folder": FOLDER})

    return build


@pytest.fixture
def call_once() -> CallOnce:
    """Opens one tool, makes one call, closes it."""

    def call(declaration: ToolDeclaration, **arguments: Any) -> ToolResult:
        async def main() -> ToolResult:
            async with Executor([declaration]) as executor:
                return await executor.invoke(ToolCall(declaration.name, arguments), trajectory_id="t")

        return asyncio.run(main())

    return call
