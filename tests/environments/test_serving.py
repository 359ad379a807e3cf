"""`rlf env serve`: a spec's world for OpenEnv's own client and validator, for MCP clients, and for rlf's own kinds."""

import asyncio
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from rlf.types import Message, Outcome, Task

from ..processes import Process, call_rlf
from ..warm import MCP, warm_python
from .conftest import STOP, call, openenv_python

HERE = Path(__file__).parent
CODES = ("AMBER7", "BASALT3", "CORAL9")


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A world in a file of its own."""
    folder = tmp_path_factory.mktemp("served")
    rows = [{"question": "Please.", "answer": code} for code in CODES]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "world.yaml").write_text(
        f"env: {{kind: python, callable: '{HERE / 'vaults.py'}:Vault'}}\n"
        "rewards: [{kind: env, name: opened, score: opened}]\n"
        "data: {train: {path: rows.jsonl, prompt: question, answer: answer}}\n"
    )
    return folder / "world.yaml"


@pytest.fixture(scope="module")
def url(spec):
    """OpenEnv's protocol, served by the command."""
    with Process(call_rlf, "env", "serve", str(spec), "--openenv", "--port", "0") as served:
        line = next(line for line in served.stderr if line.startswith("http"))
        yield line.strip()
        served.send_signal(signal.SIGTERM)
        served.wait(20)


@pytest.fixture(scope="module")
def openenv(url):
    """What OpenEnv's clients and validator print."""
    script = [openenv_python(), HERE / "openenv_clients.py", url]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr[-2000:]
    played, _, report = done.stdout.partition("\n")
    return json.loads(played), json.loads(report)


def test_openenv_validates_the_server_on_all_six_points(openenv):
    _, report = openenv
    assert report["passed"] and (report["summary"]["passed_count"], report["summary"]["total_count"]) == (6, 6)


def test_several_of_openenvs_own_clients_have_a_world_each(openenv):
    played, _ = openenv
    for code, (began, seen, reward, is_over, scores) in zip(CODES, played, strict=True):
        assert (began, seen) == ("Please.\n\nOpen the vault.", f"A note: {code}")
        assert (reward, is_over, scores) == (1.0, True, {"opened": 1.0})


def test_plain_http_is_reported_why_it_steps_nothing(url):
    request = urllib.request.Request(f"{url}/step", data=b"{}", headers={"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 409 and b"holds no session" in refused.value.read()


def test_rlfs_own_client_plays_the_served_world(played, url):
    turns = [call("step", tool="look", arguments={"place": "desk"}) + STOP]
    turns += [call("step", tool="open", arguments={"code": "BASALT3"}) + STOP]
    turns += [call("step", text="Done.") + STOP, f"!{STOP}"]
    task = Task("t", (Message("user", "Go."),), columns={"seed": 1})
    ((trajectory,), _) = played({"kind": "openenv", "url": url}, turns, task=task)
    assert [record.result.text for record in trajectory.calls][:2] == ["A note: BASALT3", "It is open."]
    assert trajectory.world.scores == {"score": 1.0, "last": 1.0}


def test_a_client_for_whom_no_world_is_left_is_refused_at_once(spec):
    async def ask(url):
        async with aiohttp.ClientSession() as client, client.ws_connect(f"{url}/ws") as first:
            await first.send_json({"type": "reset", "data": {}})
            began = await first.receive_json()
            async with client.ws_connect(f"{url}/ws") as second:
                refused = await second.receive_json(timeout=60)
        async with aiohttp.ClientSession() as client, client.ws_connect(f"{url}/ws") as third:
            await third.send_json({"type": "reset", "data": {}})
            return began["type"], refused["data"]["code"], (await third.receive_json(timeout=60))["type"]

    command = ("env", "serve", str(spec), "env.limits.max_concurrency=1", "--openenv", "--port", "0")
    with Process(call_rlf, *command) as served:
        url = next(line for line in served.stderr if line.startswith("http")).strip()
        assert asyncio.run(ask(url)) == ("observation", "CAPACITY_REACHED", "observation")
        served.send_signal(signal.SIGTERM)
        served.wait(20)


def test_the_same_world_over_mcp_has_lifecycle_tools_for_the_trainer(played, spec):
    server = {"command": warm_python(*MCP), "args": ["-m", "rlf", "env", "serve", str(spec), "--mcp", "stdio"]}
    env = {
        "kind": "mcp",
        "server": server | {"start_timeout_s": 120, "env": {"PYTHONPATH": str(HERE.parents[1])}},
        "reset": {"tool": "reset_state", "arguments": {"task": "{number}"}},
        "score": {"tool": "get_score"},
        "save": {"tool": "save_state"},
        "end": {"tool": "end_world"},
        "key": "world",
        "limits": {"reset_s": 120},
    }
    task = Task("t", (Message("user", "Go."),), columns={"number": 2})
    turns = [call("look", place="desk") + STOP, call("open", code="CORAL9") + STOP, f"Done.{STOP}"]
    (trajectory, idle), _ = played(env, turns, [f"Done.{STOP}"], task=task)
    assert trajectory.error is None, trajectory.error
    assert [record.result.text for record in trajectory.calls] == ["A note: CORAL9", "It is open."]
    assert trajectory.turns[1].world.changes[0].difference == "state.opened: false -> true"
    assert trajectory.world.first_state == idle.world.first_state
    assert (trajectory.world.scores, idle.world.scores) == ({"opened": 1.0}, {"opened": 0.0})


@pytest.mark.parametrize("place", ["attic", "shelf"])
def test_a_served_world_that_fails_takes_no_reward_from_the_policy(played, spec, place):
    vault = f"env.callable={HERE / 'vaults.py'}:Brittle"  # fails at places that it does not know
    command = ["-m", "rlf", "env", "serve", str(spec), vault, "--mcp", "stdio"]
    env = {
        "kind": "mcp",
        "server": {"command": warm_python(*MCP), "args": command, "start_timeout_s": 120},
        "score": {"tool": "get_score"},
        "limits": {"reset_s": 120},
    }
    env["server"]["env"] = {"PYTHONPATH": str(HERE.parents[1])}
    ((trajectory,), _) = played(env, [call("look", place=place) + STOP, f"Done.{STOP}"])
    if place == "shelf":
        assert trajectory.scorable and trajectory.world.scores == {"opened": 0.0}
        return
    assert trajectory.calls[0].result.outcome is Outcome.INFRA, trajectory.calls[0].result
    assert not trajectory.scorable and "world python: step" in trajectory.error


def test_the_served_worlds_are_imported_as_the_yaml_of_a_world(url, tmp_path):
    from rlf.apps.imports.worlds import import_world

    done = import_world("openenv", url, tmp_path / "world.yaml")
    assert f"url: {url}" in done.text and (tmp_path / "world.yaml").read_text() == done.text


SLOW = """
import time
from pathlib import Path

class Slow:
    def look(self) -> str:
        "Looks."
        return "Nothing."

    def score(self):
        return 0.0

    def close(self):
        Path(__file__).with_name("closing").touch()
        time.sleep(0.5)
        Path(__file__).with_name("closed").touch()
"""


async def stop_with_a_client(served, address, closing):
    """Stops a server while a client is connected."""
    async with aiohttp.ClientSession() as client, client.ws_connect(f"{address}/ws") as socket:
        await socket.send_json({"type": "reset", "data": {}})
        await socket.receive_json()
        await asyncio.to_thread(terminate_twice, served, closing)


def terminate_twice(served, closing):
    """The second time when the world begins to close."""
    served.send_signal(signal.SIGTERM)
    until_s = time.monotonic() + 20
    while not closing.exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    served.send_signal(signal.SIGTERM)
    served.wait(20)


def test_the_world_of_a_connected_client_closes_when_the_server_is_stopped(spec, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.yaml").write_text(f"{{env: {{kind: python, callable: '{tmp_path / 'slow.py'}:Slow'}}}}")
    terms = "rewards=[{kind: env, name: score, score: score}]"
    with Process(
        call_rlf, "env", "serve", str(spec), str(tmp_path / "slow.yaml"), terms, "--openenv", "--port", "0"
    ) as served:
        address = next(line for line in served.stderr if line.startswith("http")).strip()
        asyncio.run(stop_with_a_client(served, address, tmp_path / "closing"))
    assert (tmp_path / "closed").exists()


async def call_ended_world(address):
    """What a world that was ended answers to a call, and after its next reset."""
    async with streamable_http_client(address) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        await session.call_tool("end_world", {"world": "w"})
        look = {"place": "desk", "world": "w"}
        late = await session.call_tool("look", look)
        await session.call_tool("reset_state", {"task": 0, "world": "w"})
        return [result.content[0].text for result in (late, await session.call_tool("look", look))]


def test_the_world_over_mcp_on_http_has_one_episode_for_each_key(played, spec):
    command = [warm_python(*MCP), "-m", "rlf", "env", "serve", str(spec), "--mcp", "http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        try:
            address = next(line for line in served.stderr if line.startswith("http")).strip()
            env = {
                "kind": "mcp",
                "server": {"url": address, "start_timeout_s": 60},
                "reset": {"tool": "reset_state", "arguments": {"task": "{number}"}},
                "score": {"tool": "get_score"},
                "end": {"tool": "end_world"},
                "key": "world",
            }
            task = Task("t", (Message("user", "Go."),), columns={"number": 2})
            script = [call("open", code="CORAL9") + STOP, f"Done.{STOP}"]
            (opened, idle), _ = played(env, script, [f"Done.{STOP}"], task=task)
            late = asyncio.run(call_ended_world(address))
        finally:
            served.terminate()
            served.wait(20)
    assert late == ["world 'w' has ended; call reset_state to begin it again", "A note: AMBER7"]
    assert opened.error is idle.error is None, (opened.error, idle.error)
    assert (opened.world.scores, idle.world.scores) == ({"opened": 1.0}, {"opened": 0.0})
