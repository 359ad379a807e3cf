"""Visitors who leave: the user code that runs for a request ends when nobody waits for its answer."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlf.api.fresh.client import ASKER, FreshProcesses


class Departures:
    """A layer of the application. What a GET asks for is finished all the same: its answer is kept for the next one."""

    def __init__(self, app: ASGIApp, fresh: FreshProcesses) -> None:
        self._app = app
        self._fresh = fresh

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, and ends its calls where its connection is closed before that."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_on(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, send_on)
        except (ClientDisconnect, asyncio.CancelledError):
            # No defect: the visitor left, or the page ends and the server cancels what is still being answered.
            # The server would log a traceback for each and answer 500.
            if not started:
                await Response("the page has ended", 503)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        asker, watching = object(), list[asyncio.Task[None]]()
        ASKER.set(asker)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._fresh.end_calls(asker)

        async def receive_body() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                watching.append(asyncio.create_task(watch()))
            return message

        try:
            await self._app(scope, receive_body, send)
        finally:
            for task in watching:
                task.cancel()
