"""What a server behind a url may answer: whose failure it is, and that no call harms another."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rlf.apps.servers.connection import Connection
from rlf.tools.execution.executor import Executor
from rlf.tools.mcp.server import McpServer
from rlf.types import Outcome
from tests.endpoints.servers import serving
from tests.tools.test_mcp import SAY, declare, invoke

FINE = {"content": [{"type": "text", "text": "fine"}]}
INVALID = {"code": -32602, "message": "Unknown city"}
INTERNAL = {"code": -32603, "message": "x"}
LARGE = "x" * 17_000_000
NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'
Answer = Callable[["Forger", web.Request, int], Awaitable[web.StreamResponse]]


def plain(status: int, body: str = "", **headers: str) -> Answer:
    """An answer that depends on nothing."""

    async def answer(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
        return web.Response(status=status, text=body, headers={"Content-Type": "text/plain", **headers})

    return answer


def reply(status: int = 200, of: int | None = 0, **rest: Any) -> Answer:
    """A JSON-RPC answer to the request, or to the one of another number."""

    async def answer(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
        return web.json_response({"jsonrpc": "2.0", "id": number if of == 0 else of, **rest}, status=status)

    return answer


async def reset(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "500", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc":"2.0"')
    return await reset(forger, request, number)


async def compress(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": number, "result": FINE}).encode())
    return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def hang(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    forger.num_hanging += 1
    try:
        await asyncio.sleep(600)
    finally:
        forger.num_hanging -= 1
    return web.Response()


async def end_stream(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def break_off(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    """Breaks the stream after a flood of notifications, the last of which has the id by which it is continued."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"retry: 10\n" + NOTE + NOTE * 5_000 + b"id: 41\r\n" + NOTE.replace(b"\n", b"\r\n"))
    forger.unfinished["41"] = number
    return response


async def answer_twice(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
    """Its second answer comes with the first, as the answer to the next request of the connection would."""
    assert request.transport is not None
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": FINE}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request.transport.write(head.encode() + body + b"HTTP/1.1 500 Stray\r\nContent-Length: 0\r\n\r\n")
    return await hang(forger, request, number)


def never_finish(status: int) -> Answer:
    """An answer whose body does not end."""

    async def answer(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Length": "500", "Retry-After": "1"})
        await response.prepare(request)
        await response.write(b"fail")
        return await hang(forger, request, number)

    return answer


def stream(events: str) -> Answer:
    """Events after which the stream breaks off, and is never continued."""
    return plain(200, events, **{"Content-Type": "text/event-stream"})


SERVICE, UNKNOWN, LIMITED, VERDICT = (
    Outcome.SERVICE_ERROR,
    Outcome.UNKNOWN,
    Outcome.RATE_LIMITED,
    Outcome.TOOL_ERROR,
)
ANSWERS: dict[str, tuple[Answer, Outcome]] = {
    "fine": (reply(result=FINE), Outcome.OK),
    "a_stream_that_breaks_off": (break_off, Outcome.OK),
    "redirect_to_a_login_page": (plain(302, Location="/login"), SERVICE),
    "redirect_to_another_host": (plain(307, Location="http://10.0.0.1/mcp"), SERVICE),
    "redirect_to_no_url": (plain(308, Location="http://[::bad"), SERVICE),
    "redirect_to_nowhere": (plain(307), SERVICE),
    "redirect_for_ever": (plain(307, Location="/mcp"), SERVICE),
    "accepted": (plain(202), SERVICE),
    "accepted_with_a_result": (reply(202, result=FINE), SERVICE),
    "no_content": (plain(204), SERVICE),
    "login_page": (plain(200, "<html>", **{"Content-Type": "text/html"}), SERVICE),
    "no_json": (plain(200, "{", **{"Content-Type": "application/json"}), SERVICE),
    "a_list": (plain(200, "[]", **{"Content-Type": "application/json"}), SERVICE),
    "failed_with_a_verdict": (reply(500, error=INVALID), SERVICE),
    "refused_key_with_a_verdict": (reply(401, error=INVALID), SERVICE),
    "large_refusal": (plain(401, LARGE), SERVICE),
    "large_failure": (plain(500, LARGE), SERVICE),
    "large_pause": (plain(429, LARGE, **{"Retry-After": "1"}), LIMITED),
    "pause": (plain(503, "later", **{"Retry-After": "1"}), LIMITED),
    "not_found": (plain(404), SERVICE),
    "bad_request": (plain(400, "no"), SERVICE),
    "bad_request_of_the_server": (reply(400, error={"code": -32000, "message": "x"}), SERVICE),
    "no_such_method": (plain(405), SERVICE),
    "no_such_type": (plain(415), SERVICE),
    "internal_error": (reply(error=INTERNAL), SERVICE),
    "verdict": (reply(error=INVALID), VERDICT),
    "verdict_with_its_status": (reply(400, error=INVALID), VERDICT),
    "too_large_a_request": (plain(413), VERDICT),
    "too_large_a_result": (reply(result={"content": [{"type": "text", "text": LARGE}]}), Outcome.OUTPUT_REJECTED),
    "error_of_no_request": (reply(of=None, error=INVALID), SERVICE),
    "error_of_another_request": (reply(of=987_654, error=INVALID), SERVICE),
    "result_of_another_request": (reply(of=987_654, result=FINE), SERVICE),
    "half_of_a_character": (plain(200, '{"jsonrpc":"2.0","id":"@","result":{"content":[{"type":"text","text":"\\ud83d"}'
                                  "]}}", **{"Content-Type": "application/json"}), SERVICE),
    "compressed": (compress, SERVICE),
    "reset": (reset, UNKNOWN),
    "cut": (cut, UNKNOWN),
    "stream_without_an_answer": (end_stream, UNKNOWN),
    "answered_twice": (answer_twice, Outcome.OK),
    "failure_that_never_ends": (never_finish(500), SERVICE),
    "refused_key_that_never_ends": (never_finish(401), SERVICE),
    "pause_that_never_ends": (never_finish(429), LIMITED),
    "stream_with_a_pause_of_400_digits": (stream(f"id: 1\nretry: {'9' * 400}\ndata:\n\n"), UNKNOWN),
    "stream_with_a_pause_of_5000_digits": (stream(f"id: 1\nretry: {'9' * 5_000}\ndata:\n\n"), UNKNOWN),
    "stream_with_a_pause_of_a_day": (stream("id: 1\nretry: 86400000\ndata:\n\n"), UNKNOWN),
    "stream_whose_events_have_names_beyond_ascii": (stream("id: \u00e9\u2603\nretry: 1\ndata:\n\n"), UNKNOWN),
    "an_outcome_that_is_no_text": (reply(result={**FINE, "isError": True, "_meta": {"rlf/outcome": []}}), VERDICT),
    "more_parts_than_are_read": (reply(result={"content": FINE["content"] * 10_000}), Outcome.OUTPUT_REJECTED),
}  # fmt: skip


class Forger:
    """A server over streamable HTTP: what it answers a call is named by the call's text."""

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.answers = {name: answer for name, (answer, _) in ANSWERS.items()} | {"hang": hang} | (answers or {})
        self.listed = dict[str, Any]()
        """More that the list says of its tool."""
        self.sessions = set[str]()
        self.num_opened = self.num_hanging = 0
        self.cancelled: list[int] = []
        self.unfinished: dict[str, int] = {}
        self.forgotten: Callable[[], web.Response] = lambda: web.Response(status=404)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await self._continue(request)
        if request.method == "DELETE":
            return web.Response()
        message = await request.json()
        if message["method"] == "initialize":
            return self._open(message["id"])
        if request.headers.get("mcp-session-id") not in self.sessions:
            return self.forgotten()
        if message["method"] == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            return await self.answers[message["params"]["arguments"]["text"]](self, request, message["id"])
        tool = {"name": "say", "description": "d", "inputSchema": SAY, **self.listed}
        result = {"tools": [tool]} if message["method"] == "tools/list" else {}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _open(self, number: int) -> web.Response:
        self.num_opened += 1
        self.sessions.add(f"s{self.num_opened}")
        about = {"name": "forger", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        headers = {"mcp-session-id": f"s{self.num_opened}"}
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": result}, headers=headers)

    async def _continue(self, request: web.Request) -> web.StreamResponse:
        number = self.unfinished.get(request.headers.get("Last-Event-ID", ""))
        if number is None:
            return web.Response(status=405)
        answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": FINE})
        return web.Response(text=f"data: {answer}\n\n", headers={"Content-Type": "text/event-stream"})


def during(forger: Forger, story: Callable[[Executor], Awaitable[None]], **keys: Any) -> None:
    async def main() -> None:
        async with serving(_=forger.handle) as url:
            tool = declare({"url": f"{url}/mcp"}, **{"limits": {"timeout_s": 60, "max_concurrency": 256}, **keys})
            async with Executor([tool]) as executor:
                await story(executor)

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_arguments_are_charged_for_a_verdict_on_them_alone_and_the_session_goes_on(name: str) -> None:
    forger = Forger()

    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "say", text=name)).outcome is ANSWERS[name][1]
        assert (await invoke(executor, "say", text="fine")).outcome is Outcome.OK

    opened: list[int] = []

    async def counted(executor: Executor) -> None:
        before = forger.num_opened
        await story(executor)
        opened.append(forger.num_opened - before)

    during(forger, counted)
    assert opened == [0]


@pytest.mark.parametrize(
    ("schema", "outcome"),
    [
        ({"pattern": "^(a+)+$"}, Outcome.OUTPUT_REJECTED),
        ({"type": "integer"}, Outcome.OUTPUT_REJECTED),
        ({"pattern": "("}, Outcome.OK),
        ({"type": "strin"}, Outcome.OK),
        ({"$ref": "#/nowhere"}, Outcome.OK),
        ({"$ref": "http://127.0.0.1:9/schema"}, Outcome.OK),
    ],
)
def test_a_result_is_held_against_the_servers_schema_in_bounded_time_and_none_against_one_that_is_wrong(
    schema: dict[str, Any], outcome: Outcome
) -> None:
    forger = Forger({"a": reply(result={**FINE, "structuredContent": {"a": "a" * 30 + "!"}})})
    forger.listed = {"outputSchema": {"type": "object", "properties": {"a": schema}}}

    async def story(executor: Executor) -> None:
        async with asyncio.timeout(20):
            assert (await invoke(executor, "say", text="a")).outcome is outcome

    during(forger, story)


@pytest.mark.parametrize("name", ["reset", "compressed", "not_found", "cut", "bad_request_of_the_server", "accepted"])
def test_one_call_that_fails_harms_none_of_those_beside_it(name: str) -> None:
    async def story(executor: Executor) -> None:
        for _ in range(2):
            texts = [name, *["fine"] * 31]
            found = await asyncio.gather(
                *(invoke(executor, "say", f"t{number}", text=text) for number, text in enumerate(texts))
            )
            assert Counter(result.outcome for result in found[1:]) == {Outcome.OK: 31}

    during(Forger(), story)


def test_calls_that_are_late_are_given_up_and_closed_and_harm_no_other() -> None:
    forger = Forger()

    async def story(executor: Executor) -> None:
        await invoke(executor, "say", text="fine")
        before = num_open()
        late = await asyncio.gather(*(invoke(executor, "say", f"t{number}", text="hang") for number in range(64)))
        assert {result.outcome for result in late} == {Outcome.TIMEOUT}
        async with asyncio.timeout(60):
            while forger.num_hanging or not forger.cancelled:  # noqa: ASYNC110 - the server's sockets decide
                await asyncio.sleep(0.02)
        assert executor.num_abandoned == 0
        assert num_open() - before < 64
        found = await asyncio.gather(*(invoke(executor, "say", f"t{number}", text="fine") for number in range(64)))
        assert {result.outcome for result in found} == {Outcome.OK}

    during(forger, story, limits={"timeout_s": 12, "max_concurrency": 256, "breaker": None})


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def by_404() -> web.Response:
    return web.Response(status=404)


def by_404_with_a_code() -> web.Response:
    error = {"code": -32001, "message": "Session not found"}
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=404)


def by_400() -> web.Response:
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)


@pytest.mark.parametrize("forgotten", [by_404, by_404_with_a_code, by_400])
def test_a_session_that_the_server_forgot_is_opened_again_once_and_no_call_is_lost(
    forgotten: Callable[[], web.Response],
) -> None:
    forger = Forger()
    forger.forgotten = forgotten

    async def story(executor: Executor) -> None:
        for _ in range(2):
            opened = forger.num_opened
            forger.sessions.clear()
            found = await asyncio.gather(*(invoke(executor, "say", f"t{number}", text="fine") for number in range(64)))
            assert {result.outcome for result in found} == {Outcome.OK}
            assert forger.num_opened == opened + 1

    during(forger, story)


def test_a_server_that_forgot_the_session_and_opens_no_other_was_not_reached() -> None:
    forger = Forger()

    async def story(executor: Executor) -> None:
        forger.sessions.clear()
        forger._open = lambda number: web.Response(status=503)  # type: ignore[method-assign]
        assert (await invoke(executor, "say", text="fine")).outcome is Outcome.UNREACHABLE
        del forger._open
        assert (await invoke(executor, "say", text="fine")).outcome is Outcome.OK

    during(forger, story)


def test_a_session_that_holds_a_world_is_not_opened_again_in_silence() -> None:
    async def main() -> None:
        forger = Forger()
        async with serving(_=forger.handle) as url:
            connection = Connection(McpServer(url=f"{url}/mcp"), renews=False)
            session = await connection.session()
            forger.sessions.clear()
            with pytest.raises(Exception, match="forgot the session"):
                await session.call_tool("say", {"text": "fine"})
            assert await connection.session() is not session
            await connection.close()

    asyncio.run(main())


def test_the_pause_that_a_host_asks_for_is_kept_before_the_next_attempt() -> None:
    asked: list[float] = []

    async def once(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
        asked.append(asyncio.get_running_loop().time())
        answer = plain(429, **{"Retry-After": "1"}) if len(asked) == 1 else reply(result=FINE)
        return await answer(forger, request, number)

    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "say", text="once")).outcome is Outcome.OK
        assert asked[1] - asked[0] >= 1

    during(Forger({"once": once}), story, idempotent=True, limits={"timeout_s": 60, "retries": 2})


def test_a_redirect_within_the_host_that_keeps_the_request_is_followed() -> None:
    async def moved(forger: Forger, request: web.Request, number: int) -> web.StreamResponse:
        if request.path == "/mcp":
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        return await reply(result=FINE)(forger, request, number)

    async def story(executor: Executor) -> None:
        assert (await invoke(executor, "say", text="moved")).outcome is Outcome.OK

    during(Forger({"moved": moved}), story)


def test_a_call_that_is_cancelled_twice_still_cancels_its_request() -> None:
    async def main() -> None:
        forger = Forger()
        async with serving(_=forger.handle) as url:
            connection = Connection(McpServer(url=f"{url}/mcp"))
            session = await connection.session()
            call = asyncio.create_task(session.call_tool("say", {"text": "hang"}))
            async with asyncio.timeout(60):
                while not forger.num_hanging:  # noqa: ASYNC110 - the server's sockets decide
                    await asyncio.sleep(0.02)
                call.cancel()
                asyncio.get_running_loop().call_soon(call.cancel)  # while it deals with the first
                await asyncio.wait((call,))
                while forger.num_hanging:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.02)
            await connection.close()

    asyncio.run(main())
