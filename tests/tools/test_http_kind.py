"""`kind: http` against real servers on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from pydantic import ValidationError

from rlf.tools import Executor, ToolDeclaration
from rlf.tools.encoding import NoSuchPart, part_at
from rlf.tools.kind import CallContext
from rlf.tools.mcp.server import expand
from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome, ToolCall, ToolResult
from tests.endpoints.servers import Handler, Seen, answer, closed_port, raw_keeping, serving

RETRIEVE = Path(__file__).parents[2] / "tool_specs/retrieve.yaml"
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "ids": {"type": "array"}},
    "required": ["query"],
}


ANY = {"type": "object", "properties": {"query": {}}}


def declared(url: str, target: Mapping[str, Any] = {}, **keys: Any) -> ToolDeclaration:
    mapping = {"name": "ask", "description": "Asks.", "inputSchema": SCHEMA, **keys}
    return ToolDeclaration.model_validate({**mapping, "target": {"kind": "http", "url": url, **target}})


async def call(executor: Executor, **arguments: Any) -> ToolResult:
    return await executor.invoke(ToolCall("ask", arguments), trajectory_id="t")


async def echo(request: web.Request) -> web.Response:
    """What the server was asked."""
    body = await request.text()
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path.partition("?")[0],
            "query": [list(item) for item in request.query.items()],
            "body": json.loads(body) if request.content_type == "application/json" else body,
            "type": request.content_type,
        }
    )


def echoed(
    path: str = "/", target: Mapping[str, Any] = {}, inputSchema: Any = SCHEMA, **arguments: Any
) -> dict[str, Any]:
    async def main() -> Any:
        async with (
            serving(_=echo) as url,
            Executor([declared(url + path, target, inputSchema=inputSchema)]) as executor,
        ):
            result = await call(executor, **arguments)
            assert result.outcome is Outcome.OK, result.text
            return json.loads(result.text)

    found: dict[str, Any] = asyncio.run(main())
    return found


def answered(
    handler: Handler,
    target: Mapping[str, Any] = {},
    arguments: Mapping[str, Any] = {"query": "x"},
    path: str = "",
    **keys: Any,
) -> ToolResult:
    async def main() -> ToolResult:
        async with serving(_=handler) as url, Executor([declared(url + path, target, **keys)]) as executor:
            return await call(executor, **arguments)

    return asyncio.run(main())


def test_arguments_go_into_the_query_of_a_get_and_the_body_of_a_post() -> None:
    got = echoed(query="a b&c", ids=[1, "x"], limit=3)
    assert got["query"] == [["query", "a b&c"], ["ids", "1"], ["ids", "x"], ["limit", "3"]]
    posted = echoed(target={"method": "POST"}, query="a", ids=[1, "x"])
    assert (posted["query"], posted["body"]) == ([], {"query": "a", "ids": [1, "x"]})


def test_templates_fill_in_path_query_and_body_with_types_kept_and_absent_arguments_left_out() -> None:
    body = {"q": "find {{ query }}!", "n": "{{ limit }}", "all": ["{{ query }}", "{{ ids }}", 7], "fixed": True}
    target = {"method": "POST", "query": {"page": "{{ limit | default(1) }}", "ids": "{{ ids }}"}, "body": body}
    found = echoed("/u/{{ query }}/x", target, query="a/../b?c#d")
    assert found["path"] == "/u/a%2F..%2Fb%3Fc%23d/x"
    assert found["query"] == [["page", "1"]]
    assert found["body"] == {"q": "find a/../b?c#d!", "all": ["a/../b?c#d", 7], "fixed": True}
    assert echoed("/", target, query="a", limit=5, ids=[1])["body"]["n"] == 5


def test_what_the_path_names_is_not_repeated_in_the_query() -> None:
    found = echoed("/u/{{ query }}", query="a", limit=1)
    assert (found["path"], found["query"]) == ("/u/a", [["limit", "1"]])


def test_a_text_as_a_body_is_sent_as_text() -> None:
    found = echoed("/", {"method": "POST", "body": "q={{ query }}"}, query="é")
    assert (found["type"], found["body"]) == ("text/plain", "q=é")


def test_an_argument_is_never_read_as_a_template() -> None:
    assert echoed("/", {"method": "POST", "body": {"q": "{{ query }}"}}, query="{{ 7 * 7 }}")["body"] == {
        "q": "{{ 7 * 7 }}"
    }


@pytest.mark.parametrize("query", [".", "..", "%2e%2E"])
def test_an_argument_cannot_lead_the_path_elsewhere(query: str) -> None:
    async def main() -> None:
        async with serving(_=echo) as url, Executor([declared(url + "/u/{{ query }}/x")]) as executor:
            result = await call(executor, query=query)
            assert result.outcome is Outcome.INVALID_ARGUMENTS or "/u/%252e%252E/x" in result.text

    asyncio.run(main())


def test_the_result_is_the_part_at_the_path_or_a_template_over_it() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"hits": [{"text": "a", "score": 1.5}, {"text": "b", "score": 2}]})

    assert answered(answer, {"response": "hits.1.text"}).text == "b"
    assert answered(answer, {"response": "hits.*.text"}).structured == ["a", "b"]
    told = "{% for hit in response %}{{ loop.index }} {{ hit.text }} for {{ query }}\n{% endfor %}"
    assert answered(answer, {"response": "hits", "result": told}).text == "1 a for x\n2 b for x"
    missing = answered(answer, {"response": "hits.0.title"})
    assert missing.outcome is Outcome.SERVICE_ERROR
    assert (
        missing.text
        == "error: the answer has no 'hits.0.title': an object with 'text', 'score' where 'title' should be"
    )


@pytest.mark.parametrize("path", ["a.x", "a.5", "a.-3", "b.0", "*.x", "a.0.b"])
def test_a_path_that_leads_nowhere_is_reported(path: str) -> None:
    with pytest.raises(NoSuchPart, match="the answer has no"):
        part_at({"a": [1, 2], "b": None}, path)
    assert part_at({"a": [1, 2]}, "a.-1") == 2


@pytest.mark.parametrize(
    ("content_type", "body", "outcome"),
    [
        ("text/plain", "grün".encode(), Outcome.OK),
        ("text/plain; charset=latin-1", "grün".encode("latin-1"), Outcome.OK),
        ("text/plain; charset=klingon", b"x", Outcome.OUTPUT_REJECTED),
        ("text/plain; charset=punycode", b"x-" + b"a" * 100_000, Outcome.OUTPUT_REJECTED),
        ("text/plain; charset=Unicode_Escape", rb"\u12", Outcome.OUTPUT_REJECTED),
        ("text/plain; charset=undefined", b"x", Outcome.OUTPUT_REJECTED),
        ("text/plain", b"\xff\xfe\x00", Outcome.OUTPUT_REJECTED),
        ("application/json", b'{"a": ', Outcome.SERVICE_ERROR),
        ("application/json", b"[" * 100_000, Outcome.SERVICE_ERROR),
        ("application/json", b"[NaN]", Outcome.OUTPUT_REJECTED),
        ("image/png", b"no image", Outcome.OUTPUT_REJECTED),
        ("text/plain", b"x" * 3_000, Outcome.OUTPUT_REJECTED),
    ],
)
def test_an_answer_is_a_text_the_model_can_read_or_rejected(content_type: str, body: bytes, outcome: Outcome) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    result = answered(answer, {"max_bytes": 150_000 if body[:1] == b"[" else 2_000})
    assert result.outcome is outcome
    assert result.text == "grün" if outcome is Outcome.OK else result.text.startswith("error: ")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0"
JPEG = b"\xff\xd8\xff\xc0\0\x11\x08\0\x03\0\x02\x03"


@pytest.mark.parametrize("content_type", ["image/png", "IMAGE/PNG", "image/x-png", "image/png; charset=binary"])
def test_an_image_is_given_back_as_one(content_type: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=PNG, headers={"Content-Type": content_type})

    assert answered(answer).images == (Image(PNG, "image/png"),)


@pytest.mark.parametrize("content_type", ["image/jpg", "image/pjpeg", "Image/JPEG"])
def test_an_image_has_the_proper_name_of_its_type(content_type: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=JPEG, headers={"Content-Type": content_type})

    assert answered(answer).images == (Image(JPEG, "image/jpeg"),)


def test_a_drawing_in_xml_is_text() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<svg/>", content_type="image/svg+xml")

    assert answered(answer).text == "<svg/>"


def test_a_service_that_is_not_there_is_unreachable() -> None:
    async def main() -> ToolResult:
        async with Executor([declared(await closed_port())]) as executor:
            return await call(executor, query="x")

    assert asyncio.run(main()).outcome is Outcome.UNREACHABLE


@pytest.mark.parametrize(("idempotent", "outcome", "count"), [(True, Outcome.OK, 3), (False, Outcome.SERVICE_ERROR, 1)])
def test_500_500_200_is_retried_only_when_declared_idempotent(idempotent: bool, outcome: Outcome, count: int) -> None:
    asked = []

    async def flaky(request: web.Request) -> web.Response:
        asked.append(1)
        return web.Response(status=200 if len(asked) == 3 else 500, text="ok")

    limits = {"retries": 2} if idempotent else {}
    result = answered(flaky, {"method": "POST"}, idempotent=idempotent, limits=limits)
    assert (result.outcome, len(asked)) == (outcome, count)


def test_an_absurd_retry_after_is_honoured_up_to_the_deadline() -> None:
    asked = []

    async def limited(request: web.Request) -> web.Response:
        asked.append(1)
        return web.Response(status=429, headers={"Retry-After": "1000000000"})

    result = answered(limited, idempotent=True, limits={"retries": 5, "timeout_s": 5})
    assert (result.outcome, len(asked)) == (Outcome.RATE_LIMITED, 1)
    assert result.run_s < 4


@pytest.mark.parametrize(("idempotent", "outcome"), [(False, Outcome.UNKNOWN), (True, Outcome.TIMEOUT)])
def test_a_post_that_times_out_was_delivered_once(idempotent: bool, outcome: Outcome) -> None:
    delivered = []

    async def hang(request: web.Request) -> web.Response:
        delivered.append(await request.read())
        await asyncio.sleep(60)
        return web.Response()

    result = answered(hang, {"method": "POST"}, idempotent=idempotent, limits={"timeout_s": 0.6})
    assert (result.outcome, len(delivered)) == (outcome, 1)


def test_512_calls_to_one_host_are_never_more_at_once_than_declared() -> None:
    running = most = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        return web.Response(text="ok")

    async def main() -> None:
        async with serving(_=count) as url:
            tool = declared(url, limits={"max_concurrency": 16, "timeout_s": 60})
            async with Executor([tool]) as executor:
                results = await asyncio.gather(*(call(executor, query=str(at)) for at in range(512)))
        assert {result.outcome for result in results} == {Outcome.OK}

    asyncio.run(main())
    assert most == 16


def test_a_host_that_an_argument_names_is_public_unless_the_declaration_allows_it() -> None:
    async def main() -> None:
        async with serving(_=echo) as url:
            host = url.removeprefix("http://")
            async with Executor([declared("{{ query }}")]) as executor:
                blocked = await call(executor, query=f"{url}/x")
                assert (blocked.outcome, "private address" in blocked.text) == (Outcome.TOOL_ERROR, True)
                unknown = await call(executor, query="http://no-such-host.invalid/")
                assert unknown.outcome is Outcome.TOOL_ERROR
            async with Executor([declared("{{ query }}", {"allow_private": [host]})]) as executor:
                assert json.loads((await call(executor, query=f"{url}/x")).text)["path"] == "/x"

    asyncio.run(main())


def test_secrets_of_a_request_are_in_no_failure() -> None:
    canary = "canary-0123456789"

    async def main() -> None:
        async with serving(_=echo) as url:
            for base in (url, await closed_port(), "http://no-such-host.invalid"):
                target = {"headers": {"Authorization": f"Bearer {canary}"}, "response": "nowhere"}
                declaration = declared(f"{base}/x?api_key={canary}", target)
                async with Executor([declaration]) as executor:
                    result = await call(executor, query="x")
                assert result.outcome is not Outcome.OK
                assert canary not in repr(result)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"url": "http://h/{{ qery }}"}, "the template in `url` names 'qery'; did you mean 'query'?"),
        ({"url": "http://h", "query": {"a": "{{ x }}"}}, "the template in `query` names 'x'"),
        ({"url": "http://h", "method": "POST", "body": {"a": ["{{ x }}"]}}, "the template in `body` names 'x'"),
        ({"url": "http://h", "result": "{{ answer }}"}, "the template in `result` names 'answer'"),
        ({"url": "{{ query }}", "headers": {"X-Api-Key": "k"}}, "an argument chooses the host"),
        ({"url": "https://{{ query }}.org/", "headers": {"Authorization": "k"}}, "an argument chooses the host"),
    ],
)
def test_a_declaration_that_cannot_work_is_reported(target: dict[str, Any], said: str) -> None:
    complaints = declared(
        **{"url": "", **target} if False else {"url": target["url"], "target": target}
    ).target.complaints(SCHEMA)
    assert len(complaints) == 1
    assert said in complaints[0]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"url": "h/x"}, "expected `http://...` or `https://...`"),
        ({"url": "http://h/{{ x"}, "not a Jinja2 template"),
        ({"url": "http://h:99999/{{ x }}"}, "Port out of range"),
        ({"url": "http://[::1/x"}, "Invalid IPv6 URL"),
        ({"url": "http://:8000/{{ x }}"}, "it names no host"),
        ({"url": "http://h..example/x"}, "label empty or too long"),
        ({"url": "http://h", "body": {"a": 1}}, "a GET request has no body"),
        (
            {"url": "http://h", "method": "POST", "batch": {"answers": "r"}},
            "`batch` needs a `body` or `query` over `calls`",
        ),
        ({"url": "http://h", "method": "POST", "body": ["{% if %}"]}, "not a Jinja2 template"),
    ],
)
def test_a_target_that_contradicts_itself_is_refused(target: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        declared(target["url"], target)


def test_the_hash_of_the_source_does_not_change_with_the_key() -> None:
    hashes = {
        declared("http://h", {"headers": headers}).target.source_hash()
        for headers in ({"Authorization": "a"}, {"Authorization": "b"}, {"Accept-Language": "de"})
    }
    assert len(hashes) == 2


def retrieval(sizes: list[int], delay_s: float = 0.0) -> Handler:
    """Search-R1's server: one list of passages per query."""

    async def retrieve(request: web.Request) -> web.Response:
        body = await request.json()
        assert (body["topk"], body["return_scores"]) == (3, True)
        sizes.append(len(body["queries"]))
        await asyncio.sleep(delay_s)
        if "boom" in body["queries"]:
            return web.Response(status=500)
        found = [[{"document": {"id": "1", "contents": f'"{q}"\nAbout {q}.'}, "score": 0.5}] for q in body["queries"]]
        return web.json_response({"result": found[1:] if "few" in body["queries"] else found})

    return retrieve


def retrieving(url: str, *, max_size: int = 8, max_wait_ms: float = 30, **keys: Any) -> ToolDeclaration:
    mapping = yaml.safe_load(RETRIEVE.read_text()) | {"name": "ask", "cache": {}, **keys}
    batch = {**mapping["target"]["batch"], "max_size": max_size, "max_wait_ms": max_wait_ms}
    mapping["target"] |= {"url": f"{url}/retrieve", "batch": batch}
    return ToolDeclaration.model_validate(mapping)


Story = Callable[[Executor], Awaitable[Any]]


def batching(story: Story, sizes: list[int], delay_s: float = 0.0, **keys: Any) -> Any:
    async def main() -> Any:
        async with (
            serving(retrieve=retrieval(sizes, delay_s)) as url,
            Executor([retrieving(url, **keys)]) as executor,
        ):
            return await story(executor)

    return asyncio.run(main())


def test_calls_are_gathered_and_each_gets_its_own_answer() -> None:
    sizes: list[int] = []

    async def story(executor: Executor) -> None:
        results = await asyncio.gather(*(call(executor, query=f"q{at}") for at in range(20)))
        assert [result.text for result in results] == [f'Doc 1(Title: "q{at}") About q{at}.' for at in range(20)]

    batching(story, sizes)
    assert sorted(sizes) == [4, 8, 8]


def test_a_call_alone_waits_no_longer_than_declared() -> None:
    async def story(executor: Executor) -> ToolResult:
        return await call(executor, query="q")

    result = batching(story, [])
    assert result.outcome is Outcome.OK
    assert 0.02 <= result.run_s < 2


@pytest.mark.parametrize(("query", "outcome"), [("boom", Outcome.SERVICE_ERROR), ("few", Outcome.SERVICE_ERROR)])
def test_a_batch_that_fails_fails_each_of_its_calls_and_no_other(query: str, outcome: Outcome) -> None:
    async def story(executor: Executor) -> None:
        results = await asyncio.gather(*(call(executor, query=q) for q in ("a", query, "b")))
        assert [result.outcome for result in results] == [outcome] * 3
        assert (await call(executor, query="c")).outcome is Outcome.OK

    batching(story, [], limits={"timeout_s": 10}, idempotent=False)


def test_a_call_that_is_cancelled_leaves_the_others_of_its_batch_alone() -> None:
    sizes: list[int] = []

    async def story(executor: Executor) -> None:
        early, late, stays = (asyncio.create_task(call(executor, query=q)) for q in ("early", "late", "stays"))
        await asyncio.sleep(0.02)
        early.cancel()
        for _ in range(500):
            if sizes:
                break
            await asyncio.sleep(0.01)
        late.cancel()
        assert (await stays).text.endswith("About stays.")
        assert early.cancelled() and late.cancelled()

    batching(story, sizes, delay_s=0.2, max_wait_ms=100)
    assert sizes == [2]


def test_a_batch_that_nobody_waits_for_any_more_is_given_up() -> None:
    gone = []

    async def hang(request: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gone.append(1)
            raise
        return web.Response()

    async def main() -> None:
        async with serving(retrieve=hang) as url, Executor([retrieving(url)]) as executor:
            tasks = [asyncio.create_task(call(executor, query=q)) for q in "ab"]
            await asyncio.sleep(0.3)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for _ in range(200):
                if gone:
                    return
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert gone == [1]


def test_a_call_of_a_batch_ends_at_its_own_deadline() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def main() -> None:
        async with serving(retrieve=hang) as url:
            tool = retrieving(url, limits={"timeout_s": 10})
            runtime = await tool.target.open(tool.limits)
            calls = [
                runtime.invoke({"query": "q"}, CallContext("t", deadline_s, idempotent=idempotent))
                for deadline_s, idempotent in ((0.3, True), (0.5, False))
            ]
            failures = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
            await runtime.close()
        found = [failure.outcome for failure in failures if isinstance(failure, ToolFailure)]
        assert found == [Outcome.TIMEOUT, Outcome.UNKNOWN]

    asyncio.run(main())


@pytest.mark.parametrize("query", ["", None, [], {}, [None]])
@pytest.mark.parametrize(
    "path", ["/u/{{ query }}", "/u/{{ query }}/x", "/u/{{ query }}?a=1", "/u/{{ query }}{{ query }}"]
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_argument_that_is_empty_or_null_makes_no_part_of_a_path(query: Any, path: str, method: str) -> None:
    asked = []

    async def count(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    result = answered(count, {"method": method}, {"query": query}, path, inputSchema=ANY)
    assert (result.outcome, asked) == (Outcome.INVALID_ARGUMENTS, [])
    assert "would be empty" in result.text


def test_an_argument_that_is_empty_or_null_elsewhere_in_an_address_is_nothing() -> None:
    for query in ("", None):
        assert echoed("/a{{ query }}?q={{ query }}&r=1", query=query, inputSchema=ANY)["path"] == "/a"
    assert echoed("/a?q={{ query }}&r=1", query=None, inputSchema=ANY)["query"] == [["q", ""], ["r", "1"]]
    listed = echoed("/a/{{ query }}", query=["x", None, 0, False, ""], inputSchema=ANY)
    assert "\0" not in listed["path"] and listed["path"].startswith("/a/x,0,false")


@pytest.mark.parametrize("key", ["the-right-key\n", "the-right-key \r\n", "the-right-key\n\n"])
def test_the_line_break_at_the_end_of_a_key_is_no_part_of_it(key: str) -> None:
    found = []

    async def note(request: web.Request) -> web.Response:
        found.append(request.headers["Authorization"])
        return web.Response(text="fine")

    assert answered(note, {"headers": {"Authorization": f"Bearer {key}"}}).outcome is Outcome.OK
    assert set(found) == {"Bearer the-right-key"}


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Authorization": "Bearer canary\ncanary"}, "'Authorization' cannot be sent: it holds a line break"),
        ({"X-Key": "canary\0"}, "control character"),
        ({"X-Key": "canary\ud800"}, "not valid Unicode"),
        ({"X Key": "canary"}, "a header named 'X Key'"),
        ({"": "canary"}, "a header named ''"),
    ],
)
def test_a_header_that_cannot_be_sent_is_a_fault_of_the_file(headers: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)) as caught:
        declared("http://h/", {"headers": headers})
    assert "canary" not in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("first", ["broken", "late", "502"])
def test_a_refusal_after_an_attempt_that_may_have_been_carried_out_is_no_verdict(method: str, first: str) -> None:
    asked = []

    async def gone(request: web.Request) -> web.Response:
        asked.append(request.method)
        if len(asked) > 1:
            return web.Response(status=404, text="no such thing")
        if first == "late":
            await asyncio.sleep(60)
        if first == "broken":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=502)

    limits = {"retries": 1, "timeout_s": 1.0 if first == "late" else 10.0}
    result = answered(gone, {"method": method}, idempotent=True, limits=limits)
    if first == "late":  # it took all of the call's time
        assert (result.outcome, len(asked)) == (Outcome.TIMEOUT, 1)
    else:
        assert result.outcome is (Outcome.TOOL_ERROR if method == "GET" else Outcome.UNKNOWN)
        assert asked == [method] * 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize(("retries", "count"), [(0, 1), (2, 3)])
def test_a_service_is_sent_as_many_requests_as_retries_say(method: str, retries: int, count: int) -> None:
    """Also on a connection that it closes under the request."""

    async def reply(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target.startswith("/first"):
            writer.write(answer("200 OK", b"fine"))
        else:
            writer.transport.abort()

    async def main() -> int:
        async with raw_keeping(reply) as (url, raw):
            limits = {"retries": retries, "max_concurrency": 1, "timeout_s": 20}
            tool = declared(f"{url}/{{{{ query }}}}", {"method": method}, idempotent=True, limits=limits)
            async with Executor([tool]) as executor:
                assert (await call(executor, query="first")).outcome is Outcome.OK
                result = await call(executor, query="second")
            assert result.outcome.is_infrastructure
            assert len(result.attempts) == count
            return len(raw.seen) - 1

    assert asyncio.run(main()) == count


@pytest.mark.parametrize("value", ["", None, [], {}])
@pytest.mark.parametrize("template", ["notes://{name}", "notes://all/{+name}/text", "notes://all{/name}"])
def test_an_argument_that_is_empty_or_null_makes_no_part_of_a_resources_address(value: Any, template: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        expand(template, {"name": value})
    assert caught.value.outcome is Outcome.INVALID_ARGUMENTS
    assert expand(template, {"name": "a b"}).endswith(("a%20b", "a%20b/text"))
    assert expand("notes://all{?name}", {"name": value, "q": 1}).startswith("notes://all?")
