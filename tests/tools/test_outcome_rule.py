"""One rule for every tool that asks a service: what the service fails at is no verdict on the model's call."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import httpx
import pytest
from aiohttp import web

from rlf.core import RlfError
from rlf.rewards import RewardContext, RewardFunction, Term, TrajectoryFacts
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.results import outcome_of_fault
from rlf.types import Outcome, ToolCall, ToolResult
from tests.endpoints.servers import closed_port, serving

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Reply(NamedTuple):
    """What a service answers with."""

    status: int
    body: str = "because"
    headers: Mapping[str, str] = {}
    content_type: str = "application/json"


BROKEN = {
    "s500": Reply(500),
    "s502": Reply(502),
    "s503": Reply(503),
    "s503_with_a_pause": Reply(503, headers={"Retry-After": "100"}),
    "s504": Reply(504),
    "s401": Reply(401),
    "s402": Reply(402),
    "s403": Reply(403),
    "html": Reply(200, "<html>Log in</html>", content_type="text/html"),
    "cut_json": Reply(200, '{"choices": [{"message": {"con'),
    "empty": Reply(200, ""),
    "s304": Reply(304, ""),
    "s421": Reply(421),
    "s425": Reply(425),
    "s499": Reply(499),
    "s405": Reply(405),
    "s406": Reply(406),
    "s415": Reply(415),
    "s202_without_the_answer": Reply(202, ""),
    "to_a_login_page": Reply(302, "", {"Location": "/login"}),
    "to_no_address": Reply(302, "", {"Location": "http://[::1"}),
}
BROKEN_MODEL = {
    "no_choices": Reply(200, '{"choices": []}'),
    "error_body": Reply(200, '{"error": {"message": "the engine is dead"}}'),
    "calls_that_are_a_number": Reply(200, '{"choices": [{"message": {"tool_calls": 5}}]}'),
    "logprobs_that_are_a_list": Reply(200, '{"choices": [{"message": {"content": "a"}, "logprobs": [1]}]}'),
    "logprobs_of_a_number": Reply(200, '{"choices": [{"message": {"content": "a"}, "logprobs": {"content": 5}}]}'),
    "no_model": Reply(404, '{"error": {"message": "The model `m` does not exist."}}'),
    "no_model_by_400": Reply(400, '{"message": "Invalid model: m"}'),
    "no_model_of_its_list": Reply(400, '{"error": "m is not a valid model ID"}'),
}
VERDICTS = {"s400": Reply(400), "s404": Reply(404), "s409": Reply(409), "s422": Reply(422)}
MODEL_VERDICTS = {"too_long": Reply(400, "This model's maximum context length is 4096 tokens"), "s422": Reply(422)}
CHAT = json.dumps({"choices": [{"message": {"content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"text": "a"}'}}
]}}]})  # fmt: skip


def answering(replies: Mapping[str, Reply]) -> Any:
    """A handler whose first part of the path names the reply; `agent` is a model that calls its tool."""

    async def answer(request: web.Request) -> web.Response:
        name = request.path.split("/")[1]
        reply = Reply(200, CHAT) if name == "agent" else replies[name]
        if request.path.endswith("/models"):
            return web.json_response({})
        return web.Response(
            status=reply.status, text=reply.body, headers=reply.headers, content_type=reply.content_type
        )

    return answer


def http(url: str) -> dict[str, Any]:
    return {"kind": "http", "url": url, "method": "POST", "response": "text"}


def model(url: str) -> dict[str, Any]:
    return {"kind": "model", "endpoints": [{"url": url, "model": "m"}], "prompt": "{{ text }}"}


def agent(url: str) -> dict[str, Any]:
    inner = {"name": "look", "description": "Looks.", "inputSchema": TEXT, "target": http(url)}
    endpoints = [{"url": f"{url.rpartition('/')[0]}/agent", "model": "m"}]
    return {"kind": "agent", "endpoints": endpoints, "prompt": "{{ text }}", "tools": [inner], "max_turns": 1}


def declared(name: str, target: Mapping[str, Any], **keys: Any) -> ToolDeclaration:
    mapping = {"name": name, "description": "d", "inputSchema": TEXT, "target": target, "limits": {"timeout_s": 1.5}}
    return ToolDeclaration.model_validate({**mapping, **keys})


def outcomes(kind: Any, replies: Mapping[str, Reply], **keys: Any) -> dict[str, Outcome]:
    """How one call ends against each reply."""

    async def main() -> dict[str, Outcome]:
        async with serving(_=answering(replies)) as url:
            tools = [declared(name, {**kind(f"{url}/{name}"), **keys}) for name in replies]
            async with Executor(tools) as executor:
                calls = [executor.invoke(ToolCall(name, {"text": "a"}), trajectory_id=name) for name in replies]
                return dict(zip(replies, [result.outcome for result in await asyncio.gather(*calls)], strict=True))

    return asyncio.run(main())


@pytest.mark.parametrize(("kind", "replies"), [(http, BROKEN), (model, {**BROKEN, **BROKEN_MODEL}), (agent, BROKEN)])
def test_what_a_service_fails_at_leaves_the_trajectory_unscorable(kind: Any, replies: Mapping[str, Reply]) -> None:
    found = outcomes(kind, replies)
    assert {name for name, outcome in found.items() if not outcome.is_infrastructure} == set()
    assert found["s503_with_a_pause"] is Outcome.RATE_LIMITED
    assert {found[name] for name in replies if name != "s503_with_a_pause"} == {Outcome.SERVICE_ERROR}


@pytest.mark.parametrize(("kind", "replies"), [(http, VERDICTS), (model, MODEL_VERDICTS)])
def test_what_a_service_says_of_the_call_is_the_models_to_read(kind: Any, replies: Mapping[str, Reply]) -> None:
    assert set(outcomes(kind, replies).values()) == {Outcome.TOOL_ERROR}


def test_a_service_may_declare_that_a_status_is_its_answer_to_the_call() -> None:
    replies = {name: BROKEN[name] for name in ("s500", "s403", "s502")}
    found = outcomes(http, replies, tool_error_statuses=[500, 403])
    assert found == {"s500": Outcome.TOOL_ERROR, "s403": Outcome.TOOL_ERROR, "s502": Outcome.SERVICE_ERROR}


RESULT = {"text": Reply(200, "Log in", content_type="text/html"), "empty": Reply(204, ""), "other": Reply(200, "{}")}


def test_an_answer_that_does_not_fill_in_the_result_is_no_fault_of_the_arguments() -> None:
    def kind(url: str) -> dict[str, Any]:
        return {"kind": "http", "url": url, "method": "POST", "result": "{{ response.found.name }}"}

    assert outcomes(kind, RESULT) == dict.fromkeys(RESULT, Outcome.SERVICE_ERROR)


def test_an_answer_without_the_declared_part_is_no_fault_of_the_arguments() -> None:
    replies = {"object": Reply(200, '{"error": "overloaded"}'), "list": Reply(200, "[]"), "null": Reply(200, "null")}
    assert outcomes(http, replies, response="found.name") == dict.fromkeys(replies, Outcome.SERVICE_ERROR)


def test_what_rlfs_own_side_of_a_service_raises_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise TypeError("unexpected")

    monkeypatch.setattr("rlf.endpoints.http.HttpClient.send", broken)
    assert outcomes(http, VERDICTS) == dict.fromkeys(VERDICTS, Outcome.INFRA)


def test_text_where_an_output_schema_asks_for_json_is_the_services_failure() -> None:
    async def main() -> Outcome:
        async with serving(_=answering(BROKEN)) as url:
            target = {"kind": "http", "url": f"{url}/html"}
            async with Executor([declared("ask", target, outputSchema={"type": "object"})]) as executor:
                return (await executor.invoke(ToolCall("ask", {"text": "a"}), trajectory_id="t")).outcome

    assert asyncio.run(main()) is Outcome.SERVICE_ERROR


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_verifying_service_that_fails_says_nothing_of_the_answer(name: str) -> None:
    async def main() -> tuple[float | None, str]:
        term = {"kind": "verify", "name": "checked", "tool": "look", "arguments": {"text": "{{ answer }}"}}
        async with serving(_=answering(BROKEN)) as url:
            tool = declared("look", http(f"{url}/{name}"), hidden=True)
            async with Executor([tool]) as tools:
                context = RewardContext(tools.for_rewards, 0, lambda level, text: None)
                async with RewardFunction([Term.model_validate(term)], context) as function:
                    facts = TrajectoryFacts(answer="42", gold="42")
                    (found,) = await function.score_all([facts.trajectory("0")], step=1)
                    return found.reward, found.scores[0].reason

    reward, reason = asyncio.run(main())
    assert reward is None and "look: " in reason


KEYED = "RLF_TEST_SERVICE_KEY"


def guarded(*, lists_to_all: bool) -> Any:
    """A host with a key: every path wants it, but for its list of models where that is open to all."""

    async def answer(request: web.Request) -> web.Response:
        is_open = lists_to_all and request.path.endswith("/models")
        if not is_open and request.headers.get("Authorization") != "Bearer the-right-key":
            return web.json_response({"error": f"no: {request.headers.get('Authorization')}"}, status=401)
        if request.method == "POST" and not (await request.json()).get("messages", True):
            return web.json_response({"error": "messages is empty"}, status=400)
        return web.json_response({"text": "fine", "choices": [{"message": {"content": "fine"}}]})

    return answer


def keyed_model(url: str) -> dict[str, Any]:
    return {**model(url), "endpoints": [{"url": url, "model": "m", "api_key_env": KEYED}]}


def keyed_http(url: str) -> dict[str, Any]:
    return {**http(url), "headers": {"Authorization": f"Bearer {os.environ[KEYED]}"}}


def keyed_mcp(url: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {os.environ[KEYED]}"}
    return {"kind": "mcp", "server": {"url": url, "headers": headers}, "tool": "say"}


def test_an_mcp_server_that_refuses_the_key_ends_the_run_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with serving(_=guarded(lists_to_all=False)) as url, Executor([declared("say", keyed_mcp(url))]):
            pass

    monkeypatch.setenv(KEYED, "canary-of-a-key")
    with pytest.raises(RlfError, match=f"HTTP 401; .*{KEYED}") as caught:
        asyncio.run(main())
    assert "canary-of-a-key" not in str(caught.value)


@pytest.mark.parametrize("lists_to_all", [True, False])
@pytest.mark.parametrize("kind", [keyed_model, keyed_http])
def test_a_wrong_key_ends_the_run_at_its_start_with_the_variables_name(
    kind: Any, lists_to_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> Outcome:
        async with (
            serving(_=guarded(lists_to_all=lists_to_all)) as url,
            Executor([declared("ask", kind(url))]) as tools,
        ):
            return (await tools.invoke(ToolCall("ask", {"text": "a"}), trajectory_id="t")).outcome

    monkeypatch.setenv(KEYED, "the-right-key")
    assert asyncio.run(main()) is Outcome.OK
    monkeypatch.setenv(KEYED, "canary-of-a-key")
    with pytest.raises(RlfError, match=KEYED) as caught:
        asyncio.run(main())
    assert "canary-of-a-key" not in str(caught.value)
    assert "401" in str(caught.value)


def test_one_wrong_key_among_several_endpoints_ends_the_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(_=guarded(lists_to_all=True)) as url, serving(_=answering(BROKEN)) as other:
            endpoints = [{"url": f"{other}/html", "model": "m"}, {"url": url, "model": "m", "api_key_env": KEYED}]
            async with Executor([declared("ask", {**model(url), "endpoints": endpoints})]):
                pass

    monkeypatch.setenv(KEYED, "canary-of-a-key")
    with pytest.raises(RlfError, match=f"refused the key: .*{KEYED}"):
        asyncio.run(main())


def test_a_service_without_a_key_is_not_asked_before_its_first_call() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.json_response({"text": "fine"})

    async def main() -> None:
        async with serving(_=answer) as url, Executor([declared("ask", http(url))]) as tools:
            assert asked == []
            await tools.invoke(ToolCall("ask", {"text": "a"}), trajectory_id="t")

    asyncio.run(main())
    assert asked == ["POST"]


def test_a_refused_connection_is_unreachable() -> None:
    async def main() -> Outcome:
        async with Executor([declared("ask", http(await closed_port()))]) as tools:
            return (await tools.invoke(ToolCall("ask", {"text": "a"}), trajectory_id="t")).outcome

    assert asyncio.run(main()) is Outcome.UNREACHABLE


FAULTS = {
    "ConnectionRefusedError": Outcome.UNREACHABLE,
    "ConnectionResetError": Outcome.UNKNOWN,
    "KeyError": Outcome.TOOL_ERROR,
}


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_a_functions_own_failed_connection_is_infrastructure_wherever_it_runs(isolation: str, tmp_path: Path) -> None:
    async def main() -> dict[str, Outcome]:
        target = {"kind": "python", "callable": "asks.py:ask", "isolation": isolation}
        mapping = {"name": "ask", "description": "d", "inputSchema": TEXT, "target": target}
        tool = ToolDeclaration.model_validate(mapping, context={"folder": tmp_path})
        async with Executor([tool]) as executor:
            calls = [executor.invoke(ToolCall("ask", {"text": name}), trajectory_id="t") for name in FAULTS]
            return dict(zip(FAULTS, [result.outcome for result in await asyncio.gather(*calls)], strict=True))

    code = "import builtins\n\n\ndef ask(text: str):\n    raise getattr(builtins, text)('x')\n"
    (tmp_path / "asks.py").write_text(code)
    assert asyncio.run(main()) == FAULTS


def _ask_urllib(url: str) -> None:
    urllib.request.urlopen(url)


def _ask_httpx(url: str) -> None:
    httpx.get(url)


def _ask_aiohttp(url: str) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession() as session:
            await session.get(url)

    asyncio.run(ask())


def _ask_requests(url: str) -> None:
    """As the package names it, which is not installed here."""
    raise type("ConnectTimeout", (type("ConnectionError", (OSError,), {"__module__": "requests.exceptions"}),), {})


@pytest.mark.parametrize("ask", [_ask_urllib, _ask_httpx, _ask_aiohttp, _ask_requests])
def test_a_connection_that_a_client_could_not_make_is_infrastructure(ask: Callable[[str], None]) -> None:
    with pytest.raises(Exception) as raised:
        ask(asyncio.run(closed_port()))
    assert outcome_of_fault(raised.value) is (Outcome.UNREACHABLE if ask is _ask_urllib else Outcome.UNKNOWN)


@pytest.mark.parametrize("url", ["nonsense", "zzz://nonsense"])
def test_an_address_that_is_none_is_an_error_of_the_call(url: str) -> None:
    for ask in (_ask_urllib, _ask_httpx):
        with pytest.raises(Exception) as raised:
            ask(url)
        assert outcome_of_fault(raised.value) is Outcome.TOOL_ERROR


@pytest.mark.parametrize("how", ["response", "status"])
def test_a_python_tool_whose_client_raises_for_a_5xx_had_a_service_that_failed(how: str) -> None:
    schema = {"type": "object", "properties": {"how": {"type": "string"}, "status": {"type": "integer"}}}
    target = {"kind": "python", "callable": "toolbox.py:fail_with"}
    mapping = {"name": "fail", "description": "d", "inputSchema": {**schema, "required": ["how", "status"]}}
    tool = ToolDeclaration.model_validate({**mapping, "target": target}, context={"folder": Path(__file__).parent})

    async def main() -> list[Outcome]:
        async with Executor([tool]) as executor:
            asked = (ToolCall("fail", {"how": how, "status": status}) for status in (500, 503, 404, 422))
            return [(await executor.invoke(call, trajectory_id="t")).outcome for call in asked]

    assert asyncio.run(main()) == [Outcome.SERVICE_ERROR] * 2 + [Outcome.TOOL_ERROR] * 2


def test_the_opening_of_a_class_is_not_the_time_of_its_first_call() -> None:
    target = {"kind": "python", "callable": "toolbox.py:SlowToOpen"}
    mapping = {"name": "slow", "description": "d", "inputSchema": {"type": "object"}, "limits": {"timeout_s": 0.3}}
    tool = ToolDeclaration.model_validate({**mapping, "target": target}, context={"folder": Path(__file__).parent})

    async def main() -> ToolResult:
        async with Executor([tool]) as executor:
            return await executor.invoke(ToolCall("slow", {}), trajectory_id="t")

    result = asyncio.run(main())
    assert (result.outcome, result.text) == (Outcome.OK, "open")
    assert result.queue_s > 0.3 > result.run_s


TABLE = json.dumps(
    {
        "rows": [{"name": "Ada", "born": 1815}, {"name": "Alan"}],
        "n": 0,
        "best": "x",
        "columns": {"name": 1, "born": 2},
    }
)


@pytest.mark.parametrize(
    ("result", "text", "outcome"),
    [
        ("{{ response.columns[text] }}", "name", Outcome.OK),
        ("{{ response.columns[text] }}", "death", Outcome.TOOL_ERROR),
        ("{{ response.columns[text] }}", "keys", Outcome.TOOL_ERROR),
        ("{{ response.columns[text] }}", "__class__", Outcome.TOOL_ERROR),
        ("{{ response.columns[text].x }}", "death", Outcome.TOOL_ERROR),
        ("{{ response.rows[text | int].name }}", "7", Outcome.TOOL_ERROR),
        ("{{ response.rows[(text | int) - 1].name }}", "9", Outcome.TOOL_ERROR),
        ("{{ response.rows | map(attribute=text) | join }}", "name", Outcome.OK),
        ("{{ response.rows | map(attribute=text) | join }}", "death", Outcome.TOOL_ERROR),
        ("{{ response.rows | sum(attribute=text) }}", "death", Outcome.TOOL_ERROR),
        ("{% set c = text %}{{ response.columns[c] }}", "death", Outcome.TOOL_ERROR),
        ("{% for row in response.rows %}{{ row[text] }}{% endfor %}", "born", Outcome.TOOL_ERROR),
        ("{{ 1 / (text | int) }}", "0", Outcome.TOOL_ERROR),
        ("{{ other }}", "x", Outcome.TOOL_ERROR),
        ("{{ response.found }} {{ text }}", "found", Outcome.SERVICE_ERROR),
        ("{{ response.found[text] }}", "name", Outcome.SERVICE_ERROR),
        ("{{ response.found }} {{ response.columns[text] }}", "name", Outcome.SERVICE_ERROR),
        ("{{ response[response.best] }} for {{ text }}", "x", Outcome.SERVICE_ERROR),
        ("{{ response.best[text] }}", "name", Outcome.SERVICE_ERROR),
        ("{{ 1 / response.n }} for {{ text }}", "0", Outcome.SERVICE_ERROR),
        ("{{ response.columns.items }}", "x", Outcome.SERVICE_ERROR),
        ("{{ response.rows | map(attribute='death') | join }} {{ text }}", "x", Outcome.SERVICE_ERROR),
    ],
)
def test_what_an_argument_looks_for_in_an_answer_is_the_models_and_what_the_file_looks_for_is_the_services(
    result: str, text: str, outcome: Outcome
) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "other": {"type": "string"}}}

    async def main() -> ToolResult:
        async with serving(_=answering({"table": Reply(200, TABLE)})) as url:
            tool = declared("look", {"kind": "http", "url": f"{url}/table", "result": result}, inputSchema=schema)
            async with Executor([tool]) as executor:
                return await executor.invoke(ToolCall("look", {"text": text}), trajectory_id="t")

    found = asyncio.run(main())
    assert found.outcome is outcome, found.text
    if outcome is Outcome.TOOL_ERROR:
        assert "the arguments ask for what the answer does not have" in found.text
