"""What a server over stdio may answer: each call ends at once, and an answer that cannot be read judges no call."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import monotonic

import pytest
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from rlf.apps.servers.messages import OpenRequests
from rlf.tools.execution.executor import Executor
from rlf.types import Outcome, ToolResult
from tests.tools.test_mcp import declare, during, invoke, timed

SERVER = """
import json, sys
REPLY = open(sys.argv[1], "rb").read()
TOOL = {"name": "say", "description": "d", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}},
        "required": ["text"]}}
for line in sys.stdin.buffer:
    asked = json.loads(line)
    method = asked["method"]
    if "id" not in asked:
        if len(sys.argv) > 2:  # as servers do that know no notifications
            print(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    if method == "tools/call":
        sys.stdout.buffer.write(REPLY.replace(b"@", b"%d" % asked["id"]) + b"\\n")
        sys.stdout.buffer.flush()
        continue
    has = {"tools": {}}
    about = {"protocolVersion": "2025-06-18", "capabilities": has, "serverInfo": {"name": "s", "version": "1"}}
    result = about if method == "initialize" else {"tools": [TOOL]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
GOOD = b'{"jsonrpc":"2.0","id":@,"result":{"content":[{"type":"text","text":"fine"}]}}'


def text(words: bytes) -> bytes:
    return GOOD.replace(b"fine", words)


READABLE = {
    "half_of_an_emoji": (text(rb"half \ud83d emoji"), "half \ufffd emoji"),
    "the_other_half": (text(rb"\ude00"), "\ufffd"),
    "a_whole_emoji_in_two_halves": (text(rb"\ud83d\ude00"), "\U0001f600"),
    "half_in_a_key": (GOOD[:-1] + rb',"x\ud83d":1}', "fine"),
    "latin_1": (text(b"caf\xe9"), "caf\ufffd"),
    "a_mark_of_byte_order": (b"\xef\xbb\xbf" + GOOD, "fine"),
    "a_raw_tab": (text(b"a\tb"), "a\tb"),
    "a_batch": (b"[" + GOOD + b"]", "fine"),
    "words_before_it": (b"progress 50% " + GOOD, "fine"),
    "an_id_as_text": (GOOD.replace(b"@", b'"@"'), "fine"),
    "not_a_number": (GOOD[:-2] + b',"structuredContent":{"mean":NaN}}}', "fine"),
}
DEEP = GOOD[:-2] + b',"structuredContent":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}"
UNREADABLE = {
    "no_text_and_not_a_number": b'{"jsonrpc":"2.0","id":@,"result":{"content":[],"structuredContent":{"a":NaN}}}',
    "cut": GOOD[:-9],
    "cut_in_its_id": b'{"jsonrpc":"2.0","id":',
    "too_deep": DEEP,
    "no_envelope": GOOD.replace(b'"jsonrpc":"2.0",', b""),
    "no_result": b'{"jsonrpc":"2.0","id":@}',
    "a_result_that_is_text": b'{"jsonrpc":"2.0","id":@,"result":"fine"}',
    "content_of_a_wrong_shape": b'{"jsonrpc":"2.0","id":@,"result":{"content":"fine"}}',
    "no_content": b'{"jsonrpc":"2.0","id":@,"result":{}}',
    "an_error_without_id": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
    "an_error_of_another": b'{"jsonrpc":"2.0","id":987654,"error":{"code":-32602,"message":"?"}}',
    "a_result_of_another": GOOD.replace(b"@", b'"x"'),
    "an_internal_error": b'{"jsonrpc":"2.0","id":@,"error":{"code":-32603,"message":"Internal error"}}',
    "an_error_of_the_server": b'{"jsonrpc":"2.0","id":@,"error":{"code":-32000,"message":"Connection closed"}}',
    "no_such_method": b'{"jsonrpc":"2.0","id":@,"error":{"code":-32601,"message":"?"}}',
    "an_error_without_a_code": b'{"jsonrpc":"2.0","id":@,"error":{"message":"?"}}',
    "base64_that_is_none": GOOD.replace(b'"text","text":"fine"', b'"image","mimeType":"image/png","data":"%%%"'),
}


def answer(reply: bytes, folder: Path, *more: str) -> tuple[ToolResult, float]:
    """How a call ends that a server answers so, and after how many seconds."""
    (folder / "server.py").write_text(SERVER)
    (folder / "reply").write_bytes(reply)
    server = {"command": sys.executable, "args": ["-S", str(folder / "server.py"), str(folder / "reply"), *more]}
    found = []

    async def story(executor: Executor) -> None:
        found.append(await timed(invoke(executor, "say", text="a")))

    during([declare(server, limits={"timeout_s": 60})], story)
    return found[0]


@pytest.mark.parametrize("name", sorted(READABLE))
def test_what_can_be_repaired_is_an_answer(name: str, tmp_path: Path) -> None:
    reply, expected = READABLE[name]
    result, took_s = answer(reply, tmp_path)
    assert (result.outcome, result.text) == (Outcome.OK, expected)
    assert took_s < 30


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_what_is_no_answer_is_the_services_failure_and_no_timeout(name: str, tmp_path: Path) -> None:
    result, took_s = answer(UNREADABLE[name], tmp_path)
    assert result.outcome is Outcome.SERVICE_ERROR
    assert "\n" not in result.text
    assert took_s < 30


def test_an_error_by_which_a_server_answers_notifications_ends_no_call(tmp_path: Path) -> None:
    result, _ = answer(GOOD, tmp_path, "answers notifications")
    assert result.outcome is Outcome.OK


@pytest.mark.parametrize(
    "line",
    [
        b"Loading: 100%",
        b'{"level": "error", "error": "disk", "result": 1}',
        b'{"level": "info", "id": 987654, "error": null}',
        b'got {"jsonrpc":"2.0","id":@,"method":"tools/call"',
        b'{"jsonrpc":"2.0","id":987654,"method":"ping"} and more',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\\ud83d',
        b'sent {"jsonrpc":"2.0","id":@,"result":{"content"...',
    ],
)
def test_lines_of_a_log_before_an_answer_end_no_call(line: bytes, tmp_path: Path) -> None:
    result, _ = answer(line + b"\n" + GOOD, tmp_path)
    assert (result.outcome, result.text) == (Outcome.OK, "fine")


def test_an_answer_that_the_arguments_are_wrong_is_the_models_to_read(tmp_path: Path) -> None:
    result, _ = answer(json.dumps({"jsonrpc": "2.0", "id": 0, "error": {"code": -32602, "message": "Unknown city"}})
                       .replace(" 0,", " @,").encode(), tmp_path)  # fmt: skip
    assert (result.outcome, result.text) == (Outcome.TOOL_ERROR, "error: Unknown city")


def test_an_answer_of_more_objects_than_are_read_ends_its_call_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlf.apps.servers.messages._parse_messages", None)  # in which no deadline would fire
    for objects in (b'{"a":1}', b'{ \n"a":1}'):
        waiting = OpenRequests(lambda: None)
        waiting.note_sent(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call"))
        listed = b",".join([objects] * 60_000)
        reply = b'{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":{"rows":[%b]}}}' % listed
        (passed,) = waiting.read(reply) or []
        assert isinstance(passed.message, JSONRPCError) and passed.message.id == 7
        assert "60,003 objects; at most 50,000 are read" in passed.message.error.message


def test_a_text_of_many_braces_is_read() -> None:
    waiting = OpenRequests(lambda: None)
    waiting.note_sent(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call"))
    part = {"type": "text", "text": '{"a": {}}' * 60_000}
    reply = {"jsonrpc": "2.0", "id": 7, "result": {"content": [part]}}
    (passed,) = waiting.read(json.dumps(reply).encode()) or []
    assert isinstance(passed.message, JSONRPCResponse) and passed.message.result == reply["result"]


def test_requests_of_a_server_that_asks_without_end_are_passed_on_a_hundred_a_second() -> None:
    waiting = OpenRequests(lambda: None)
    started = monotonic()
    passed = sum(
        len(waiting.read(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number) or []) for number in range(2_000)
    )
    assert 100 <= passed <= 100 * (2 + monotonic() - started)
