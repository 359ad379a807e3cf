"""A request that its visitor or the end of the server cuts off is no defect of the page."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
import uvicorn
from starlette.requests import ClientDisconnect

from rlf.apps.web.guard import Departures


class Application:
    """Stands for every route: waits in a thread as the sync ones do, in the loop, or for a body that never ends."""

    def __init__(self, way):
        self._way = way
        self.entered, self.left = threading.Event(), threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return
        self.entered.set()
        if self._way == "body":
            while (await receive())["type"] != "http.disconnect":
                pass
            raise ClientDisconnect
        if self._way == "thread":
            await asyncio.to_thread(self.left.wait, 60)
        if self._way == "answering":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60)


class Ended:
    """Counts the calls that are ended."""

    def end_calls(self, asker):
        """Ends nothing."""


async def ask_and_cut(application, method, how):
    """Serves one request by uvicorn itself, which logs what the application raises; returns what the client read."""
    config = uvicorn.Config(Departures(application, Ended()), port=0, lifespan="off", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname()[:2])
    writer.write(f"{method} /any HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n".encode())
    await asyncio.to_thread(application.entered.wait, 60)
    if how == "visitor":
        writer.close()
        await asyncio.sleep(0.05)
    application.left.set()
    server.should_exit = True
    await serving
    answer = b"" if how == "visitor" else await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("how", ["visitor", "end of the server"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("way", ["thread", "loop", "body", "answering"])
def test_a_request_that_is_cut_off_is_neither_500_nor_a_traceback(caplog, way, method, how):
    caplog.set_level(logging.ERROR, "uvicorn.error")
    answer = asyncio.run(ask_and_cut(Application(way), method, how))
    assert b" 500 " not in answer
    assert [record.message for record in caplog.records if record.exc_info] == []
    assert "without returning" not in caplog.text and "without starting" not in caplog.text
    if how != "visitor" and way in ("thread", "loop"):
        assert answer.startswith(b"HTTP/1.1 503 ")
