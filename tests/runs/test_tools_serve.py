"""`rlf tools serve`: tools for MCP clients, tried through rlf's own kind, and a corpus for Search-R1's clients."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlf.apps.offer.search import MAX_SCORED, open_corpus
from rlf.core.servers import stopping
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.mcp.listing import listing_of
from rlf.tools.mcp.server import McpServer
from rlf.types import Outcome, ToolCall

from ..processes import Process, call_rlf

pytestmark = pytest.mark.usefixtures("own_lists")
SPECS = Path(__file__).parents[2] / "tool_specs"
PASSAGES = [
    {"id": "p1", "contents": "The Amazon is a river in South America."},
    {"id": "p2", "contents": "The Nile is a river in Africa, the longest of all rivers."},
    {"id": "p3", "contents": "Rome lies on the Tiber."},
]


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The command in a process; the address that it tells. At the end Ctrl-C, which must end it with 130."""
    with Process(call_rlf, "tools", "serve", *arguments) as process:
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"http://\S+", line):
                yield found[0]
                break
        else:
            raise AssertionError(said)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def try_to_serve(*arguments: str) -> tuple[int, str]:
    """The exit code and the words of a command that does not get to serving."""
    with Process(call_rlf, "tools", "serve", *arguments) as process:
        _, errors = process.communicate(60)
        return process.wait(), errors


def declared(server: dict[str, Any]) -> list[ToolDeclaration]:
    """What a spec makes of a server's list."""
    return [
        ToolDeclaration.model_validate(
            {
                "name": entry.name,
                "description": entry.description,
                "inputSchema": dict(entry.input_schema),
                "target": {"kind": "mcp", "server": server, "tool": entry.name, "digest": entry.digest},
            }
        )
        for entry in listing_of(McpServer.model_validate(server)).entries
    ]


async def calls(tools: list[ToolDeclaration], *wanted: tuple[str, dict[str, Any]]) -> list[Any]:
    async with Executor(tools) as executor:
        return [await executor.invoke(ToolCall(name, args), trajectory_id="t") for name, args in wanted]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_served_tools_answer_rlfs_own_client_as_they_answer_here(transport: str, tmp_path: Path) -> None:
    files = [str(SPECS / "calculator.yaml"), str(tool_file(tmp_path))]
    arguments = [*files, "--mcp", transport]

    def check(server: dict[str, Any]) -> None:
        tools = declared(server)
        assert [tool.name for tool in tools] == ["calculator", "slow"]
        right, wrong, late = asyncio.run(
            calls(
                tools,
                ("calculator", {"expression": "6 * 7"}),
                ("calculator", {"expression": "1 / 0"}),
                ("slow", {"seconds": 20}),
            )
        )
        assert (right.outcome, right.text) == (Outcome.OK, "42")
        assert wrong.outcome is Outcome.TOOL_ERROR
        assert wrong.text.startswith("error: ")
        assert wrong.text.count("error: ") == 1
        assert "division by zero" in wrong.text
        assert (late.outcome, late.text) == (Outcome.TIMEOUT, "error: slow gave no result within 0.3 s")

    if transport == "stdio":
        check({"command": sys.executable, "args": ["-m", "rlf", "tools", "serve", *arguments]})
        return
    with serving(*arguments, "--port", "0") as url:
        check({"url": url})


def tool_file(folder: Path) -> Path:
    """A tool that keeps to its time limit."""
    (folder / "slow.py").write_text(
        "import asyncio\n\n\nasync def slow(seconds: float) -> str:\n    await asyncio.sleep(seconds)\n    return 'x'\n"
    )
    schema = {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]}
    about = {"name": "slow", "description": "Late.", "inputSchema": schema, "limits": {"timeout_s": 0.3}}
    file = folder / "slow.yaml"
    file.write_text(json.dumps({**about, "target": {"kind": "python", "callable": "slow.py:slow"}}))
    return file


def test_the_state_of_a_served_tool_is_kept_by_trajectory_and_dropped_at_its_end(tmp_path: Path) -> None:
    from rlf.apps.offer.tools import mcp_server

    ended: list[str] = []

    class Told(Executor):
        async def end_trajectory(self, trajectory_id: str) -> None:
            ended.append(trajectory_id)

    async def main() -> None:
        from mcp.client import Client

        async with Told([]) as executor, Client(mcp_server(executor), mode="legacy") as client:
            from mcp_types import Notification

            from rlf.tools.mcp.server import TRAJECTORY_ENDED

            told = Notification[dict[str, str], str](method=TRAJECTORY_ENDED, params={"trajectory": "t7"})
            await client.session.send_notification(told)  # type: ignore[arg-type]
            async with asyncio.timeout(5):
                while not ended:  # noqa: ASYNC110 - the server sets no event
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert ended == ["t7"]


def test_a_port_in_use_is_reported_with_the_fix() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, errors = try_to_serve(str(SPECS / "calculator.yaml"), "--mcp", "http", "--port", port)
    assert code == 1
    assert f"port {port} of 127.0.0.1 is in use. Stop the program that listens there, or give" in errors


def test_a_corpus_answers_as_search_r1s_retriever_does(tmp_path: Path) -> None:
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    with serving("--search", str(corpus), "--port", "0") as url:
        queries = ["longest river of Africa", "what lies on the TIBER?", "zzz", ""]
        scored = ask(url, {"queries": queries, "topk": 2, "return_scores": True})["result"]
        found = [[passage["document"]["id"] for passage in of_one] for of_one in scored]
        assert (found[0], found[1][0], found[2:]) == (["p2", "p1"], "p3", [[], []])
        assert scored[0][0]["document"] == PASSAGES[1]
        assert scored[0][0]["score"] > scored[0][1]["score"] > 0
        assert ask(url, {"queries": ["Tiber"]}) == {"result": [[PASSAGES[2]]]}
        with urllib.request.urlopen(url.replace("retrieve", "health"), timeout=10) as health:
            assert json.load(health) == {"status": "ok", "passages": 3}
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(url, {"queries": "Tiber"})
        assert caught.value.code == 422
        assert "queries" in caught.value.read().decode()
        caught.value.close()


def ask(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_an_index_is_built_once_and_again_after_the_corpus_changed(tmp_path: Path) -> None:
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text(json.dumps(PASSAGES[0]) + "\n")
    assert [found.id for found in open_corpus(corpus).search("amazon", 3)] == ["p1"]
    index = tmp_path / "wiki.jsonl.bm25"
    built = index.stat().st_mtime_ns
    assert open_corpus(corpus).num_passages == 1
    assert index.stat().st_mtime_ns == built
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    assert open_corpus(corpus).num_passages == 3
    index.write_bytes(b"half an index")
    assert open_corpus(corpus).num_passages == 3
    assert list(tmp_path.glob("*.part")) == []


def test_scores_are_bm25(tmp_path: Path) -> None:
    """N = 3, df(tiber) = 1, tf = 1; lengths 8, 12 and 5 words, mean 25/3.

    idf = ln((3 - 1 + 0.5) / (1 + 0.5)) = 0.5108; tf part = 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 5 / (25/3))) = 1.1957.
    """
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    (found,) = open_corpus(corpus).search("Tiber", 3)
    assert found.score == pytest.approx(0.5108 * 1.1957, rel=1e-3)


def test_a_query_leaves_out_words_that_too_many_passages_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SCORED > 2
    monkeypatch.setattr("rlf.apps.offer.search.MAX_SCORED", 2)
    corpus = tmp_path / "wiki.jsonl"
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    opened = open_corpus(corpus)
    assert [found.id for found in opened.search("the Tiber", 3)] == ["p3"]
    assert [found.id for found in opened.search("the river", 3)] == ["p2", "p1"]
    assert len(opened.search("the", 5)) == 3


def test_a_row_without_contents_is_reported_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = Path("wiki.jsonl")
    corpus.write_text(json.dumps(PASSAGES[0]) + "\n" + json.dumps({"id": "2", "text": "x"}) + "\n")
    code, errors = try_to_serve("--search", str(corpus), "--port", "0")
    assert code == 2
    assert "wiki.jsonl:2:1 contents: got no text; a passage has `id` and `contents`, and this one id, text." in errors
    assert [file.name for file in tmp_path.iterdir() if "bm25" in file.name] == []


def test_a_signal_after_the_end_of_a_server_has_the_handler_of_the_program_again() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append("program"))

    async def serve() -> None:
        stopped = asyncio.Event()
        with stopping(stopped.set):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stopped.wait(), 10)
        signal.raise_signal(signal.SIGTERM)

    try:
        asyncio.run(serve())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["program"]
