"""`rlf bench agentdojo`: its verdicts through rlf's loop beside its own. Skipped where the package is not installed."""

import asyncio
import json
import sys

import pytest

from benchmarks.bench_verdicts import play_all
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds import agentdojo
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

PACKAGES = BENCHMARKS.get("agentdojo").packages
pytestmark = pytest.mark.skipif(PACKAGES.version is None, reason="not installed: rlf bench agentdojo --setup")


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    if PACKAGES.path is None:
        yield
        return
    sys.path.insert(0, PACKAGES.path)
    yield
    sys.path.remove(PACKAGES.path)


class Scripted:
    """An agent of the package that makes fixed calls and says fixed words."""

    name = "local"

    def __init__(self, turns):
        self.turns = turns

    def query(self, query, runtime, env, messages=(), extra_args=None):
        used, made = agentdojo.package(), []
        for turn in self.turns:
            if isinstance(turn, str):
                made.append({"role": "assistant", "content": [used.block(turn)], "tool_calls": None})
                continue
            calls = [used.call(function=name, args=dict(arguments)) for name, arguments in turn]
            made.append({"role": "assistant", "content": [used.block("")], "tool_calls": calls})
            for call in calls:
                runtime.run_function(env, call.function, call.args)
        return query, runtime, env, made, {}


def answers_of(task):
    """The user's published calls, nothing, and the attacker's calls before and in place of the user's."""
    columns, suite = task.columns, agentdojo.package().suites[task.kind]
    environment = suite.load_and_inject_default_environment(json.loads(columns["injections"]))
    user, injection = suite.user_tasks[columns["user_task"]], suite.injection_tasks[columns["injection_task"]]
    environment = user.init_environment(environment)

    def turns(one):
        found = agentdojo._solve(one, environment)
        return [call if isinstance(call, str) else [(call["name"], call["arguments"])] for call in found]

    gold, attack = turns(user), turns(injection)
    return {"gold": gold, "nothing": ["I cannot."], "attacked first": attack[:-1] + gold, "attacked": attack}


def official(task, turns):
    columns, suite = task.columns, agentdojo.package().suites[task.kind]
    user, injection = suite.user_tasks[columns["user_task"]], suite.injection_tasks[columns["injection_task"]]
    utility, attacked = suite.run_task_with_pipeline(
        Scripted(turns), user, injection, json.loads(columns["injections"])
    )
    return {"utility": float(utility), "attacked": float(attacked)}


def compare(tasks, env, name):
    """By answer: (rlf's verdicts, the package's)."""
    named = [(task, what, turns) for task in tasks for what, turns in answers_of(task).items()]
    found = asyncio.run(play_all(env, stand_in(name, env.tools), named, score=None))
    return {(task.id, what): (found[task.id, what][0], official(task, turns)) for task, what, turns in named}


@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
def test_verdicts_are_those_of_the_package_on_published_answers_on_none_and_on_the_attackers(name, tmp_path):
    made = write_benchmark(BENCHMARKS.get("agentdojo")(domain="banking,slack"), tmp_path)
    env = load_spec([made.spec]).spec.env
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    found = compare(tasks[::61], env, name)
    assert {key: ours for key, (ours, _) in found.items()} == {key: theirs for key, (_, theirs) in found.items()}
    of = {}
    for (_, what), (ours, _) in found.items():
        of.setdefault(what, []).append(ours)
    assert of["gold"] == [{"utility": 1.0, "attacked": 0.0}] * len(of["gold"])
    assert all(one["attacked"] == 1.0 for one in (*of["attacked"], *of["attacked first"]))
    # A check of what is left unchanged holds also where nothing was done.
    assert all(one["attacked"] == 0.0 for one in of["nothing"]) and {0.0} <= {one["utility"] for one in of["nothing"]}


def test_without_an_attack_each_task_of_a_user_is_asked_once_and_an_unknown_attack_is_a_fault(tmp_path):
    made = write_benchmark(BENCHMARKS.get("agentdojo")(domain="slack", attack="none"), tmp_path)
    assert made.num_rows == 21
    with pytest.raises(RlfError, match=r"--option attack: got 'charm' .known: none, direct"):
        BENCHMARKS.get("agentdojo")(attack="charm").read_rows()
    with pytest.raises(RlfError, match=r"got the suite 'office'"):
        BENCHMARKS.get("agentdojo")(domain="office").read_rows()
