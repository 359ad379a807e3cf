"""Documents of strangers: no importer writes a file that reads the environment, or that no command can read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from rlf.apps.imports.command import Source
from rlf.apps.imports.openapi import read_operations
from rlf.apps.imports.tools import IMPORTERS, ImportRequest, file_text, read_source
from rlf.cli.main import app
from rlf.core.errors import RlfError
from rlf.core.yaml_text import dump_yaml, load_document
from rlf.runs.declared import load_tools
from rlf.spec import load_spec
from rlf.tools import ToolDeclaration

CANARY = "canary-in-the-mine-77"
TEXTS = [
    "${oc.env:CANARY}",
    "Lies in ${HOME}, says \\${oc.env:CANARY} and \\\\${oc.env:CANARY}.",
    "$${oc.env:CANARY} ${oc.decode:${oc.env:CANARY}} ${oc.select:name} ${name} ${.name} ${",
    "'${oc.env:CANARY}' \"}\" {{ 7 * 7 }} {% for x in range(9) %}",
    "1e5",
    "!!python/object/apply:os.system &anchor *alias # no: comment",
    "bell \x07 escape \x1b[31m right-to-left \u202e line \u2028 next \x85 end",
    "long " * 4000,
]

Document = Callable[[], Sequence[str]]
"""Writes a document that has each text in every place of it, and returns the arguments of `rlf tools import`."""


def schema(text: str) -> dict[str, Any]:
    """A schema with a text wherever one may stand."""
    nested = {"type": "object", "description": text, "properties": {text: {"const": text}}, "examples": [{text: text}]}
    return {
        "type": "object",
        "description": text,
        "properties": {
            "plain": {"type": "string", "description": text, "enum": [text, "1e5", "0o17", "on"], "default": text},
            "nested": nested,
        },
    }


def openapi() -> Sequence[str]:
    paths: dict[str, Any] = {"/a": {"get": {"operationId": "../../escape"}}}
    for number, text in enumerate(TEXTS):
        said = {"description": text, "schema": {"type": "string", "default": text, "enum": [text]}}
        parameters = [{"name": "q", "in": "query", **said}]
        body = {"content": {"application/json": {"schema": schema(text)}}}
        post = {"description": text, "requestBody": body, "operationId": f"b {text[:40]}"}
        get = {"operationId": f"a{number}", "summary": text, "parameters": parameters}
        paths |= {f"/a{number}": {"get": get}, f"/b{number}/{text[:40]}": {"post": post}}
    servers = [{"url": "http://127.0.0.1:9/v1", "description": TEXTS[0]}]
    info = {"title": TEXTS[0], "version": TEXTS[0]}
    Path("document.json").write_text(json.dumps({"openapi": "3.1.0", "info": info, "servers": servers, "paths": paths}))
    return ["openapi", "document.json"]


def openai() -> Sequence[str]:
    names = [*(f"f{number}" for number in range(len(TEXTS))), "../g", "${oc.env:CANARY}", "a" * 64 + "${oc.env:CANARY}"]
    texts = [*TEXTS, "", "", ""]
    functions = [
        {"name": name, "description": text, "parameters": schema(text)} for name, text in zip(names, texts, strict=True)
    ]
    Path("functions.json").write_text(json.dumps(functions))
    return ["openai", "functions.json", "--target", "http://127.0.0.1:9/{name}"]


SERVER = """
import json, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    result = about if message["method"] == "initialize" else {"tools": json.load(open("listing.json"))}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def servers() -> dict[str, Any]:
    tools = [
        {"name": name, "description": text, "inputSchema": schema(text)}
        for number, text in enumerate(TEXTS)
        for name in (f"f{number}", f"../{number}{text[:30]}")
    ]
    Path("listing.json").write_text(json.dumps(tools))
    Path("server.py").write_text(SERVER)
    return {"mcpServers": {"stranger": {"command": sys.executable, "args": ["server.py"]}}}


def mcp() -> Sequence[str]:
    servers()
    return ["mcp", f"{sys.executable} server.py"]


def rl_factory() -> Sequence[str]:
    said = servers()
    said["mcpServers"]["stranger"]["env"] = {"SAID": "${oc.decode:${oc.env:CANARY}}", "KEY": "${oc.env:CANARY} literal"}
    said["mcpServers"]["stranger"]["args"] += ["https://host/?key=literal&x=${oc.env:CANARY}"]
    Path("tools.pydata").write_text(repr([said]))
    return ["rl-factory", "tools.pydata"]


def python() -> Sequence[str]:
    functions = [
        f"def f{number}(plain: str = {text!r}) -> str:\n    {text!r}\n    return plain\n"
        for number, text in enumerate(TEXTS)
    ]
    Path("functions.py").write_text("\n\n".join(functions))
    return ["python", "functions.py"]


DOCUMENTS: dict[str, Document] = {
    "openapi": openapi,
    "openai": openai,
    "mcp": mcp,
    "rl-factory": rl_factory,
    "python": python,
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lists: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("STRANGER_KEY", "of-the-user")
    monkeypatch.setenv("KEY", "of-the-user")


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from (key, *texts_of(child))
    elif isinstance(value, list | tuple):
        for child in value:
            yield from texts_of(child)
    elif isinstance(value, str):
        yield value


def imported(arguments: Sequence[str]) -> list[ToolDeclaration]:
    """What the written files declare, as every command reads them."""
    ran = CliRunner().invoke(app, ["tools", "import", *arguments, "--out", "out"])
    assert ran.exit_code == 0, ran.output
    assert CANARY not in ran.output
    assert all(file.parent == Path("out") and CANARY not in file.read_text() for file in Path().rglob("*.yaml"))
    return load_tools(sorted(Path("out").glob("*.yaml")))


def test_every_importer_has_its_hostile_document() -> None:
    assert set(DOCUMENTS) == set(IMPORTERS) == set(get_args(Source))


SPEC = """\
name: s
model: {path: builtin:tiny}
rewards: [{kind: rule, name: r, rule: tool_format, weight: 1.0}]
train: {algorithm: grpo, learning_rate: 1.0e-4, steps: 1, prompts_per_step: 1}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
tools: FILES
"""


@pytest.mark.parametrize("kind", IMPORTERS)
def test_no_text_of_an_imported_document_is_filled_in(kind: str) -> None:
    declared = imported(DOCUMENTS[kind]())
    found = [said for tool in declared for said in texts_of(tool.model_dump(mode="json", by_alias=True))]
    assert not any(CANARY in said or f"{Path.home()}," in said for said in found)
    missing = [text for text in TEXTS if not any(text.strip() in said for said in found)]
    assert missing == []
    Path("spec.yaml").write_text(SPEC.replace("FILES", json.dumps([f"out/{tool.name}.yaml" for tool in declared])))
    in_a_spec = load_spec([Path("spec.yaml")]).spec.tools
    assert [tool.description for tool in in_a_spec] == [tool.description for tool in declared]


ADDRESSES = ["http://${oc.env:CANARY}/x", "http://127.0.0.1:9/${HOME}", "http://127.0.0.1:9/x?a=${oc.env:CANARY}"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_of_an_imported_file_refers_to_nothing(address: str) -> None:
    document = {"openapi": "3.0.0", "paths": {"/a": {"get": {"operationId": "a"}}}}
    by_variable = {"url": "{all}", "variables": {"all": {"default": address}}}
    for server in ({"url": address}, by_variable):
        Path("document.json").write_text(json.dumps({**document, "servers": [server]}))
        refused("openapi", "document.json")
    said = {"mcpServers": {"a": {"url": address}}}
    Path("servers.json").write_text(json.dumps(said))
    Path("servers.pydata").write_text(repr([said]))
    refused("mcp", "servers.json")
    refused("rl-factory", "servers.pydata")


def refused(*arguments: str) -> None:
    ran = CliRunner().invoke(app, ["tools", "import", *arguments])
    assert ran.exit_code == 2, ran.output
    assert "the address holds a reference `${...}`" in ran.output
    assert CANARY not in ran.output


def test_what_a_live_server_says_is_filled_in_by_no_command() -> None:
    Path("servers.json").write_text(json.dumps(servers()))
    assert [tool.description for tool in load_tools([Path("servers.json")])][::2] == TEXTS


def test_the_name_of_a_source_leaves_its_credentials_out_of_the_file() -> None:
    text = file_text({"name": "a"}, Path(), "openapi: https://me:sesame@host/api.json?key=sesame\nx: y")
    assert text.splitlines()[0] == "# Imported from openapi: https://host/api.json."
    text = file_text({"name": "a"}, Path(), "mcp: serve --api-key sesame --token=sesame -n 3")
    assert text.splitlines()[0] == "# Imported from mcp: serve --api-key ... --token=... -n 3."
    assert "\n" not in file_text({}, Path(), "a\x85b\x0bc\x07").splitlines()[0]


def test_what_is_written_as_yaml_is_read_as_it_was() -> None:
    texts = [*TEXTS, "yes", "on", "1e5", "0o17", "0x1F", "1_000", "010", "2020-01-01", "1:30", "~", "", "<<", "=", "-"]
    value = {"texts": texts, "numbers": [1, -2.5, 1e300, 1e-7, True, None], "keys": {text[:99]: 1 for text in texts}}
    assert load_document(dump_yaml(value)) == value
    assert load_document(json.dumps(value)) == value
    assert load_document("{200: a, on: .nan, b: 010, c: 2020-01-01}") == {
        "200": "a",
        "on": None,
        "b": 10,
        "c": "2020-01-01",
    }
    with pytest.raises(ValueError, match="constructor"):
        load_document("a: !!python/name:os.system x")


@pytest.mark.parametrize("address", ["http://[zz]/", "http://[::1", "//[", "http:///path"])
def test_an_operation_whose_server_is_no_address_is_left_out(address: str) -> None:
    document = {"openapi": "3.0.0", "servers": [{"url": address}], "paths": {"/a": {"get": {}}}}
    for source in ("", "https://example.org/api.json"):
        found = read_operations(document, source=source)
        assert not found.tools and "names no address for it" in found.left_out[0]


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"s": {"command": "x", "env": ""}}, r"mcpServers\.s\.env: Input should be a valid dictionary"),
        ({"s": {"command": "x", "args": 5}}, r"mcpServers\.s\.args: Input should be a valid"),
        ({"s": {"command": 5}}, r"mcpServers\.s\.command: "),
        ({"s": {"args": ["a" * 5000]}}, r"mcpServers\.s"),
        ({"s": "x"}, "expected"),
        ({True: {"command": "x"}}, "expected"),
        ({"s": {1: "x"}}, "expected"),
    ],
)
def test_settings_of_a_server_of_another_type_are_refused_with_their_place(
    tmp_path: Path, servers: Any, said: str
) -> None:
    path = tmp_path / "tools.pydata"
    path.write_text(repr([{"mcpServers": servers}]))
    with pytest.raises(RlfError, match=said):
        read_source("rl-factory", ImportRequest(str(path), tmp_path))


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        ("mcp", "'unclosed", "no command: No closing quotation"),
        ("mcp", " ", "got an empty SOURCE"),
        ("mcp", "server.json", "has no `mcpServers`"),
        ("openapi", "http://127.0.0.1:1/x y", "cannot be read: URL can't contain control characters"),
        ("openapi", "http://[zz]/x", "cannot be read: 'zz' does not appear to be"),
        ("python", "cut.py", "not Python: "),
        ("python", "latin.py", "not Python: "),
    ],
)
def test_a_source_that_is_none_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.json").write_text('{"mcpServers": {"s": 5}}')
    Path("cut.py").write_text("def f(:\n")
    Path("latin.py").write_bytes(b"def f(): '\xff'\n")
    with pytest.raises(RlfError, match=re.escape(said)):
        read_source(kind, ImportRequest(source, tmp_path))
