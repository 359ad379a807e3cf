"""`rlf tools import`: each source becomes tool files that load, check and call what they say."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rlf.cli.main import app
from rlf.runs.declared import load_tools
from rlf.tools import Executor
from rlf.types import Outcome, ToolCall, ToolResult

SERVERS = Path(__file__).parents[1] / "tools" / "mcp_servers"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_lists: None) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rough.py").write_text((SERVERS / "rough.py").read_text())


def imported(*arguments: str) -> str:
    ran = CliRunner().invoke(app, ["tools", "import", *arguments])
    assert ran.exit_code == 0, ran.output
    return ran.output


def refused(*arguments: str) -> str:
    ran = CliRunner().invoke(app, ["tools", "import", *arguments])
    assert ran.exit_code == 2, ran.output
    return ran.output


def call(name: str, folder: str = "tool_specs", /, **arguments: Any) -> ToolResult:
    """One call of a written file, with all written files open."""

    tools = load_tools(sorted(Path(folder).glob("*.yaml")))

    async def main() -> ToolResult:
        async with Executor(tools) as executor:
            return await executor.invoke(ToolCall(name, arguments), trajectory_id="t")

    return asyncio.run(main())


def test_a_live_mcp_server_becomes_files_that_call_it() -> None:
    assert imported("mcp", f"{sys.executable} rough.py", "--prefix", "my_").splitlines() == ["tool_specs/my_say.yaml"]
    text = Path("tool_specs/my_say.yaml").read_text()
    assert "\n# yaml-language-server: $schema=../schema/tool.json\n" in text
    server = yaml.safe_load(text)["target"]["server"]
    assert (server["args"], server["cwd"]) == (["rough.py"], "..")
    assert call("my_say", text="hello").text == "hello"


@pytest.mark.parametrize("form", ["{absolute}", "data", "./data", "--root=data", "--root={absolute}"])
def test_a_servers_folder_is_found_from_anywhere(
    form: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/known.txt").touch()
    imported("mcp", f"{sys.executable} rough.py folder {form.format(absolute=tmp_path / 'data')}")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert call("say", str(tmp_path / "tool_specs"), text="x").text == "known.txt"


def test_a_file_that_a_server_makes_is_the_same_from_anywhere(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported("mcp", f"{sys.executable} rough.py file notes.db")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert call("say", str(tmp_path / "tool_specs"), text="x").text == "x"
    assert list(elsewhere.iterdir()) == [] and (tmp_path / "notes.db").is_file()


@pytest.mark.parametrize("source", ["bin/server", "{absolute}/bin/server", "server"])
def test_a_program_by_its_path_is_started_and_not_read(
    source: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / source.format(absolute=tmp_path)
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'rough.py'}\n")
    program.chmod(0o755)
    imported("mcp", source.format(absolute=tmp_path))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert call("say", str(tmp_path / "tool_specs"), text="x").text == "x"


def test_a_script_that_cannot_be_started_is_reported_with_the_command_that_starts_it() -> None:
    assert "python rough.py" in refused("mcp", "rough.py")


def test_mcp_servers_of_a_file_keep_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDS", "Whisper it.")
    server = {"command": sys.executable, "args": ["rough.py"], "env": {"ROUGH_WORDS": "${WORDS}"}, "disabled": False}
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"a": server}}))
    assert "set the environment variable WORDS" in imported("mcp", "mcp.json", "--out", "here")
    written = yaml.safe_load(Path("here/say.yaml").read_text())
    assert written["description"] == "Whisper it."
    assert written["target"]["server"]["env"] == {"ROUGH_WORDS": "${oc.env:WORDS}"}
    assert call("say", "here", text="x").text == "x"


def test_an_rl_factory_config_is_read_from_its_repositorys_root() -> None:
    Path("envs/configs").mkdir(parents=True)
    Path("envs/tools").mkdir()
    Path("rough.py").rename("envs/tools/search.py")
    config = [{"mcpServers": {"search": {"command": sys.executable, "args": ["envs/tools/search.py"]}}}]
    Path("envs/configs/mcp_tools.pydata").write_text(repr(config))
    imported("rl-factory", "envs/configs/mcp_tools.pydata")
    server = yaml.safe_load(Path("tool_specs/say.yaml").read_text())["target"]["server"]
    assert (server["args"], server["cwd"]) == (["envs/tools/search.py"], "..")
    assert call("say", text="x").text == "x"
    Path("wrong.pydata").write_text("__import__('os').getcwd()")
    assert "no Python literal" in refused("rl-factory", "wrong.pydata")


class _Service(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        said = {"method": self.command, "path": self.path, "body": body and json.loads(body)}
        told = json.dumps({**said, "authorization": self.headers.get("Authorization")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


OPENAPI = """\
openapi: 3.0.3
info: {title: Pet Store, version: "1"}
servers: [{url: ADDRESS}]
security: [{key: []}]
components:
  securitySchemes: {key: {type: http, scheme: bearer}}
  parameters:
    limit:
      {name: page-size, in: query, description: How many., schema: {type: integer, exclusiveMinimum: true, minimum: 0}}
  schemas:
    Pet:
      type: object
      required: [name]
      properties:
        name: {type: string}
        age: {type: integer, nullable: true}
        parent: {$ref: "#/components/schemas/Pet"}
paths:
  /pets/{owner}:
    parameters: [{name: owner, in: path, required: true, schema: {type: string}}]
    get:
      operationId: listPets
      summary: List somebody's pets.
      parameters: [{$ref: "#/components/parameters/limit"}]
    put:
      description: Change a pet.
      requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
  /upload:
    post: {requestBody: {content: {image/png: {}}}}
  /secret:
    get: {parameters: [{name: X-Who, in: header, required: true, schema: {type: string}}]}
  /elsewhere:
    get: {parameters: [{$ref: "other.yaml#/x"}]}
"""


def test_openapi_operations_become_http_tools_with_path_query_and_body(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pets.yaml").write_text(OPENAPI.replace("ADDRESS", service))
    said = imported("openapi", "pets.yaml")
    assert "left out: POST /upload: its body is image/png; JSON, forms and text can be sent" in said
    assert "left out: GET /secret: it needs the header parameter 'X-Who'" in said
    assert "left out: GET /elsewhere: it refers to 'other.yaml#/x', which is in another document" in said
    assert "set the environment variable PET_STORE_TOKEN" in said
    assert sorted(file.name for file in Path("tool_specs").iterdir()) == ["listPets.yaml", "put__pets_owner.yaml"]
    monkeypatch.setenv("PET_STORE_TOKEN", "sesame")
    listed = call("listPets", owner="a b/c", page_size=3)
    assert listed.outcome is Outcome.OK, listed.text
    answer = json.loads(listed.text)
    assert (answer["method"], answer["path"], answer["body"]) == ("GET", "/v1/pets/a%20b%2Fc?page-size=3", "")
    assert answer["authorization"] == "[redacted]"
    changed = json.loads(call("put__pets_owner", owner="o", name="Rex", age=None).text)
    assert (changed["method"], changed["path"]) == ("PUT", "/v1/pets/o")
    assert changed["body"] == {"name": "Rex", "age": None}
    for wrong in ("many", 0):
        assert call("listPets", owner="o", page_size=wrong).outcome is Outcome.INVALID_ARGUMENTS


def test_a_document_that_is_no_openapi_is_refused() -> None:
    Path("old.json").write_text('{"asyncapi": "2.0"}')
    assert "got 'asyncapi'; expected an OpenAPI document" in refused("openapi", "old.json")
    Path("nowhere.yaml").write_text(OPENAPI.replace("ADDRESS", "/v1"))
    assert "the document names no address for it (server: '/v1'); give one with --url" in refused(
        "openapi", "nowhere.yaml"
    )


def test_openai_functions_need_a_target_and_call_it() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    function = {"name": "double", "description": "Twice as much.", "parameters": parameters}
    Path("functions.json").write_text(json.dumps({"tools": [{"type": "function", "function": function}]}))
    assert "do not say where calls go. Give --target functions.py" in refused("openai", "functions.json")
    Path("tool_specs").mkdir()
    Path("tool_specs/functions.py").write_text("def double(a: int) -> int:\n    return 2 * a\n")
    imported("openai", "functions.json", "--target", "functions.py")
    assert call("double", a=21).text == "42"


def test_the_functions_of_a_module_become_tools_with_their_docstrings() -> None:
    Path("sums.py").write_text(
        "from math import sqrt\n\n\n"
        "def add(a: int, b: int = 1) -> int:\n    '''Add two numbers.'''\n    return a + b\n\n\n"
        "def silent(x: str) -> str:\n    return x\n\n\ndef _own() -> None:\n    '''No tool.'''\n"
    )
    said = imported("python", "sums.py")
    assert "left out: silent: has no docstring" in said
    assert [file.name for file in Path("tool_specs").iterdir()] == ["add.yaml"]
    written = yaml.safe_load(Path("tool_specs/add.yaml").read_text())
    assert (written["description"], written["target"]["callable"]) == ("Add two numbers.", "../sums.py:add")
    assert call("add", a=2).text == "3"


def test_a_file_that_is_there_stays_unless_force_is_given() -> None:
    Path("sums.py").write_text("def add(a: int) -> int:\n    '''Add.'''\n    return a\n")
    imported("python", "sums.py")
    Path("tool_specs/add.yaml").write_text("mine\n")
    assert "tool_specs/add.yaml: exists already. Add --force" in refused("python", "sums.py")
    assert Path("tool_specs/add.yaml").read_text() == "mine\n"
    imported("python", "sums.py", "--force")
    assert "Add." in Path("tool_specs/add.yaml").read_text()


def test_classes_that_python_import_leaves_out_are_named(tmp_path):
    (tmp_path / "tools_of_mine.py").write_text(
        'def find(query: str) -> str:\n    """Finds."""\n    return query\n\n\n'
        'class Box:\n    """Keeps."""\n\n    def __call__(self, key: str) -> str:\n        return key\n\n\n'
        "class Row: ...\n"
    )
    from rlf.apps.imports.python import read_module

    found = read_module(str(tmp_path / "tools_of_mine.py"), tmp_path)
    assert [tool["name"] for tool in found.tools] == ["find"]
    box, row = found.left_out
    assert "Box: is a class; write a tool file with `target: {kind: python, callable: tools_of_mine.py:Box}`" in box
    assert "Row: is a class whose instances cannot be called" in row
