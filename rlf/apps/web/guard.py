"""The guard before every route: who may ask, what a write needs, and the headers of every response."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlf.apps.web.forks import ASKER, FreshProcesses
from rlf.apps.web.settings import MAX_BODY_BYTES, WebSettings
from rlf.core.servers import late_body, own_names, receive_body, refused_request

WRITE_HEADER = "X-RLF"
"""Of every request that is not a GET; a form of another page cannot send it."""
_READS = frozenset({"GET", "HEAD"})
_OPEN = "/static/"
"""Files of rlf itself, which need no token."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)


class RequestGuard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._settings = settings
        self._names = own_names(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what is refused; passes everything else on, its body counted and its response given headers."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        answer = self._refuse(Request(scope)) or self._admit(Request(scope))
        body = await receive_body(_limit_body(receive)) if answer is None else None
        if body is not None:
            await self._app(scope, body, _with_headers(send, nonce))
            return
        answer = answer or error_response(408, f"{late_body()}.")
        answer.headers["Connection"] = "close"  # the rest of a body that nobody reads would hold it
        await answer(scope, receive, _with_headers(send, nonce))

    def _refuse(self, request: Request) -> Response | None:
        """The answer to a visitor or a write from elsewhere, whatever token comes with it."""
        refused = refused_request(request.headers, self._names)
        if refused is not None:
            return error_response(*refused)
        if request.method not in _READS:
            if request.headers.get(WRITE_HEADER) != "1" or "origin" not in request.headers:
                return error_response(403, f"a request that writes needs the headers Origin and {WRITE_HEADER}: 1.")
            announced = request.headers.get("content-length", "0")
            if announced.isdecimal() and int(announced) > MAX_BODY_BYTES:
                return error_response(413, f"the body has more than {MAX_BODY_BYTES:,} bytes.")
        return None

    def _admit(self, request: Request) -> Response | None:
        """None where a request brings the token; a redirect that keeps it in a cookie where its address has it."""
        token = self._settings.token
        if token is None or request.url.path.startswith(_OPEN):
            return None
        if request.method == "GET" and _is_same([request.query_params.get("token", "")], token):
            rest = request.url.remove_query_params("token")
            path = "/" + rest.path.lstrip("/")  # `//host` would lead to another host
            response = RedirectResponse(f"{path}?{rest.query}" if rest.query else path, status_code=303)
            response.set_cookie(self._settings.cookie, token, httponly=True, samesite="strict")
            return response
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        brought = [request.cookies.get(self._settings.cookie, ""), bearer if scheme.lower() == "bearer" else ""]
        if _is_same(brought, token):
            return None
        return error_response(401, "open the address that `rlf web` printed, which has the token of this server.")


def error_response(status: int, message: str, code: str = "refused") -> Response:
    """An error as `/api/v1` answers it."""
    return JSONResponse({"error": {"code": code, "message": message, "faults": []}}, status)


def _is_same(brought: Iterable[str], token: str) -> bool:
    return any(hmac.compare_digest(one.encode("utf-8", "replace"), token.encode()) for one in brought)


def _limit_body(receive: Receive) -> Receive:
    """A body in chunks ends where it is too large, as if its sender had gone away."""
    num_bytes = 0

    async def limited() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        return {"type": "http.disconnect"} if num_bytes > MAX_BODY_BYTES else message

    return limited


def _with_headers(send: Send, nonce: str) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS | {"Content-Security-Policy": _POLICY.format(nonce=nonce)})
            headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
        await send(message)

    return send_with_headers


# Visitors who leave: the user code that runs for a request ends when nobody waits for its answer.


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
