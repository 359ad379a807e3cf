"""What tools are given in secret: nobody reads it, in whatever form a tool gives it back."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core.redact import REDACTED, Redactor
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall, ToolResult

PASSWORD, LOGIN, SHOP, LITERAL = "open-sesame-1001", "ali:forty-thieves", "the-cave-of-wonders", "sk-written-out-0001"
HELD = (PASSWORD, LOGIN, LOGIN.partition(":")[2], SHOP, LITERAL)


def forms(secret: str) -> set[str]:
    """The secret as it may come back, by itself and at each place of a longer text in base64."""
    coded = [base64.b64encode(text.encode()).decode() for text in (secret, f"u:{secret}", f"me:{secret}!")]
    return {secret, json.dumps(secret)[1:-1], *(text[4:-6] for text in coded)}


def assert_clean(text: str) -> None:
    assert [form for secret in HELD for form in forms(secret) if form in text] == []


@pytest.fixture
def service() -> Iterator[int]:
    """The port of a server that gives back all that it is sent: as text, as JSON, as an error."""

    class Echo(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = {"path": self.path, **dict(self.headers)}
            self.send_response(500 if "fail" in self.path else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def file(service: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool whose variables have names that say nothing."""
    monkeypatch.setenv("LOGIN", base64.b64encode(LOGIN.encode()).decode())
    monkeypatch.setenv("SHOP", SHOP)
    monkeypatch.setenv("DOOR", PASSWORD)
    path = tmp_path / "echo.yaml"
    path.write_text(
        "name: echo\ndescription: Echo.\n"
        "inputSchema: {type: object, properties: {q: {type: string}}, required: [q]}\n"
        "target:\n  kind: http\n"
        f"  url: http://127.0.0.1:{service}/{{{{ q }}}}?door=${{oc.env:DOOR}}\n"
        "  headers:\n"
        '    Authorization: "Basic ${oc.env:LOGIN}"\n'
        '    X-Shop: "${oc.env:SHOP}"\n'
        f"    X-Api-Key: {LITERAL}\n"
        "limits: {breaker: null}\n"
        "tests:\n"
        '  - {arguments: {q: fine}, expect: {contains: "never said"}}\n'
        '  - {arguments: {q: fail}, expect: {error: "no such"}}\n'
    )
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["test"],
        ["test", "--json"],
        ["test", "--call", "echo", '{"q": "fine"}'],
        ["test", "--call", "echo", '{"q": "fail"}', "--json"],
        ["bench", "echo", "-n", "4", "--arguments", '{"q": "fail"}'],
        ["show", "echo"],
        ["show", "echo", "--json"],
        ["list", "--json"],
    ],
)
def test_no_command_shows_what_a_tool_is_given_in_secret(file: Path, command: list[str]) -> None:
    place = 2 if command[0] in ("show", "bench") else 1
    ran = CliRunner().invoke(app, ["tools", *command[:place], str(file), *command[place:]])
    assert ran.exit_code in (0, 3), ran.output
    assert_clean(ran.output)
    assert (REDACTED in ran.output) == (command[0] in ("test", "bench"))


def test_an_executor_strikes_what_its_declarations_hold_also_inside_base64(
    service: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://me:{PASSWORD}@127.0.0.1:{service}/x"
    target = {"kind": "http", "url": address, "headers": {"X-Token": LITERAL}}
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tool = ToolDeclaration.model_validate({"name": "t", "description": "d", "inputSchema": schema, "target": target})

    async def call(said: str) -> ToolResult:
        async with Executor([tool]) as executor:
            return await executor.invoke(ToolCall("t", {"q": said}), trajectory_id="t")

    for prefix in ("", "a", "ab", "abc:"):
        coded = base64.b64encode(f"{prefix}{LITERAL}".encode()).decode()
        result = asyncio.run(call(coded))
        assert result.outcome is Outcome.OK
        assert_clean(result.text)
        assert f'"Authorization":"Basic {base64.b64encode(b"me:").decode()}' in result.text.replace(": ", ":")
        assert_clean(json.dumps(result.structured))


def test_words_like_keys_and_authors_in_a_query_are_no_secrets() -> None:
    said = {
        "query": {"author": "Shakespeare"},
        "headers": {"Accept": "application/json"},
        "body": {"keywords": "football"},
    }
    text = "Shakespeare played football: application/json"
    assert Redactor({"SHELL": "zsh-5.9-x86"}, declared=said).text(text) == text


PRINTING = """
import os, sys

def show(how: str) -> str:
    print("out", os.environ["SHOP_API_KEY"])
    print("err", os.environ["SHOP_API_KEY"], file=sys.stderr)
    if how == "crash":
        os.write(2, os.environ["SHOP_API_KEY"].encode())
        os._exit(1)
    if how == "raise":
        raise ValueError(os.environ["SHOP_API_KEY"])
    with open(f"/proc/{os.getpid()}/cmdline") as file:
        return os.environ["SHOP_API_KEY"] + file.read()
"""


def test_a_tool_in_its_own_process_has_its_key_and_lets_nobody_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "printing_tool.py").write_text(PRINTING)
    target = {"kind": "python", "callable": "printing_tool:show", "isolation": "process"}
    schema = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}
    tool = {"name": "show", "description": "d", "inputSchema": schema, "target": target}

    async def call() -> list[ToolResult]:
        async with Executor([ToolDeclaration.model_validate(tool)]) as executor:
            hows = ("tell", "raise", "crash")
            return [await executor.invoke(ToolCall("show", {"how": how}), trajectory_id="t") for how in hows]

    told, raised, crashed = asyncio.run(call())
    assert (told.outcome, raised.outcome, crashed.outcome) == (Outcome.OK, Outcome.TOOL_ERROR, Outcome.INFRA)
    assert told.text.startswith(REDACTED) and REDACTED in raised.text
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count(f"out {REDACTED}") == printed.err.count(f"err {REDACTED}") == 3
    assert printed.err.endswith(REDACTED)
    assert_clean(" ".join([printed.err, told.text, raised.text, crashed.text]))


SERVER = """
import json, os, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
schema = {"type": "object", "properties": {}}
for line in sys.stdin:
    message = json.loads(line)
    number, secrets = message.get("id"), " ".join((os.environ["SHOP"], os.environ["SERVICE_TOKEN"], *sys.argv[1:]))
    match message["method"]:
        case "initialize":
            print("starting with", secrets, flush=True)
            print(json.dumps({"jsonrpc": "2.0", "id": number, "result": about}), flush=True)
        case "tools/list":
            tools = [{"name": "die", "inputSchema": schema}]
            print(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": tools}}), flush=True)
        case "tools/call":
            sys.exit("no login with " + secrets)
"""


def test_the_last_words_of_a_server_and_its_noise_are_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOOR", PASSWORD)
    (tmp_path / "server.py").write_text(SERVER)
    server = {
        "command": sys.executable,
        "args": [str(tmp_path / "server.py"), f"--door={PASSWORD}"],
        "env": {"SHOP": SHOP, "SERVICE_TOKEN": LITERAL},
    }
    monkeypatch.setenv("THE_SHOP", SHOP)
    tool = {"name": "die", "description": "d", "inputSchema": {"type": "object"}}
    target = {"kind": "mcp", "server": server, "tool": "die"}
    declaration = ToolDeclaration.model_validate(tool | {"target": target})

    async def call() -> list[ToolResult]:
        async with Executor([declaration]) as executor:
            return [await executor.invoke(ToolCall("die", {}), trajectory_id="t") for _ in range(2)]

    with caplog.at_level(logging.DEBUG):
        results = asyncio.run(call())
    assert all(result.outcome in (Outcome.UNKNOWN, Outcome.UNREACHABLE) for result in results)
    assert f"no login with {REDACTED} {REDACTED} --door={REDACTED}" in results[0].text
    assert "starting with" in caplog.text
    assert_clean(" ".join([caplog.text, *(result.text for result in results)]))


class Keyring:
    """An instance that names a key of the run's when it closes."""

    def __call__(self, q: str = "") -> str:
        return q

    def close(self) -> None:
        raise OSError(f"{LITERAL} is in use")


def with_key(target: dict[str, Any], schema: dict[str, Any]) -> list[ToolDeclaration]:
    """A tool, and another one that holds a key."""
    shop = {"kind": "http", "url": "http://127.0.0.1:9/x", "headers": {"X-Token": LITERAL}}
    plain = {"type": "object", "properties": {}}
    return [
        ToolDeclaration.model_validate({"name": name, "description": "d", "inputSchema": takes, "target": where})
        for name, where, takes in (("t", target, schema), ("shop", shop, plain))
    ]


def test_what_a_class_says_when_it_closes_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        schema = {"type": "object", "properties": {"q": {"type": "string"}}}
        target = {"kind": "python", "callable": f"{__name__}:Keyring", "state": "run"}
        async with Executor(with_key(target, schema)) as executor:
            await executor.invoke(ToolCall("t", {"q": "a"}), trajectory_id="t")

    asyncio.run(story())
    assert f"closing a Keyring: OSError: {REDACTED} is in use" in caplog.text
    assert LITERAL not in caplog.text


@pytest.mark.parametrize("where", ["value", "name", "tool", "deep"])
def test_a_complaint_about_arguments_shows_no_part_of_a_secret(where: str) -> None:
    async def complain(length: int) -> str:
        said = "x" * length + LITERAL
        arguments = {"value": {"q": said}, "name": {said: 1}, "deep": {"r": [{"s": said}]}, "tool": {}}[where]
        schema = {
            "type": "object",
            "properties": {
                "q": {"type": "integer"},
                "r": {"type": "array", "items": {"type": "object", "properties": {"s": {"type": "integer"}}}},
            },
        }
        target = {"kind": "http", "url": "http://127.0.0.1:9/t"}
        async with Executor(with_key(target, schema)) as executor:
            called = ToolCall(said if where == "tool" else "t", arguments)
            return (await executor.invoke(called, trajectory_id="t")).text

    for length in (*range(30, 170, 7), 480, 490):
        text = asyncio.run(complain(length))
        assert LITERAL[:4] not in text, text
