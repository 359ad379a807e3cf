"""OpenEnv: a world behind the real server, of `.venv/worlds/openenv`, played by rlf over its WebSocket."""

import asyncio
import io
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlf.apps.imports.worlds import import_world
from rlf.apps.servers.openenv import _read_result
from rlf.apps.worlds.examine import ATTACKS, TRIALS, examine_world
from rlf.apps.worlds.trial import Sign
from rlf.core import RlfError
from rlf.environments import EnvSpec
from rlf.environments.playing import Ranges, open_bench
from rlf.tools.outputs import to_output
from rlf.types import Message, Outcome, StopReason, Task

from ...environments.conftest import STOP, call, openenv_python

SERVER = Path(__file__).with_name("openenv_server.py")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextmanager
def serve_openenv(*arguments):
    """The address of a server that OpenEnv itself runs."""
    port = free_port()
    process = subprocess.Popen([openenv_python(), SERVER, str(port), *arguments], env={"PATH": "/usr/bin:/bin"})
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            break
        except OSError:
            time.sleep(0.1)
    try:
        yield url
    finally:
        process.kill()  # a world that hangs ends no other way
        process.wait(10)


@pytest.fixture(scope="module")
def url():
    with serve_openenv() as address:
        yield address


@pytest.fixture(scope="module")
def tools_url():
    with serve_openenv("tools", "1") as address:
        yield address


def task(seed=11):
    return Task("t", (Message("user", "Play."),), columns={"seed": seed})


def test_sessions_are_stepped_over_the_websocket(played, url):
    env = {"kind": "openenv", "url": url, "tool": "guess"}
    turns = [call("guess", guess=10) + STOP, call("guess", guess=12) + STOP, f"Done.{STOP}"]
    one, other = played(env, turns, [call("guess", guess=20) + STOP, f"Done.{STOP}"], task=task())[0]
    assert [record.result.text for record in one.calls] == ["higher", "Right."], one.error
    assert one.stop is StopReason.ENV_DONE and one.world.scores == {"score": 1.0, "last": 1.0}
    assert one.world.observation == "Guess."
    assert [record.result.text for record in other.calls] == ["lower"] and other.world.scores["score"] == 0.0


def test_a_reward_that_the_server_never_gave_is_missing(played, url):
    env = {"kind": "openenv", "url": url, "tool": "guess"}
    (silent,) = played(env, [f"Done.{STOP}"], task=task())[0]
    assert list(silent.calls) == [] and silent.world.scores == {}


def test_the_tool_has_the_servers_own_schema(played, url):
    env = EnvSpec.model_validate({"kind": "openenv", "url": url})
    assert env.complaints() == []
    (tool,) = env.tools
    assert (tool.name, tool.description, list(tool.input_schema["properties"])) == (
        "step",
        "Guess the number.",
        ["guess"],
    )
    ((trajectory,), _) = played(env, [call("step", guess="many") + STOP, f"Done.{STOP}"], task=task())
    assert trajectory.calls[0].result.outcome is Outcome.INVALID_ARGUMENTS


def test_mcp_tools_of_a_server_are_the_models_tools_and_their_results_are_unwrapped(played, tools_url):
    env = EnvSpec.model_validate({"kind": "openenv", "url": tools_url})
    assert env.complaints() == []
    assert {tool.name: list(tool.input_schema["properties"]) for tool in env.tools} == {
        "price": ["item"],
        "buy": ["item", "num"],
        "count": [],
    }
    calls = [call("price", item="pear"), call("count"), call("buy", item="air"), call("buy", item="fig", num=2)]
    turns = [*(one + STOP for one in [*calls, call("count"), call("buy", item="pear")]), f"Done.{STOP}"]
    ((one,), _) = played(env, turns, task=task(), max_turns=9)
    texts = [record.result.text for record in one.calls]
    assert texts[:2] == ['{"item":"pear","coins":4}', "0"], one.error
    assert "there is no air" in texts[2] and one.calls[2].result.outcome is Outcome.TOOL_ERROR
    assert texts[3:5] == ["bought: ['fig', 'fig']", "2"]
    assert one.stop is StopReason.ENV_DONE and one.world.scores == {"score": 1.0, "last": 1.0}


def test_an_import_has_as_many_worlds_as_the_server_has_sessions_and_names_no_reward_that_it_does_not_give(
    tools_url, tmp_path, monkeypatch
):
    done = import_world("openenv", tools_url, tmp_path / "world.yaml")
    assert "max_concurrency: 1" in done.text and "score: score" in done.text and not done.notes

    async def nothing(world):
        return {}

    monkeypatch.setattr("rlf.apps.servers.openenv._OpenEnvWorld.score", nothing)
    done = import_world("openenv", tools_url, tmp_path / "silent.yaml")
    assert "rewards:" not in done.text and "gave none" in done.notes[0]


def test_worlds_of_a_server_with_one_session_are_played_one_after_the_other(played, tools_url):
    env = {"kind": "openenv", "url": tools_url, "limits": {"max_concurrency": 1}}
    turns = [call("buy", item="pear") + STOP, f"Done.{STOP}"]
    many = played(env, *[turns] * 6, task=task())[0]
    assert [one.error for one in many] == [None] * 6
    assert [one.calls[0].result.text for one in many] == ["bought: ['pear']"] * 6


@pytest.mark.parametrize("checks", [TRIALS, ATTACKS])
def test_a_server_with_one_session_is_tried_to_the_end(tools_url, checks):
    env = EnvSpec.model_validate({"kind": "openenv", "url": tools_url, "limits": {"max_concurrency": 1}})
    ranges = Ranges({"score": (0.0, 1.0)}, {})

    async def try_all():
        async with open_bench(env, [task(1), task(2)], seed=0) as bench:
            return await examine_world(bench, ranges, checks, tolerance=0.2, seen=bool)

    page = asyncio.run(asyncio.wait_for(try_all(), 120))
    verdicts = {verdict.name: (verdict.sign, verdict.words) for verdict in page.verdicts}
    assert list(verdicts) == list(checks) and verdicts["reset"][0] is Sign.OK, verdicts
    assert verdicts["isolation"] == (
        Sign.UNKNOWN,
        "`limits.max_concurrency` is 1, so that there is never a second world",
    )


@pytest.mark.parametrize(
    ("observation", "text", "is_error"),
    [
        ({"tool_name": "t", "result": {"temperature": 3}}, '{"temperature": 3}', False),
        ({"tool_name": "t", "result": 0}, "0", False),
        ({"result": {"content": [], "structured_content": {"a": 1}, "is_error": False, "data": 5}}, '{"a": 1}', False),
        ({"result": {"content": [{"type": "text", "text": "no"}], "is_error": True}}, "no", True),
        ({"result": None, "error": {"error_type": "timeout", "message": "late"}}, "late", True),
        ({"result": {"content": "of a page"}}, '{"content": "of a page"}', False),
    ],
)
def test_a_tools_result_is_read_through_each_wrapper(observation, text, is_error):
    output = to_output(_read_result(observation))
    assert (output.text, output.is_error) == (text, is_error)


def test_plain_http_is_refused_with_the_reason(url):
    for path in ("step", "reset"):
        (complaint,) = EnvSpec.model_validate({"kind": "openenv", "url": f"{url}/{path}"}).complaints()
        assert "each `POST /step` steps a fresh world" in complaint


def test_a_world_that_breaks_on_the_server_makes_the_trajectory_unscorable(played, url):
    ((trajectory,), _) = played(
        {"kind": "openenv", "url": url}, [call("step", guess=-1) + STOP, f"!{STOP}"], task=task()
    )
    assert "the world broke (EXECUTION_ERROR)" in trajectory.error and not trajectory.scorable


def test_a_server_that_is_not_there_is_a_fault_before_the_run():
    from rlf.core import RlfError

    with pytest.raises(RlfError, match="Start the OpenEnv server"):
        EnvSpec.model_validate({"kind": "openenv", "url": f"http://127.0.0.1:{free_port()}"}).complaints()


@pytest.mark.parametrize(
    ("answer", "words"), [(b"[]", "expected the answer of an OpenEnv server"), (b"{}", "describes no action")]
)
def test_a_server_of_another_kind_is_a_fault_and_no_traceback(monkeypatch, answer, words):
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(answer))
    env = EnvSpec.model_validate({"kind": "openenv", "url": "http://127.0.0.1:1"})
    with pytest.raises(RlfError, match=words):
        assert env.tools
