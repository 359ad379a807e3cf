"""`rlf mcp` to the SDK's own client: from an empty folder to a compared pair of runs, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

from rlf.apps.mcp import background
from rlf.apps.mcp.offers import OFFERS
from rlf.apps.mcp.server import ServedProject, make_server
from rlf.cli import app
from rlf.runs.place import open_reader

from ...warm import COMMON, warm_python

SMALL = [
    "train.steps=1",
    "train.prompts_per_step=2",
    "rollout.num_generations=2",
    "eval.limit=4",
    "rollout.max_turns=1",
]
SPEC = {"specs": ["specs/mine.yaml"]}


WARM = "import sys; sys.executable = sys.argv.pop(1); from rlf.cli.main import main; main()"
"""The program, whose commands are forked from what has imported torch."""


@asynccontextmanager
async def connected(folder: Path, *options: str, warm: bool) -> AsyncIterator[ClientSession]:
    """A client of a server that is a process."""
    python = warm_python(*COMMON) if warm else sys.executable
    started = ["-c", WARM, python] if warm else ["-m", "rlf"]
    server = StdioServerParameters(command=python, args=[*started, "mcp", str(folder), *options])
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield session


def talk(folder: Path, script: Callable[[ClientSession], Awaitable[None]], *options: str, warm: bool = False) -> None:
    async def main() -> None:
        async with connected(folder, *options, warm=warm) as session:
            await script(session)

    asyncio.run(main())


def data_of(result: CallToolResult, command: str) -> Any:
    assert not result.is_error, result.content
    envelope = json.loads(result.content[0].text)
    assert envelope == result.structured_content and envelope["command"] == command
    return envelope["data"]


async def finished(session: ClientSession, folder: Path, run_id: str, status: str = "finished") -> Any:
    """Waits in the lineage itself: each call of `status` is a process."""
    async with asyncio.timeout(240):
        with open_reader(folder / "runs") as reader:
            while reader.get_run(run_id).status != status:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.2)
        report = data_of(await session.call_tool("status", {"run": run_id}), "runs show")
        assert report["run"]["status"] == status
        return report


def test_a_client_goes_from_an_empty_folder_to_a_compared_pair_of_runs(tmp_path: Path) -> None:
    mine = tmp_path / "mine"

    async def script(session: ClientSession) -> None:
        assert {tool.name for tool in (await session.list_tools()).tools} == {*OFFERS, "stop"}
        made = await session.call_tool("init", {"folder": "mine", "template": "search"})
        assert "specs/mine.yaml" in data_of(made, "init")["files"]

    talk(tmp_path, script, "--allow-run", warm=True)

    async def train(session: ClientSession) -> None:
        assert data_of(await session.call_tool("check", SPEC), "check")["faults"] == []
        planned = data_of(await session.call_tool("plan", {**SPEC, "overrides": SMALL}), "plan")
        assert planned["work"]["num_steps"] == 1
        tried = await session.call_tool("tools_test", {"files": ["tool_specs/search.yaml"]})
        assert [tool["ok"] for tool in data_of(tried, "tools test")] == [True]
        terms = data_of(await session.call_tool("rewards_test", {"files": SPEC["specs"]}), "rewards test")
        assert all(term["ok"] for term in terms)
        ids = []
        for overrides in (SMALL, [*SMALL, "train.steps=100000"]):  # one after the other, since the second never ends
            started = await session.call_tool("run", {**SPEC, "overrides": overrides, "budget_s": 300})
            assert started.structured_content["event"] == "started"
            ids.append(data_of(started, "run")["run_id"])
            if len(ids) == 1:
                await finished(session, mine, ids[0])
        assert data_of(await session.call_tool("stop", {"run": ids[1]}), "stop")["run_id"] == ids[1]
        await finished(session, mine, ids[1], "interrupted")
        listed = data_of(await session.call_tool("runs", {"limit": 5}), "runs list")
        assert {run["run_id"] for run in listed} == set(ids)
        found = data_of(await session.call_tool("trajectories", {"run": ids[0], "phase": "train"}), "trace")
        assert len(found) == 4
        shown = data_of(await session.call_tool("trajectories", {"run": ids[0], "k": 0}), "trace")
        assert shown["scored"]["trajectory"]["turns"]
        compared = data_of(await session.call_tool("compare", {"runs": ids}), "runs compare")
        assert json.dumps(compared).count(ids[1]) > 0
        explained = data_of(await session.call_tool("why", {"run": ids[0]}), "why")
        assert explained["run_id"] == ids[0]

    talk(mine, train, "--allow-run", warm=True)


def test_read_only_offers_what_runs_nothing_and_imports_nothing_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "evil.py").write_text(
        f"open({str(tmp_path / 'was_here')!r}, 'w')\ndef tool(word: str) -> str: return word\n"
    )
    (tmp_path / "specs/mine.yaml").write_text(
        "name: mine\nmodel: {path: builtin:tiny}\ndata: {train: {path: builtin:encyclopedia/train, prompt: question}}\n"
        "tools: [{name: tool, description: d, target: {kind: python, callable: '../evil.py:tool'}}]\n"
        "rewards: [{kind: rule, name: r, rule: exact_match}]\ntrain: {algorithm: grpo, steps: many}\n"
    )

    async def script(session: ClientSession) -> None:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == {name for name, offer in OFFERS.items() if not offer.runs_code}
        assert all(tool.annotations.read_only_hint for tool in tools)
        for name in [name for name, offer in OFFERS.items() if offer.runs_code]:
            refused = await session.call_tool(name, {**SPEC, "folder": "x", "run": "latest"})
            assert refused.is_error and "--allow-run" in refused.content[0].text
        checked = await session.call_tool("check", SPEC)
        assert checked.is_error  # exit code 2: the spec is wrong, and the envelope says where
        (fault,) = json.loads(checked.content[0].text)["data"]["faults"]
        assert fault["path"] == "train.steps"
        await session.call_tool("plan", {**SPEC, "overrides": ["train.steps=3"]})

    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    talk(tmp_path, script)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("check", {"specs": ["../other.yaml"]}, "outside of the project"),
        ("check", {"specs": ["/etc/passwd"]}, "outside of the project"),
        ("check", {"specs": ["--help"]}, "does not begin with `-`"),
        ("check", {"specs": ["a.yaml"], "overrides": ["/etc/passwd"]}, "does not match"),
        ("check", {"specs": ["a.yaml"], "overrides": ["--no-import=x"]}, "does not begin with `-`"),
        ("check", {}, '"specs" is a required property'),
        ("check", {"specs": "a.yaml"}, "is not of type"),
        ("check", {"specs": ["a.yaml"], "more": 1}, "more"),
        ("trajectories", {"run": "latest", "k": -1}, "minimum"),
        ("status", {"run": "--help"}, "does not begin with `-`"),
        (
            "run",
            {"specs": ["a.yaml"], "budget_s": 1e9},
            "budget_s: got 1000000000.0; expected more than 0 and at most 60",
        ),
        ("nothing", {}, "no such tool (known: init, check"),
    ],
)
def test_a_call_that_may_not_be_says_what_may_be(tool: str, arguments: dict, words: str, tmp_path: Path) -> None:
    async def main() -> CallToolResult:
        from mcp.client import Client

        served = ServedProject(tmp_path, Path("runs"), allow_run=True, budget_s=60)
        async with Client(make_server(served), mode="legacy") as client:
            return await client.call_tool(tool, arguments)

    result = asyncio.run(main())
    assert result.is_error and words in result.content[0].text
    assert list(tmp_path.iterdir()) == []


def test_documents_schemas_help_and_the_projects_files_are_resources_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/my spec.yaml").write_text("name: mine\n")
    (tmp_path / "specs/link.yaml").symlink_to("/etc/hostname")
    (tmp_path / ".env").write_text("KEY=secret")

    async def script(session: ClientSession) -> None:
        uris = {str(resource.uri) for resource in (await session.list_resources()).resources}
        assert {"rlf://schema/spec", "rlf://help/runs%20compare", "rlf://project/specs/my%20spec.yaml"} <= uris
        assert not [uri for uri in uris if "link" in uri or ".env" in uri]
        texts = {}
        for uri in ("rlf://schema/spec", "rlf://help/check", "rlf://project/specs/my%20spec.yaml"):
            texts[uri] = (await session.read_resource(uri)).contents[0].text
        assert json.loads(texts["rlf://schema/spec"])["title"] == "rlf spec file"
        assert "Usage: rlf check" in texts["rlf://help/check"]
        assert texts["rlf://project/specs/my%20spec.yaml"] == "name: mine\n"
        for uri in ("rlf://project/.env", "rlf://project/specs/link.yaml", "rlf://docs/../README.md"):
            with pytest.raises(Exception, match="no such resource"):
                await session.read_resource(uri)

    talk(tmp_path, script, warm=True)


def test_a_command_over_its_budget_is_interrupted_as_by_ctrl_c() -> None:
    sleeper = "import sys, time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: sys.exit(130)"
    for budget_s, program, code in (("2", sleeper, 130), ("60", "raise SystemExit(3)", 3)):
        command = [sys.executable, "-m", background.__name__, budget_s, sys.executable, "-c", program]
        assert subprocess.run(command).returncode == code


@pytest.mark.parametrize("name", OFFERS)
def test_each_offer_is_a_command_whose_options_take_what_the_schema_allows(name: str) -> None:
    context = typer.main.get_command(app).make_context("rlf", [], resilient_parsing=True)
    for word in OFFERS[name].command.split():
        context = typer.Context(context.command.get_command(context, word), info_name=word, parent=context)
    options = {option: each for each in context.command.params for option in each.opts}
    assert "--json" in options
    for parameter in OFFERS[name].parameters.values():
        if parameter.schema["type"] == "integer" and parameter.option:
            assert options[parameter.option].min == parameter.schema["minimum"], parameter.option
