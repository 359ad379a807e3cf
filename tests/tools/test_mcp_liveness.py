"""Servers over stdio that die or hang: noticed by their exit and by a ping, started again, and charged to no call."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlf.tools.execution.executor import Executor
from rlf.types import Outcome
from tests.tools.test_mcp import declare, during, invoke

SERVER = """
import json, os, signal, subprocess, sys, time
MODE, FOLDER = sys.argv[1], sys.argv[2]
def send(number, **rest):
    print(json.dumps({"jsonrpc": "2.0", "id": number, **rest}), flush=True)
def break_down():
    if MODE == "dies":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])  # which holds its stdout
        os._exit(3)
    if MODE == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if MODE == "sleeps":
        time.sleep(600)
TOOL = {"name": "say", "description": "d", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}},
        "required": ["text"]}}
with open(FOLDER + "/starts", "a") as file:
    file.write("x")
for line in sys.stdin.buffer.raw:  # not more than a line at once
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"name": "s", "version": "1"}
        send(asked["id"], result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about})
    elif asked["method"] == "tools/call":
        if asked["params"]["arguments"]["text"] == "never":
            continue
        if asked["params"]["arguments"]["text"] == "break" and not os.path.exists(FOLDER + "/broken"):
            open(FOLDER + "/broken", "w").close()
            break_down()
        send(asked["id"], result={"content": [{"type": "text", "text": "fine"}]})
    elif "id" in asked:
        send(asked["id"], result={"tools": [TOOL]} if asked["method"] == "tools/list" else {})
"""


@pytest.fixture
def breaking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Declares a server that breaks down once, at a call that says `break`."""
    (tmp_path / "server.py").write_text(SERVER)
    monkeypatch.setattr("rlf.apps.servers.connection.HUNG_S", 4)

    def build(mode: str) -> Any:
        server = {"command": sys.executable, "args": ["-S", str(tmp_path / "server.py"), mode, str(tmp_path)]}
        return declare(server, limits={"timeout_s": 6, "max_concurrency": 64})

    return build


async def outcomes(executor: Executor, *texts: str) -> list[Outcome]:
    calls = (invoke(executor, "say", f"t{number}", text=text) for number, text in enumerate(texts))
    return [result.outcome for result in await asyncio.gather(*calls)]


def test_a_server_that_died_while_a_child_holds_its_output_is_started_again(breaking: Any) -> None:
    async def story(executor: Executor) -> None:
        assert (await outcomes(executor, "break"))[0].is_infrastructure
        assert await outcomes(executor, *["fine"] * 8) == [Outcome.OK] * 8

    during([breaking("dies")], story)


@pytest.mark.parametrize("mode", ["stops", "sleeps"])
def test_a_server_that_answers_nothing_is_started_again_and_charges_one_call_at_most(
    breaking: Any, mode: str, tmp_path: Path
) -> None:
    async def story(executor: Executor) -> None:
        starts = len((tmp_path / "starts").read_text())
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, time.sleep, 0.4)  # the time of the calls runs, and no request is sent yet
        found = Counter(await outcomes(executor, *["fine"] * 8, "break", *["fine"] * 15))
        assert found.keys() <= {Outcome.OK, Outcome.TIMEOUT, Outcome.SERVICE_ERROR}
        assert found[Outcome.TIMEOUT] <= 1 and found[Outcome.SERVICE_ERROR] >= 14
        assert await outcomes(executor, *["fine"] * 16) == [Outcome.OK] * 16
        assert len((tmp_path / "starts").read_text()) == starts + 1

    during([breaking(mode)], story)


def test_a_server_that_answers_pings_is_not_started_again_for_its_slow_calls(breaking: Any, tmp_path: Path) -> None:
    async def story(executor: Executor) -> None:
        starts = (tmp_path / "starts").read_text()
        assert await outcomes(executor, *["never"] * 8) == [Outcome.TIMEOUT] * 8
        await asyncio.sleep(5)  # longer than it takes to give a server up
        assert await outcomes(executor, "fine") == [Outcome.OK]
        assert (tmp_path / "starts").read_text() == starts

    during([breaking("")], story)
