"""Every server of rlf's answers programs that come to it, and no page that a browser was led here by."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import uvicorn
from aiohttp import web

from rlf.apps.offer.search import search_app
from rlf.apps.offer.tools import mcp_server
from rlf.apps.openrlhf.transfer import Receiver
from rlf.apps.serve import ServeSettings
from rlf.apps.serve.app import ModelServer
from rlf.apps.web.app import create_app
from rlf.apps.web.settings import WebSettings
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core.servers import VisitorGuard, listening, own_names, refused_request
from rlf.tools import Executor

CHECKPOINT = builtin_path("tiny")

NAMES = own_names("judge.lan")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {"Host": "[::1]:8000"},
        {"Host": "localhost:9"},
        {"Host": "10.1.2.3"},
        {"Host": "Judge.LAN.:80"},
        {"Host": "localhost:9", "Origin": "http://localhost:9", "Sec-Fetch-Site": "same-origin"},
        {},
    ],
)
def test_programs_and_own_pages_are_answered(headers):
    assert refused_request(headers, NAMES) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8000"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "evil.example@127.0.0.1.nip.io"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Host": "localhost:9", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:9", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "localhost:9", "Origin": "null"}, 403),
        ({"Host": "localhost:9", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_rebound_names_and_foreign_pages_are_refused(headers, status):
    refused = refused_request(headers, NAMES)
    assert refused is not None
    assert refused[0] == status


def test_a_name_of_the_environment_is_the_servers_own(monkeypatch):
    monkeypatch.setenv("RLF_ALLOWED_HOSTS", "search.team.svc, other")
    assert {"search.team.svc", "other"} <= own_names()


def _applications():
    corpus = SimpleNamespace(num_passages=1, search=lambda query, topk: [])
    yield "search", search_app(corpus, ThreadPoolExecutor(1), "127.0.0.1"), "/retrieve", {"queries": ["q"]}
    host = SimpleNamespace(num_slots=1, end_tokens=lambda tokenizer: ())
    server = ModelServer(host, load_tokenizer(str(CHECKPOINT)), ServeSettings(name="judge")).app()
    yield "judge", server, "/v1/chat/completions", {"model": "another", "messages": []}
    yield "ingest", Receiver(SimpleNamespace(run_id="r"), "word").app("127.0.0.1"), "/r/0/a.spool", {}


async def _statuses(app, path, body):
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        async with aiohttp.ClientSession() as session:
            found = []
            for headers in ({}, {"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                async with session.post(url, json=body, headers=headers) as answer:
                    found.append(answer.status)
            return found
    finally:
        await runner.cleanup()


def test_each_aiohttp_server_refuses_a_foreign_host_and_a_foreign_origin():
    for name, app, path, body in _applications():
        asked, rebound, foreign = asyncio.run(_statuses(app, path, body))
        assert (rebound, foreign) == (421, 403), name
        assert asked not in (403, 421), name


def test_an_asgi_server_behind_the_guard_refuses_them_too():
    async def app(scope, receive, send):
        await send({"type": "answered"})

    def sent(**headers):
        found = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            found.append(message.get("status", message["type"]))

        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        asyncio.run(VisitorGuard(app)({"type": "http", "headers": named}, receive, send))
        return found[0]

    assert sent(host="127.0.0.1:1") == "answered"
    assert sent(host="evil.example") == 421
    assert sent(host="localhost", origin="http://evil.example") == 403


@asynccontextmanager
async def _served(app):
    """The port of an application of aiohttp or of ASGI."""
    if isinstance(app, web.Application):
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
        await runner.cleanup()
        return
    with listening("127.0.0.1", 0) as listener:
        server = Unsignalled(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await running


class Unsignalled(uvicorn.Server):
    """Leaves the signals of the test's process alone."""

    def capture_signals(self):
        return nullcontext()


def _asgi_applications(folder):
    yield "page", create_app(WebSettings(folder, folder / "runs", port=1)), "/api/v1/runs"
    mcp = mcp_server(Executor([])).streamable_http_app(json_response=True)
    yield "mcp", VisitorGuard(mcp, "127.0.0.1"), "/mcp"


BODIES = {
    "short": b"Content-Length: 1000\r\n\r\nhalf",
    "none": b"Content-Length: 1000\r\n\r\n",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
}


async def _send_unfinished(port, path, body, extra):
    """The status of the answer to a body that drips and never ends; the connection must then be closed.

    None where a byte that came after the answer reset the connection, and took the answer along.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{extra}Content-Type: application/json\r\n"
    writer.write(head.encode() + BODIES[body])
    drip = asyncio.create_task(_drip(writer, b"1\r\nx\r\n" if body == "chunked" else b"x"))
    try:
        return int((await asyncio.wait_for(reader.read(), 30)).split()[1])
    except ConnectionResetError:
        return None
    finally:
        drip.cancel()
        writer.close()


async def _drip(writer, piece):
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(0.05)
            writer.write(piece)
            await writer.drain()


def test_a_body_that_never_ends_holds_no_connection_of_any_server(tmp_path, monkeypatch):
    monkeypatch.setattr("rlf.core.servers.BODY_S", 0.3)
    apps = [(name, app, path) for name, app, path, _ in _applications()] + [*_asgi_applications(tmp_path)]

    async def main():
        for name, app, path in apps:
            async with _served(app) as port:
                extra = f"Origin: http://127.0.0.1:{port}\r\nX-Rlf: 1\r\n" if name == "page" else ""
                found = await asyncio.gather(*(_send_unfinished(port, path, body, extra) for body in BODIES))
                allowed = {408, 401} if name == "ingest" else {408}  # which refuses before it reads
                assert set(found) - {None} <= allowed, (name, found)

    asyncio.run(main())


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_nobody_reads_holds_no_connection_either(body, tmp_path):
    async def main():
        for name, app, path in _asgi_applications(tmp_path):
            async with _served(app) as port:
                status = await _send_unfinished(port, path, body, "Origin: http://evil.example\r\n")
                assert status in (403, None), name

    asyncio.run(main())


def test_no_server_is_opened_without_the_guard():
    for file in (Path(__file__).parents[2] / "rlf").rglob("*.py"):
        text = file.read_text()
        for opened in re.findall(r"(?:web\.Application|uvicorn\.Config)\((?s:.{80})", text):
            assert "guard" in opened.lower(), f"{file}: {opened}"
