"""The faults that a process's own Python makes hold while their mark is there, and say that they struck."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlf.apps.chaos.faults import FAULTS, SHIM, end_marks, prepare_fault

ASK = """
import asyncio, aiohttp, sys, yarl
from aiohttp import web
from rlf.core.connections import CleanConnector, RequestHead, send_request

async def ask_as_tools_judges_and_models_are_asked(url):
    connector = CleanConnector()
    answer = await send_request(connector, RequestHead("GET", yarl.URL(url), {}), None, aiohttp.ClientTimeout())
    said = await answer.content.read()
    answer.release()
    await connector.close()
    return said

async def ask_as_mcp_servers_are_asked(url):
    import httpx2
    async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
        return await response.aread()

async def ask_by_a_session(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.read()

async def main():
    async def answer(request):
        return web.Response(text='{"right": true}')
    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = "http://127.0.0.1:%d/" % runner.addresses[0][1]
    for _ in range(6):
        try:
            async with asyncio.timeout(2):
                print(await globals()[sys.argv[1]](url) == b'{"right": true}')
        except Exception as error:
            print(type(error).__name__)
    await runner.cleanup()

asyncio.run(main())
"""
SYNC = """
import os, sys, time
with open(sys.argv[1], "w") as file:
    begun = time.monotonic()
    try:
        os.fsync(file.fileno())
        print("synced", time.monotonic() - begun > 0.9)
    except OSError as error:
        print(error.errno)
"""


def say(env: Mapping[str, str], *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", *arguments], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("fault", "seen", "ask"),
    [
        ("service errors", "ClientConnectionError", "ask_as_tools_judges_and_models_are_asked"),
        ("service drops", "ServerDisconnectedError", "ask_as_tools_judges_and_models_are_asked"),
        ("service hangs", "TimeoutError", "ask_as_tools_judges_and_models_are_asked"),
        ("service garbage", "False", "ask_as_tools_judges_and_models_are_asked"),
        ("service errors", "ClientConnectionError", "ask_by_a_session"),
        ("service drops", "ReadError", "ask_as_mcp_servers_are_asked"),
        ("service garbage", "False", "ask_as_mcp_servers_are_asked"),
    ],
)
def test_a_fault_of_servers_meets_one_in_three_requests(fault: str, seen: str, ask: str, tmp_path: Path) -> None:
    env = prepare_fault(tmp_path)
    (tmp_path / SHIM / fault).touch()
    assert say(env, ASK, ask) == ["True", "True", seen] * 2
    assert end_marks(tmp_path) and not (tmp_path / SHIM / fault).exists() and not end_marks(tmp_path)


@pytest.mark.parametrize(("fault", "seen"), [("disk errors", "5"), ("slow disk", "synced True"), ("", "synced False")])
def test_a_fault_of_the_disk_meets_what_waits_for_it(fault: str, seen: str, tmp_path: Path) -> None:
    env = prepare_fault(tmp_path)
    if fault:
        (tmp_path / SHIM / fault).touch()
    assert say(env, SYNC, str(tmp_path / "file")) == [seen]
    assert end_marks(tmp_path) is bool(fault)


def test_every_fault_that_leaves_a_mark_is_one_of_the_shim() -> None:
    source = Path("rlf/apps/chaos/shim.py")
    text = (Path(__file__).parents[3] / source).read_text(encoding="utf-8")
    marked = [fault.name for fault in FAULTS if fault.marks]
    assert len(marked) == 6 and all(f'"{name}"' in text for name in marked)
