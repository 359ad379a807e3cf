"""Lists of MCP servers: what was listed before spares a start, and nothing is held against a server by it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from rlf.core.foreign import NotRun, foreign_code
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.mcp import listing
from rlf.tools.mcp.server import McpServer
from tests.endpoints.servers import serving
from tests.tools.test_mcp import SAY, SERVERS, declare
from tests.tools.test_mcp_http import Forger


@pytest.fixture
def module(tmp_path: Path) -> dict[str, Any]:
    """A server that is started as a module: an edit of it does not show in what is kept of it."""
    (tmp_path / "served.py").write_text((SERVERS / "rough.py").read_text(encoding="utf-8"), encoding="utf-8")
    log = {"ROUGH_LOG": str(tmp_path / "log.txt")}
    return {"command": sys.executable, "args": ["-m", "served"], "cwd": str(tmp_path), "env": log}


def rename(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The module's tool has another name from now on, as another process finds it."""
    file = folder / "served.py"
    file.write_text(file.read_text(encoding="utf-8").replace('"say"', f'"{name}"'), encoding="utf-8")
    monkeypatch.setattr(listing, "_READ", {})


def complaints(tool: ToolDeclaration) -> list[str]:
    return tool.target.static_complaints(tool.input_schema) + tool.target.complaints(tool.input_schema)


def num_starts(folder: Path) -> int:
    return len((folder / "log.txt").read_text(encoding="utf-8").splitlines())


def test_a_list_that_is_kept_is_read_again_before_anything_is_said_by_it(
    module: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complaints(declare(module)) == []
    rename(tmp_path, monkeypatch, "shout")
    assert complaints(declare(module, "shout")) == []
    assert complaints(declare(module)) == ["the server has no tool 'say' (known: shout)"]
    assert num_starts(tmp_path) == 2  # what was read just now is said at once


def test_a_list_that_is_kept_starts_nothing_where_all_fits(
    module: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert complaints(declare(module)) == []
        monkeypatch.setattr(listing, "_READ", {})
    assert num_starts(tmp_path) == 1


def test_nothing_is_said_by_a_kept_list_where_the_server_may_not_be_started(
    module: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complaints(declare(module)) == []
    rename(tmp_path, monkeypatch, "shout")
    with foreign_code(None), pytest.raises(NotRun):
        complaints(declare(module, "shout"))


def test_the_list_of_an_address_is_that_of_the_server_that_answers_there_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        forger = Forger()
        async with serving(_=forger.handle) as url:
            server = {"url": f"{url}/mcp"}
            assert await asyncio.to_thread(complaints, declare(server)) == []
            forger.listed = {"name": "shout"}
            monkeypatch.setattr(listing, "_READ", {})  # as another process finds it
            assert listing.known_listing(McpServer.model_validate(server)) is None
            assert await asyncio.to_thread(complaints, declare(server, "shout", SAY)) == []
            told = await asyncio.to_thread(complaints, declare(server))
            assert told == ["the server has no tool 'say' (known: shout)"]

    asyncio.run(main())


def test_the_list_of_an_address_is_read_again_when_it_is_no_longer_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        forger = Forger()
        async with serving(_=forger.handle) as url:
            server = McpServer(url=f"{url}/mcp")
            for _ in range(2):
                await listing.list_ahead(server)
            assert forger.num_opened == 1
            monkeypatch.setattr(listing, "_FRESH_S", 0.0)
            await listing.list_ahead(server)
            assert forger.num_opened == 2

    asyncio.run(main())
