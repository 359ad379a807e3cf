"""MCP servers as worlds: a session or a key for each trajectory, and lifecycle tools that the model does not see."""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from rlf.apps.imports.worlds import import_world
from rlf.apps.servers.goals import equal_but_drawn
from rlf.core import RlfError
from rlf.environments import EnvSpec
from rlf.environments.playing import follow, open_bench
from rlf.types import Message, Outcome, Task, ToolCall

from ..warm import MCP, warm_python
from .conftest import STOP, call

SERVER = str(Path(__file__).with_name("vault_server.py"))
RESET = {"tool": "reset_state", "arguments": {"code": "{answer}", "seed": "{seed}"}}
OPENED = [call("look", place="desk") + STOP, call("open", code="AMBER7") + STOP, f"Done.{STOP}"]
TWICE = f"""
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

started = Path(sys.argv[1])
text = Path({SERVER!r}).read_text()
if started.exists():
    text = text.replace('look, name="look"', 'look, name="peer"')
started.touch()
exec(text, {{"__name__": "__main__"}})
"""
"""Offers another tool from its second start on."""
CLOSED = [call("open", code="example") + STOP, f"Done.{STOP}"]
SQLITE = Path(sys.prefix) / "mcp-servers" / "bin" / "mcp-server-sqlite"


def vault(*args, **keys):
    """A server of our own as a world."""
    lifecycle = {name: {"tool": tool} for name, tool in {"opening": "greet", "score": "get_score"}.items()}
    server = {"command": warm_python(*MCP), "args": [SERVER, *args], "start_timeout_s": 60}
    return {"kind": "mcp", "server": server, "reset": RESET, "save": {"tool": "save_state"}, **lifecycle, **keys}


def task(answer="AMBER7"):
    return Task("t", (Message("user", "Please."),), columns={"answer": answer})


@pytest.mark.parametrize("keys", [{}, {"key": "world", "end": {"tool": "forget"}}], ids=["session", "key"])
def test_trajectories_have_a_world_each_and_see_no_lifecycle(played, keys):
    env = vault(*(["keyed"] if keys else []), **keys)
    (opened, closed), _ = played(env, OPENED, CLOSED, task=task())
    assert [record.result.text for record in opened.calls] == ["A note: AMBER7", "It is open."]
    assert (opened.world.scores, closed.world.scores) == ({"opened": 1.0}, {"opened": 0.0})
    assert opened.world.observation == "Open the vault; the code has 6 signs."
    assert opened.turns[1].world.changes[0].difference == "opened: false -> true"
    tools = EnvSpec.model_validate(env).tools
    assert [tool.name for tool in tools] == ["look", "open"]
    assert all("world" not in tool.input_schema["properties"] for tool in tools)


def by_state(*args, **keys):
    """The same server without a tool that scores."""
    env = vault("scoreless", *args, after="gold", **keys)
    del env["score"]
    return env


def opened_by(*codes, tool="open"):
    """A task whose goal is the state after these calls."""
    calls = [{"name": tool, "arguments": {"code": code}} for code in codes]
    return Task("t", (Message("user", "Please."),), columns={"answer": "AMBER7", "gold": calls})


@pytest.mark.parametrize("keys", [{}, {"key": "world", "end": {"tool": "forget"}}], ids=["session", "key"])
def test_a_server_without_a_score_is_scored_by_the_state_after_the_rows_calls(played, keys):
    env = by_state(*(["keyed"] if keys else []), **keys)
    assert EnvSpec.model_validate(env).missing_columns(["answer"]) == ["gold"]
    (opened, closed), _ = played(env, OPENED, CLOSED, task=opened_by("BASALT3", "AMBER7"))
    assert (opened.world.scores, closed.world.scores) == ({"score": 1.0}, {"score": 0.0}), (opened.error, closed.error)
    (opened, closed), _ = played(env, OPENED, CLOSED, task=opened_by("BASALT3"))
    assert (opened.world.scores, closed.world.scores) == ({"score": 0.0}, {"score": 1.0})


def test_identifiers_that_the_server_draws_are_not_compared_and_all_else_is(played):
    wrong = [call("open", code="OTHER1") + STOP, call("open", code="AMBER7") + STOP, f"Done.{STOP}"]
    twice = [call("open", code="AMBER7") + STOP] * 2 + [f"Done.{STOP}"]
    (right, *others), _ = played(by_state("drawing"), OPENED, CLOSED, wrong, twice, task=opened_by("AMBER7"))
    assert right.world.scores == {"score": 1.0}, right.error
    assert [one.world.scores for one in others] == [{"score": 0.0}] * 3, [one.error for one in others]


@pytest.mark.parametrize(
    "at", [int, lambda s: int(s * 1000), lambda s: datetime.fromtimestamp(s, UTC).isoformat("T", "seconds")]
)
def test_times_of_writing_are_not_compared_although_two_goals_share_them(at):
    def state(seconds, due):
        return {"orders": [{"made": at(seconds), "due": at(due)}]}

    now, year = time.time(), 365 * 86400
    goals = [state(now, now + year)] * 2
    assert equal_but_drawn(state(now - 30, now + year), goals)
    assert not equal_but_drawn(state(now - 30, now + 2 * year), goals)


def test_the_rows_calls_are_the_solution_that_trials_play():
    async def play(task):
        env = EnvSpec.model_validate(by_state() | {"after": "calls"})
        async with open_bench(env, [task], seed=0) as bench:
            gold = await bench.gold(task)
            return gold, (await bench.play(task, follow(gold))).scores

    calls = json.dumps([{"name": "open", "arguments": {"code": "AMBER7"}}])
    gold, scores = asyncio.run(play(Task("t", (), columns={"answer": "AMBER7", "calls": calls})))
    assert gold == (ToolCall("open", {"code": "AMBER7"}),) and scores == (("score", 1.0),)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (opened_by("AMBER7", tool="unlock"), "the goal's call of unlock"),
        (Task("t", (Message("user", "?"),), columns={"answer": "A", "gold": ["open it"]}), "expected calls alone"),
        (Task("t", (Message("user", "?"),), columns={"answer": "A", "gold": "no JSON"}), "score: "),
        (Task("t", (Message("user", "?"),), columns={"answer": "A", "gold": None}), "does not say what leads"),
    ],
)
def test_a_goal_that_cannot_be_reached_makes_the_trajectory_unscorable_by_name(played, task, words):
    ((trajectory,), _) = played(by_state(), [f"Done.{STOP}"], task=task)
    assert words in trajectory.error and not trajectory.scorable


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"after": "gold"}, "write one of them"),
        ({"score": None}, "write one of them"),
        ({"score": None, "after": "gold", "save": None}, "write `save` too"),
    ],
)
def test_a_world_is_scored_in_one_way(keys, words):
    with pytest.raises(ValidationError, match=words):
        EnvSpec.model_validate(vault(**keys))


def test_a_server_without_a_score_is_imported_by_the_tool_that_shows_its_state(tmp_path):
    done = import_world("mcp", f"{warm_python(*MCP)} {SERVER} scoreless", tmp_path / "world.yaml")
    env = yaml.safe_load(done.text)["env"]
    assert (env["save"], env["after"]) == ({"tool": "save_state"}, "gold") and "score" not in env
    assert "data: the row's column `gold` holds the calls (`name`, `arguments`) that lead to the goal" in done.notes


def test_what_the_server_refuses_is_read_by_the_model(played):
    ((trajectory,), _) = played(vault(), [call("look", place="cellar") + STOP, f"Done.{STOP}"], task=task())
    assert trajectory.calls[0].result.outcome is Outcome.TOOL_ERROR
    assert "Error executing tool look" in trajectory.calls[0].result.text and trajectory.scorable


def test_a_lifecycle_call_that_is_refused_makes_the_trajectory_unscorable(played):
    ((trajectory,), _) = played(vault(), [f"Done.{STOP}"], task=task("BROKEN"))
    assert "world mcp: score: RuntimeError: get_score" in trajectory.error and not trajectory.scorable


def test_names_that_the_server_lacks_are_faults_before_the_run():
    spec = EnvSpec.model_validate(vault(score={"tool": "get_scores"}, shown=["look", "reset_state"]))
    assert [complaint.partition(" (it has")[0] for complaint in spec.complaints()] == [
        "score.tool: the server has no tool 'get_scores'; did you mean 'get_score'?",
        "shown: 'reset_state' is a lifecycle tool, which the model must not see",
    ]


def test_a_server_that_changed_since_it_was_listed_is_found_before_the_first_world(played, tmp_path, monkeypatch):
    source = Path(SERVER).read_text(encoding="utf-8")
    (tmp_path / "vault_as_module.py").write_text(source)
    env = vault(shown=["look", "open"])
    env["server"] |= {"args": ["-m", "vault_as_module"], "cwd": str(tmp_path)}  # whose content its identity lacks
    assert [tool.name for tool in EnvSpec.model_validate(env).tools] == ["look", "open"]
    changed = source.replace('look, name="look"', 'look, name="peer"').replace("code: str) -> str", "key: str) -> str")
    (tmp_path / "vault_as_module.py").write_text(changed)
    monkeypatch.setattr("rlf.tools.mcp.listing._READ", {})  # as another process finds it
    with pytest.raises(RlfError, match=r"changed look, open since its tools were listed\. They are listed again now"):
        played(env, OPENED, task=task())
    assert EnvSpec.model_validate(env).complaints()[0].startswith("shown: the server has no tool 'look'")


def test_a_session_without_a_tool_that_the_policy_is_shown_is_no_world(played, tmp_path):
    (tmp_path / "twice.py").write_text(TWICE)
    env = vault()
    env["server"] |= {"args": [str(tmp_path / "twice.py"), str(tmp_path / "started")]}
    ((trajectory,), _) = played(env, OPENED, task=task())
    assert "no longer has look" in trajectory.error and not trajectory.scorable


@pytest.mark.skipif(not SQLITE.exists(), reason=f"{SQLITE} is not there: `make .venv/mcp-servers/ready` installs it")
def test_a_server_of_the_registry_is_a_world_in_a_folder_of_its_own(played):
    query = "SELECT count(*) = 1 AS noted FROM notes WHERE text = '{answer}'"
    env = {
        "kind": "mcp",
        "server": {"command": str(SQLITE), "args": ["--db-path", "{folder}/notes.db"], "start_timeout_s": 60},
        "reset": {"tool": "create_table", "arguments": {"query": "CREATE TABLE notes (text TEXT)"}},
        "score": {"tool": "read_query", "arguments": {"query": query}},
        "shown": ["write_query", "list_tables"],
    }
    write = call("write_query", query="INSERT INTO notes VALUES ('AMBER7')") + STOP
    noted, idle = played(env, [write, f"Done.{STOP}"], [call("list_tables") + STOP, f"Done.{STOP}"], task=task())[0]
    assert (noted.world.scores, idle.world.scores) == ({"noted": 1.0}, {"noted": 0.0}), (noted.error, idle.error)
