"""Five MCP servers that others wrote, as their users have them: imported, tested from elsewhere, called within a run.

`make .venv/mcp-servers/ready` installs them, beside rlf's own environment: three from PyPI, two from npm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

from rlf.cli.main import app
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage

INSTALLED = Path(sys.prefix) / "mcp-servers"


class Server(NamedTuple):
    """A server, and one call of it."""

    program: str
    arguments: str
    """As a user in the project's folder writes them."""
    tool: str
    call: Mapping[str, Any]
    """Arguments; `PROJECT` stands for the project's folder."""
    contains: str


SERVERS = {
    "time": Server(
        "bin/mcp-server-time",
        "--local-timezone Europe/Rome",
        "convert_time",
        {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "06:00"},
        "T15:00:00+09:00",
    ),
    "sqlite": Server(
        "bin/mcp-server-sqlite",  # lists resources, but no templates of them
        "--db-path notes.db",
        "read_query",
        {"query": "SELECT 6 * 7 AS answer"},
        "42",
    ),
    "git": Server(
        "bin/mcp-server-git", "--repository repo", "git_status", {"repo_path": "PROJECT/repo"}, "No commits yet"
    ),
    "filesystem": Server(
        "node_modules/.bin/mcp-server-filesystem", "data", "list_directory", {"path": "PROJECT/data"}, "note.txt"
    ),
    "everything": Server(
        "node_modules/.bin/mcp-server-everything", "stdio", "echo", {"message": "hello"}, "Echo: hello"
    ),
}

SPEC = """\
name: served
model: {path: builtin:tiny}
data: {train: {path: one.jsonl, prompt: question, answer: answer}}
tools: TOOLS
rewards: TERMS
rollout: {num_generations: 2, max_turns: 1, max_total_tokens: 128}
train: {algorithm: grpo, steps: 1, prompts_per_step: 1}
"""
CONTAINS = "def contains(got, expected):\n    return float(EXPECTED in got.text)\n"


def program(name: str) -> Path:
    path = INSTALLED / SERVERS[name].program
    if not path.exists():
        pytest.skip(f"{path.name} is not installed: `make .venv/mcp-servers/ready` needs PyPI, and npm for two of them")
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the servers serve."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "data").mkdir()
    (folder / "data/note.txt").write_text("hello")
    subprocess.run(["git", "init", "-q", str(folder / "repo")], check=True)
    return folder


@pytest.fixture(autouse=True)
def lists_are_kept_in_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))


def arguments_of(name: str, project: Path) -> Any:
    return json.loads(json.dumps(dict(SERVERS[name].call)).replace("PROJECT", str(project)))


def imported(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the server's tool; a server is imported once."""
    server, folder = SERVERS[name], project / "tool_specs" / name
    if not folder.exists():
        monkeypatch.chdir(project)
        command = f"{program(name)} {server.arguments}"
        ran = CliRunner().invoke(app, ["tools", "import", "mcp", command, "--out", f"tool_specs/{name}"])
        assert ran.exit_code == 0, ran.output
    return folder / f"{server.tool}.yaml"


@pytest.mark.parametrize("name", SERVERS)
def test_an_imported_server_passes_its_test_from_another_folder(
    name: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = imported(name, project, monkeypatch)
    declared = yaml.safe_load(file.read_text())
    example = {"arguments": arguments_of(name, project), "expect": {"contains": SERVERS[name].contains}}
    file.write_text(yaml.safe_dump({**declared, "tests": [example]}))
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["tools", "test", str(file), "--json"])
    assert ran.exit_code == 0, ran.output


def test_every_installed_server_is_called_within_a_run(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name, server in SERVERS.items() if (INSTALLED / server.program).exists()]
    if not names:
        program("time")
    tools = [{"use": str(imported(name, project, monkeypatch)), "hidden": True} for name in names]
    terms = []
    for name in names:
        (tmp_path / f"{name}.py").write_text(CONTAINS.replace("EXPECTED", repr(SERVERS[name].contains)))
        term = {"kind": "verify", "name": name, "tool": SERVERS[name].tool, "compare": "callable", "timeout_s": 60}
        terms.append({**term, "arguments": arguments_of(name, project), "callable": f"./{name}.py:contains"})
    text = SPEC.replace("TOOLS", json.dumps(tools)).replace("TERMS", json.dumps(terms))
    (tmp_path / "run.yaml").write_text(text)
    (tmp_path / "one.jsonl").write_text('{"question": "What time is it?", "answer": "late"}\n')
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["run", "run.yaml"])
    assert ran.exit_code == 0, ran.output
    with open_lineage(tmp_path / "runs") as store:
        reader = Reader(store)
        (found,) = reader.list_runs()
        scores = reader.trajectory(found.record.id, k=0, step=1).scored.scores
    assert {score.term: (score.value, score.reason) for score in scores} == dict.fromkeys(names, (1.0, ""))
