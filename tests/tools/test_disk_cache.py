"""`cache: {scope: forever}`: results that later runs and other processes have too."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlf.core import process as machine
from rlf.tools import Executor
from rlf.tools.execution.cache import CacheKey
from rlf.tools.execution.tape import DiskCache
from rlf.tools.mcp import listing
from rlf.tools.mcp.server import McpServer
from rlf.types import Image, Outcome, ToolCall, ToolOutput, ToolResult

from ..processes import Process

FOREVER = {"scope": "forever"}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rlf" / "tool_results.db"


def run_once(declaration: Any, *queries: str) -> list[ToolResult]:
    async def story() -> list[ToolResult]:
        async with Executor([declaration]) as executor:
            calls = [ToolCall(declaration.name, {"query": query}) for query in queries]
            return [await executor.invoke(call, trajectory_id="t") for call in calls]

    return asyncio.run(story())


def test_the_file_lies_where_the_platform_keeps_caches(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.cache_folder() == cache_folder.parent
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert machine.cache_folder() == Path.home() / ".cache/rlf"


def test_a_later_run_is_answered_from_disk(declare: Any, toolbox: ModuleType) -> None:
    first = run_once(declare("record", cache=FOREVER), "a", "a")
    later = run_once(declare("record", cache=FOREVER), "a", "b")
    assert [result.cached for result in first + later] == [False, True, True, False]
    assert (later[0].text, later[0].attempts, later[0].run_s) == (first[0].text, (), 0.0)
    assert toolbox.CALLS == ["a", "b"]


def test_an_error_is_never_kept(declare: Any, toolbox: ModuleType) -> None:
    outcomes = [run_once(declare("flaky", cache=FOREVER), "a")[0].outcome for _ in range(4)]
    assert outcomes == [Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.OK, Outcome.OK]
    assert len(toolbox.CALLS) == 3


def test_another_output_budget_makes_its_own_cut(declare: Any) -> None:
    text = "x" * 900
    short = run_once(declare("echo", cache=FOREVER, limits={"max_output_chars": 100}), text)[0]
    long = run_once(declare("echo", cache=FOREVER, limits={"max_output_chars": 1000}), text)[0]
    assert (short.truncated, len(short.text), short.size_bytes) == (True, 100, 900)
    assert (long.cached, long.truncated, long.text, long.original) == (True, False, text, None)


def test_a_changed_source_makes_another_key(tmp_path: Path) -> None:
    from rlf.tools import ToolDeclaration

    def declaration(folder: str, answer: str) -> ToolDeclaration:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool.py").write_text(f"async def ask(query):\n    return {answer!r}\n")
        target = {"kind": "python", "callable": f"{tmp_path / folder}/tool.py:ask"}
        schema = {"type": "object", "properties": {"query": {}}, "required": ["query"]}
        keys = {"name": "ask", "description": "d", "inputSchema": schema, "target": target, "cache": FOREVER}
        return ToolDeclaration.model_validate(keys)

    texts = [run_once(declaration(folder, answer), "q")[0].text for folder, answer in [("a", "1"), ("b", "2")]]
    assert texts == ["1", "2"]


def test_pictures_and_structure_come_back(cache_folder: Path) -> None:
    async def story() -> ToolResult | None:
        cache, key = DiskCache(cache_folder), CacheKey("t", "s", "{}")
        result = ToolResult(Outcome.OK, "text", images=(Image(b"\x00\xff", "image/png"),), structured={"a": [1]})
        await cache.put(key, result)
        try:
            assert await cache.get(CacheKey("t", "other", "{}")) is None
            found = await cache.get(key)
            assert found == result
            return found
        finally:
            await cache.close()

    assert asyncio.run(story()) is not None


def test_a_file_that_is_no_database_costs_hits_and_no_call(
    declare: Any, cache_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache_folder.parent.mkdir(parents=True)
    cache_folder.write_text("no database at all, and long enough to be looked at" * 100)
    with caplog.at_level(logging.WARNING):
        results = run_once(declare("echo", cache=FOREVER), "a", "b")
    assert [result.text for result in results] == ["a", "b"]
    assert sum("cannot be used as a cache" in record.message for record in caplog.records) == 1


def test_closing_waits_for_a_locked_file_off_the_loop_and_later_calls_are_not_kept(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlf.tools.execution.tape._BUSY_S", 0.5)
    key, result = CacheKey("a", "b", "{}"), ToolResult(Outcome.OK, "x")

    async def story() -> int:
        cache, beats = DiskCache(), 0
        await cache.put(key, result)
        with closing(sqlite3.connect(cache_folder, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            writing = asyncio.create_task(cache.put(key._replace(arguments="[]"), result))
            await asyncio.sleep(0.05)
            writing.cancel()
            ending = asyncio.create_task(cache.close())
            while not ending.done():
                await asyncio.sleep(0.01)
                beats += 1
        await ending
        assert await cache.get(key) is None
        return beats

    assert asyncio.run(story()) > 5  # of 45


def _leave_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)


def test_a_user_without_a_home_has_no_kept_list_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_home(monkeypatch)
    server = McpServer(command="nothing")
    listing.forget(server)
    assert listing.known_listing(server) is None


def test_a_user_without_a_home_has_no_cache_and_calls_go_on(declare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_home(monkeypatch)
    assert [result.text for result in run_once(declare("echo", cache=FOREVER), "a", "b")] == ["a", "b"]


def _fill(path: Path, number: int) -> None:
    async def story() -> None:
        cache = DiskCache(path)
        for row in range(50):
            await cache.put(CacheKey("t", str(number), str(row)), ToolResult(Outcome.OK, f"{number} {row}"))
        await cache.close()

    asyncio.run(story())


def test_several_processes_write_at_once(cache_folder: Path) -> None:
    with Process(_fill, cache_folder, 0) as one, Process(_fill, cache_folder, 1) as other:
        assert [one.wait(120), other.wait(120)] == [0, 0]

    async def story() -> list[str]:
        cache = DiskCache(cache_folder)
        found = [await cache.get(CacheKey("t", str(n), str(row))) for n in range(2) for row in range(50)]
        await cache.close()
        return [result.text for result in found if result is not None]

    assert sorted(asyncio.run(story())) == sorted(f"{n} {row}" for n in range(2) for row in range(50))


def test_arguments_are_not_in_the_file(declare: Any, cache_folder: Path) -> None:
    run_once(declare("wait_200_ms", cache=FOREVER), "an argument of its own kind")
    kept = b"".join(file.read_bytes() for file in cache_folder.parent.iterdir())
    assert b"done" in kept
    assert b"of its own kind" not in kept


def test_a_tool_output_is_taken_as_it_is() -> None:
    from rlf.tools.outputs import to_output

    given = ToolOutput("a\0b", structured=[1])
    assert to_output(given) == ToolOutput("a\ufffdb", structured=[1])
