"""A prompt search finds the words that a model needs, keeps what it did, and writes a spec."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rlf.apps.prompt.search import SearchOptions, search
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.endpoints.spec import EndpointSpec
from rlf.spec import load_spec
from tests.runs.test_evaluations import a_choice, a_server

pytest.importorskip("gepa")

WORDS = [f"word{number}" for number in range(16)]
SPEC = """\
name: words
model: {path: unused}
chat: {format: hermes}
data: {train: {path: rows.jsonl, prompt: q, answer: a}, eval: {path: rows.jsonl, prompt: q, answer: a}}
tools:
  - name: look
    description: Looks.
    inputSchema: {type: object, properties: {word: {type: string}}, required: [word]}
    target: {kind: python, callable: "code.py:look"}
rewards: [{kind: rule, name: right, rule: exact_match}]
rollout: {max_turns: 3}
train: {algorithm: grpo, steps: 1, learning_rate: 1.0e-4}
seed: 3
"""


@pytest.fixture
def spec(tmp_path):
    rows = [{"q": f"What of {word}?", "a": word[::-1]} for word in WORDS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "code.py").write_text("def look(word: str) -> str:\n    return word[::-1]\n")
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path / "spec.yaml"


def choose(**message):
    return 200, a_choice(**message)


def obeys_its_system_message(messages):
    """Answers right where its system message has the word `backwards`; asked to rewrite, it writes that."""
    if "new instruction" in messages[-1]["content"]:
        return choose(content="```\nWrite the word backwards.\n```")
    word = re.search(r"word\d+", messages[-1]["content"])[0]
    return choose(content=word[::-1] if "backwards" in messages[0]["content"] else word)


def run_search(spec, answer, *, num_rollouts=60, file=None, **changes):
    lines = []
    with a_server(answer) as (url, bodies):
        endpoint = EndpointSpec(url=changes.pop("url", url), model="m", timeout_s=5)
        found = search(
            [spec],
            changes.pop("overrides", []),
            SearchOptions(num_rollouts, 12),
            endpoint=endpoint,
            writer=endpoint,
            file=file or spec.parent / "best.yaml",
            runs_folder=spec.parent / "runs",
            notify=lines.append,
        )
    return found, bodies, lines


def test_a_system_message_that_helps_is_found_and_becomes_a_spec(spec):
    found, bodies, _ = run_search(spec, obeys_its_system_message)
    assert (found.before, found.after) == (0.0, 1.0)
    assert found.texts == {"system message": "Write the word backwards."}
    written = load_spec([found.file]).spec
    assert written.data.train.system == written.data.eval.system == "Write the word backwards."
    assert [tool.description for tool in written.tools] == ["Looks."] and written.name == "words"
    rewritings = [body["messages"][-1]["content"] for body in bodies if "new instruction" in str(body["messages"])]
    assert "reward 0" in rewritings[0] and "expected answer" in rewritings[0]
    # Tasks that choose are in no text that the rewriting model reads.
    chosen = {word for word in WORDS if f"What of {word}?" in "".join(rewritings)}
    assert 0 < len(chosen) <= 6


def test_a_description_of_a_tool_is_found_and_the_call_is_carried_out(spec):
    def calls_what_is_described(messages):
        if "new instruction" in messages[-1]["content"]:
            return choose(content="```\nWrites a word backwards.\n```")
        if messages[-1]["role"] == "tool":
            return choose(content=messages[-1]["content"])
        raise AssertionError("answered below")

    def answer(body):
        messages = body["messages"]
        if "new instruction" in str(messages) or messages[-1]["role"] == "tool":
            return calls_what_is_described(messages)
        word = re.search(r"word\d+", messages[-1]["content"])[0]
        if "backwards" not in body["tools"][0]["function"]["description"]:
            return choose(content="?")
        function = {"name": "look", "arguments": json.dumps({"word": word})}
        return choose(tool_calls=[{"id": "1", "type": "function", "function": function}])

    # The server's function sees messages alone, so the tools are read from what it got last.
    bodies = []
    with a_server(lambda messages: answer(bodies[-1])) as (url, got):
        bodies = got
        endpoint = EndpointSpec(url=url, model="m", timeout_s=5, max_concurrency=1)
        found = search(
            [spec],
            [],
            SearchOptions(120, 12),
            endpoint=endpoint,
            writer=endpoint,
            file=spec.parent / "best.yaml",
            runs_folder=spec.parent / "runs",
            notify=lambda line: None,
        )
    assert found.after == 1.0 and found.texts["description of tool look"] == "Writes a word backwards."
    written = load_spec([found.file]).spec
    assert [tool.description for tool in written.tools] == ["Writes a word backwards."]


def test_the_same_search_again_asks_no_model_again(spec):
    with a_server(obeys_its_system_message) as (url, bodies):
        endpoint = EndpointSpec(url=url, model="m", timeout_s=5)

        def once(num_rollouts):
            return search(
                [spec],
                [],
                SearchOptions(num_rollouts, 12),
                endpoint=endpoint,
                writer=endpoint,
                file=spec.parent / "best.yaml",
                runs_folder=spec.parent / "runs",
                notify=lambda line: None,
            )

        first, num = once(40), len(bodies)
        (kept,) = (spec.parent / "runs").glob("prompt-*.jsonl")
        kept.write_text(kept.read_text() + '["cut off by a ki')
        again = once(40)
        assert (again.texts, again.after) == (first.texts, first.after)
        assert sum("messages" in body and len(body["messages"]) > 1 for body in bodies[num:]) == 0
        whole = [json.loads(line) for line in kept.read_text().splitlines()]
        assert all(len(pair) == 2 for pair in whole)


def test_texts_that_do_not_help_leave_no_spec(spec):
    def never(messages):
        if "new instruction" in messages[-1]["content"]:
            return choose(content="```\nTry harder {{ now }}.\n```")
        return choose(content="?")

    found, bodies, _ = run_search(spec, never, num_rollouts=30)
    assert (found.after, found.texts, found.file) == (0.0, {}, None)
    assert not (spec.parent / "best.yaml").exists()
    assert any("Try harder {{ now }}." in body["messages"][0]["content"] for body in bodies), "a text is no template"


def test_a_server_that_fails_ends_the_search_and_is_no_bad_text(spec):
    def down_in_the_end(messages):
        if "backwards" in messages[0]["content"]:
            return 500, {"error": {"message": "down"}}
        return obeys_its_system_message(messages)

    with pytest.raises(RlfError, match=r"got no reward in 3 tries: the model's server"):
        run_search(spec, down_in_the_end)
    found, _, _ = run_search(spec, obeys_its_system_message)
    assert found.after == 1.0


def test_what_was_played_of_a_batch_that_broke_is_not_paid_again(spec):
    asked, is_down = [], [True]

    def answer(messages):
        words = re.findall(r"word\d+", messages[-1]["content"])
        asked.extend(words)
        if is_down and words == asked[:1]:
            return 500, {"error": {"message": "down"}}
        return choose(content="?")

    with a_server(answer) as (url, _):
        endpoint = EndpointSpec(url=url, model="m", timeout_s=5, max_concurrency=1)
        places = {"file": spec.parent / "best.yaml", "runs_folder": spec.parent / "runs", "notify": lambda line: None}

        def once():
            return search([spec], [], SearchOptions(8, 16), endpoint=endpoint, writer=endpoint, **places)

        with pytest.raises(RlfError, match="1 tasks got no reward in 3 tries"):
            once()
        down, num_played = asked[0], len(set(asked))
        asked.clear()
        is_down.clear()
        once()
    assert num_played == 8 and asked == [down]


def test_a_writer_that_fails_ends_the_search_and_the_same_command_continues_it(spec):
    asked = []

    def refuses_to_rewrite(messages):
        if "new instruction" not in messages[-1]["content"]:
            return obeys_its_system_message(messages)
        asked.append(messages)
        return 404, {"error": {"message": "no such model"}}

    with pytest.raises(RlfError, match=r"model that rewrites: .*no such model.*same command continues the search"):
        run_search(spec, refuses_to_rewrite)
    assert len(asked) == 1
    found, _, _ = run_search(spec, obeys_its_system_message)
    assert found.after == 1.0


WITHOUT_TORCH = """
import importlib.util, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] == "torch" else found(name, package)
sys.meta_path.insert(0, Absent())
from rlf.cli.main import app
app(sys.argv[1:])
"""


def test_a_search_does_without_torch(spec, tmp_path):
    with a_server(obeys_its_system_message) as (url, _):
        words = [str(spec), "--endpoint", url, "--model", "m", "--rollouts", "20", "--tasks", "8", "--json"]
        command = [sys.executable, "-c", WITHOUT_TORCH, "prompt", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["data"]["num_rollouts"] >= 20


def test_the_command_writes_the_spec_and_overwrites_none(spec, monkeypatch):
    monkeypatch.chdir(spec.parent)
    with a_server(obeys_its_system_message) as (url, _):
        words = ["prompt", str(spec), "--endpoint", url, "--model", "m", "--rollouts", "60", "--tasks", "12"]
        first = CliRunner().invoke(app, words)
        again = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "0.000 before, 1.000 with the best" in first.output.replace("\n", " ") and "rlf eval MODEL" in first.output
    assert again.exit_code == 2 and "prompt.yaml exists" in again.output
    nobody = CliRunner().invoke(app, ["prompt", str(spec)])
    assert nobody.exit_code == 2 and "--writer-endpoint" in nobody.output
