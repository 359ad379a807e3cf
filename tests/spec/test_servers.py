"""MCP servers in `tools:`: each stands for the tools that it lists, in rlf's words and in those of other programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.plan import compile as compile_plan
from rlf.plan import plan_to_json
from rlf.runs.declared import load_tools
from rlf.spec import load_spec

from .project import SPEC

pytestmark = pytest.mark.usefixtures("own_lists")
ROUGH = (Path(__file__).parents[1] / "tools/mcp_servers/rough.py").read_text(encoding="utf-8")
LOOK = "  - ../tool_specs/look.yaml\n"


@pytest.fixture
def load(project):
    """Loads the project with an item in place of its tool; `specs/server.py` is a server with the tool `say`."""

    def build(item, changes=None):
        text = item if isinstance(item, str) else json.dumps(item)
        files = {"specs/run.yaml": SPEC.replace(LOOK, f"  - {text}\n"), "specs/server.py": ROUGH, **(changes or {})}
        return load_spec([project(files)])

    return build


def server(**keys):
    return {"command": sys.executable, "args": ["server.py"], **keys}


def test_a_server_stands_for_the_tools_that_it_lists(load, tmp_path):
    loaded = load({"mcp": server(), "prefix": "a_", "limits": {"timeout_s": 3}, "idempotent": True})
    (tool,) = loaded.spec.tools
    assert (tool.name, tool.description, tool.limits.timeout_s, tool.idempotent) == ("a_say", "Say it.", 3.0, True)
    assert tool.input_schema["required"] == ["text"]
    assert tool.target.server.args == (str(tmp_path / "specs/server.py"),)
    assert [file.role for file in loaded.files] == ["spec", "reward", "code"]


def test_tools_are_taken_and_left_out_by_name(load):
    assert [tool.name for tool in load({"mcp": server(), "include": ["say"]}).spec.tools] == ["say"]
    assert load({"mcp": server(), "exclude": ["say"]}).spec.tools == ()


def test_a_name_that_the_server_does_not_have_is_reported_at_its_place(load):
    with pytest.raises(SpecError) as caught:
        load({"mcp": server(), "include": ["sey"]})
    assert "tools[0].include[0]: the server has no tool 'sey'; did you mean 'say'? (known: say)." in str(caught.value)


@pytest.mark.parametrize("item", ["mcp.json", '{use: mcp.json, exclude: ["b"]}'])
def test_a_file_of_other_programs_is_read_as_it_is(load, item, monkeypatch):
    monkeypatch.setenv("SAID", "Whisper it.")
    entry = server(type="stdio", disabled=False, autoApprove=[], env={"ROUGH_WORDS": "${SAID}", "B": "${NO:-x y}"})
    file = json.dumps({"mcpServers": {"one": entry, "off": {"command": "none", "disabled": True}}}, indent="\t")
    if "exclude" in item:
        with pytest.raises(SpecError, match="the server has no tool 'b'"):
            load(item, {"specs/mcp.json": file})
        return
    loaded = load(item, {"specs/mcp.json": file})
    (tool,) = loaded.spec.tools
    assert (tool.name, tool.description) == ("say", "Whisper it.")
    assert tool.target.server.env == {"ROUGH_WORDS": "Whisper it.", "B": "x y"}
    stored = json.loads(plan_to_json(compile_plan(loaded)))["spec"]["tools"][0]["target"]["server"]["env"]
    assert stored == {"ROUGH_WORDS": "${oc.env:SAID}", "B": "${oc.env:NO,'x y'}"}


def test_the_plans_hash_follows_what_the_server_says_and_not_where_it_starts(load, tmp_path):
    hashes = [
        compile_plan(load({"mcp": server()}, {"specs/server.py": text})).plan_hash
        for text in (ROUGH, ROUGH, ROUGH.replace("Say it.", "Sing it."))
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    item = {"mcp": {**server(), "args": ["../specs/server.py"], "cwd": "../tool_specs"}}
    moved = {**item["mcp"], "cwd": "../reward_specs"}
    assert compile_plan(load(item)).plan_hash == compile_plan(load({"mcp": moved})).plan_hash


@pytest.mark.parametrize("kind", ["", "import rlf.apps.servers.tool"])
def test_a_spec_without_a_server_loads_no_sdk_nor_does_the_kind(project, kind):
    run = project()
    code = f"import sys\n{kind}\nfrom rlf.runs.plans import check_spec\ncheck_spec(['{run}'], [])\nprint(*sys.modules)"
    code = code.replace(f"['{run}']", f"[__import__('pathlib').Path('{run}')]")
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "rlf.spec.validate" in loaded and ("rlf.apps.servers.tool" in loaded) == bool(kind)
    assert not {"mcp", "mcp_types", "anyio", "httpx2"} & set(loaded)


def test_the_server_of_the_guide_gives_the_tool_that_it_says(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs/guides/tools-mcp.md").read_text(encoding="utf-8")
    for name in ("servers.yaml", "shop.py"):
        (block,) = re.findall(rf"^```\w+ specs/{name}\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(block, encoding="utf-8")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    loaded = load_spec([tmp_path / "servers.yaml"])
    (tool,) = loaded.spec.tools
    assert (tool.name, tool.description) == ("shop_price", "Return what an article costs.")
    assert compile_plan(loaded).spec.tools[0].limits.timeout_s == 5.0


def test_an_agents_servers_give_it_their_tools_from_whatever_folder(load, tmp_path):
    agent = {
        "name": "helper",
        "description": "Helps.",
        "inputSchema": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
        "target": {
            "kind": "agent",
            "endpoints": [{"url": "http://127.0.0.1:1/v1", "model": "m"}],
            "prompt": "{{ task }}",
            "tools": [{"mcp": {**server(), "args": ["../specs/server.py"]}, "prefix": "its_"}],
        },
    }
    loaded = load("../tool_specs/helper.yaml", {"tool_specs/helper.yaml": json.dumps(agent)})
    (tool,) = loaded.spec.tools
    assert [inner.name for inner in tool.target.tools] == ["its_say"]
    assert tool.target.tools[0].target.server.args == (str(tmp_path / "specs/server.py"),)
    (alone,) = load_tools([tmp_path / "tool_specs/helper.yaml"])
    assert [inner.name for inner in alone.target.tools] == ["its_say"]


def listing(*tools, cursor="None"):
    """A server that lists `say` and these."""
    listed = f'{{"tools": [TOOL, *json.loads({json.dumps(json.dumps(tools))})], "nextCursor": {cursor}}}'
    return {"specs/server.py": ROUGH.replace('return {"tools": [TOOL]}', f"return {listed}")}


PAIR = {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}
OLDER = {
    "draft-07": {"type": "object", "properties": {"pair": PAIR}},
    "draft-06": {"$schema": "http://json-schema.org/draft-06/schema#", "type": "object", "properties": {"pair": PAIR}},
    "draft-04": {"type": "object", "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}},
}
BROKEN = [5, "text", [], {"type": "array"}, {"type": "object", "properties": 5}, {"type": "object", "required": "x"},
          {"type": "object", "properties": {"a": 5}},
          {"type": "object", "properties": {"a": {"$ref": "x"}}}]  # fmt: skip


@pytest.mark.parametrize("draft", sorted(OLDER))
def test_a_schema_of_an_older_draft_is_named_as_that_and_may_be_left_out(load, draft):
    changes = listing({"name": "odd", "inputSchema": OLDER[draft]})
    with pytest.raises(SpecError) as caught:
        load({"mcp": server()}, changes)
    assert (
        f"tools[0].mcp: the server's tool 'odd' has an inputSchema that is not JSON Schema 2020-12, but {draft}"
        in str(caught.value)
    )
    assert 'Write `exclude: ["odd"]` beside `mcp`' in str(caught.value)
    assert [tool.name for tool in load({"mcp": server(), "exclude": ["odd"]}, changes).spec.tools] == ["say"]


@pytest.mark.parametrize("schema", BROKEN, ids=str)
def test_a_schema_that_is_none_blocks_no_other_tool_of_the_server(load, schema):
    changes = listing({"name": "odd", "inputSchema": schema})
    with pytest.raises(SpecError, match="odd"):
        load({"mcp": server()}, changes)
    assert [tool.name for tool in load({"mcp": server(), "exclude": ["odd"]}, changes).spec.tools] == ["say"]


@pytest.mark.parametrize(
    "odd", [{"inputSchema": {}}, {}, {"inputSchema": {"type": "object", "properties": None, "required": None}}], ids=str
)
def test_a_tool_whose_schema_says_nothing_takes_no_arguments(load, odd):
    say, other = load({"mcp": server()}, listing({"name": "odd", **odd})).spec.tools
    assert (say.name, other.name, other.input_schema) == ("say", "odd", {"type": "object"})


def test_what_a_list_has_beside_tools_of_a_name_blocks_none(load):
    odd = [
        5,
        None,
        {},
        {"name": 5},
        {"name": "odd", "inputSchema": {}, "annotations": 5, "icons": 5, "outputSchema": {}},
    ]
    assert [tool.name for tool in load({"mcp": server()}, listing(*odd)).spec.tools] == ["say", "odd"]


def test_a_tool_that_is_listed_twice_is_taken_once(load):
    double = {"name": "say", "description": "Not alike.", "inputSchema": {}}
    (tool,) = load({"mcp": server()}, listing(double)).spec.tools
    assert tool.description == "Say it."


@pytest.mark.parametrize("cursor", ['"8"', "str(time.monotonic())", '""'])
def test_a_list_whose_pages_repeat_ends(load, cursor):
    assert [tool.name for tool in load({"mcp": server()}, listing(cursor=cursor)).spec.tools] == ["say"]
