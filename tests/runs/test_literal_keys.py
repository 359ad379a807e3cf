"""Keys that a file writes out: refused where they would be stored, struck where they are, and copied by no import."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rlf.apps.http.tool import HttpTool
from rlf.cli.main import app
from rlf.core.redact import REDACTED, Redactor, is_secret_name

KEY = "sk-written-out-0815"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lists: None) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, list(arguments))
    return ran.exit_code, " ".join(ran.output.split())


SPEC = """\
name: s
model: {path: builtin:tiny}
rewards: [{kind: rule, name: r, rule: tool_format, weight: 1.0}]
train: {algorithm: grpo, learning_rate: 1.0e-4, steps: 1, prompts_per_step: 1}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
tools: [tool.yaml]
"""
TOOL = """\
name: ask
description: Ask.
inputSchema: {type: object, properties: {q: {type: string, examples: ["http://a?key=b"]}}}
target: TARGET
"""


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (f'{{kind: http, url: "http://127.0.0.1:9/a?q=1&key={KEY}"}}', "key"),
        (f'{{kind: http, url: "http://127.0.0.1:9/{{{{ q }}}}?api%5Fkey={KEY}"}}', "api_key"),
        (f'{{kind: http, url: "http://127.0.0.1:9/a?p=${{oc.env:HOME}}&access_token={KEY}"}}', "access_token"),
        (f'{{kind: http, url: "http://127.0.0.1:9/a", query: {{appSecret: {KEY}, q: "{{{{ q }}}}"}}}}', "appSecret"),
        (
            f'{{kind: http, method: POST, url: "http://127.0.0.1:9/a", body: {{q: "{{{{ q }}}}", api_key: {KEY}}}}}',
            "api_key",
        ),
        (
            f'{{kind: http, method: POST, url: "http://127.0.0.1:9/a", body: {{auth: [{{password: {KEY}}}]}}}}',
            "password",
        ),
        (f'{{kind: mcp, tool: t, server: {{url: "http://127.0.0.1:9/mcp?token={KEY}"}}}}', "token"),
    ],
)
def test_a_key_written_out_in_an_address_a_query_or_a_body_is_a_fault_of_every_command(target: str, name: str) -> None:
    Path("tool.yaml").write_text(TOOL.replace("TARGET", target))
    Path("spec.yaml").write_text(SPEC)
    for command in (["check", "spec.yaml"], ["tools", "list", "tool.yaml"], ["tools", "test", "tool.yaml"]):
        code, said = run(*command)
        assert (code, f"got a value of {name!r}, which is a secret by its name; secrets come" in said) == (2, True), (
            said
        )
        assert "${oc.env:NAME}" in said and "tool.yaml:4:" in said
        assert KEY not in said


@pytest.mark.parametrize(
    "target",
    [
        '{kind: http, url: "http://127.0.0.1:9/a?key=${oc.env:A_KEY}&author=Shakespeare"}',
        '{kind: http, url: "http://127.0.0.1:9/a", query: {key: "${oc.env:A_KEY}", keyword: "{{ q }}", max_tokens: 5}}',
        '{kind: http, url: "http://127.0.0.1:9/a", query: {token: "{{ q }}", sort_key: date, token_type: bearer}}',
        '{kind: http, method: POST, url: "http://127.0.0.1:9/a", body: {api_key: "${oc.env:A_KEY}", max_tokens: "5"}}',
        '{kind: http, method: POST, url: "http://127.0.0.1:9/a", body: [{key: red}, {auth: none, token: "{{ q }}"}]}',
    ],
)
def test_variables_arguments_and_ordinary_words_are_no_fault(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    Path("tool.yaml").write_text(TOOL.replace("TARGET", target))
    code, said = run("tools", "list", "tool.yaml", "--json")
    assert code == 0, said
    assert KEY not in said


def test_the_name_rule_of_parameters_is_that_of_headers_but_for_ordinary_words() -> None:
    secret = "key apikey api_key api-key X-Api-Key accessToken access_token auth authToken Authorization client_secret"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    ordinary = "author keywords sort_key max_tokens page_token nextPageToken tokenizer key_file token_type q limit"
    assert [name for name in ordinary.split() if is_secret_name(name)] == []


def test_what_declarations_hold_in_addresses_and_queries_is_struck() -> None:
    said = [
        {"target": {"kind": "http", "url": "https://host/a?x=1&key=sk%2Dfirst-0001#end"}},
        {"target": {"kind": "http", "url": "https://host/a", "query": {"api_key": "sk-second-0002"}}},
    ]
    redactor = Redactor({}, declared=said)
    text = "sk-first-0001 sk%2Dfirst-0001 sk-second-0002 x=1"
    assert redactor.text(text) == f"{REDACTED} {REDACTED} {REDACTED} x=1"


def test_a_source_is_the_same_whatever_its_keys_are() -> None:
    def source(key: str) -> str:
        return HttpTool(url=f"https://host/a?key={key}&q=1", query={"token": key, "n": "1"}).source_hash()

    assert source("one") == source("another")
    assert source("one") != HttpTool(url="https://host/b?key=one&q=1", query={"token": "one", "n": "1"}).source_hash()


def test_a_host_that_an_argument_chooses_gets_no_key_of_the_query() -> None:
    tool = HttpTool(url="https://{{ host }}/a", query={"key": "k"})
    assert "which would be sent the credentials in `query`" in tool.complaints({"properties": {"host": {}}})[0]


SERVER = """
import json, os, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
if [os.environ["MAPS_API_KEY"], sys.argv[1], sys.argv[3]] != ["THE_KEY", "--api-key=THE_KEY", "THE_KEY"]:
    sys.exit("no login")
for line in sys.stdin:
    message = json.loads(line)
    listed = [{"name": "find", "description": "Find.", "inputSchema": {"type": "object"}}]
    result = about if message["method"] == "initialize" else {"tools": listed}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("kind", ["rl-factory", "mcp"])
def test_an_import_copies_no_key_that_servers_write_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("server.py").write_text(SERVER.replace("THE_KEY", KEY))
    env = {"MAPS_API_KEY": KEY, "TOKENIZERS_PARALLELISM": "false", "PLACE": "Ulm"}
    args = ["server.py", f"--api-key={KEY}", "--token", KEY, f"https://u:{KEY}@host/?sig_key={KEY}&q=1"]
    config = {"mcpServers": {"amap-maps": {"command": sys.executable, "args": args, "env": env}}}
    source = "servers.pydata" if kind == "rl-factory" else "servers.json"
    Path(source).write_text(repr([config]) if kind == "rl-factory" else json.dumps(config))
    code, said = run("tools", "import", kind, source)
    assert code == 0, said
    assert KEY not in said and KEY not in Path("tool_specs/find.yaml").read_text()
    assert "amap-maps: secrets are not copied; the file reads them from these variables: env.MAPS_API_KEY" in said
    server = yaml.safe_load(Path("tool_specs/find.yaml").read_text())["target"]["server"]
    assert server["env"] == {**env, "MAPS_API_KEY": "${oc.env:MAPS_API_KEY}"}
    assert server["args"][-4:] == [
        "--api-key=${oc.env:AMAP_MAPS_API_KEY}",
        "--token",
        "${oc.env:AMAP_MAPS_TOKEN}",
        "https://u:${oc.env:AMAP_MAPS_PASSWORD}@host/?sig_key=${oc.env:AMAP_MAPS_SIG_KEY}&q=1",
    ]
    for name in ("MAPS_API_KEY", "AMAP_MAPS_API_KEY", "AMAP_MAPS_TOKEN", "AMAP_MAPS_PASSWORD", "AMAP_MAPS_SIG_KEY"):
        assert f"set the environment variable {name}" in said
        monkeypatch.setenv(name, KEY)
    assert run("tools", "list", "tool_specs/find.yaml")[0] == 0


def test_a_literal_header_of_an_imported_server_becomes_a_variable() -> None:
    from rlf.apps.imports.found import FromEnvironment, Secrets

    secrets = Secrets("my server", has_variables=False)
    headers = {"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY, "Accept": "text/plain", "X-Token": "${X}"}
    said = secrets.without({"url": "https://host/mcp", "headers": headers})
    assert said["headers"] == {
        "Authorization": "Bearer ${oc.env:MY_SERVER_TOKEN}",
        "X-Api-Key": "${oc.env:MY_SERVER_X_API_KEY}",
        "Accept": "text/plain",
        "X-Token": "${oc.env:MY_SERVER_X_TOKEN}",
    }
    hostile = {"headers": {"X-Key": "${oc.env:OTHER} literal"}, "url": "https://h/${oc.env:OTHER}?key=literal"}
    assert "${oc.env:OTHER}" not in str(secrets.without(hostile)["headers"])
    assert secrets.without(hostile)["url"].startswith("https://h/%24%7Boc.env:OTHER}?key=${oc.env:MY_SERVER_KEY}")
    kept = {"headers": {"Authorization": FromEnvironment("Bearer ${oc.env:MINE}")}}
    assert Secrets("my server", has_variables=True).without(kept) == kept


def test_a_key_in_a_body_is_struck_and_a_plain_field_named_key_is_not() -> None:
    body = {"api_key": KEY, "key": "temperature", "nested": [{"password": "hunter2hunter2"}], "token": "{{ token }}"}
    redactor = Redactor({}, declared=[{"target": {"kind": "http", "body": body}}])
    assert redactor.text(f"{KEY} temperature hunter2hunter2 {{{{ token }}}}") == (
        f"{REDACTED} temperature {REDACTED} {{{{ token }}}}"
    )
