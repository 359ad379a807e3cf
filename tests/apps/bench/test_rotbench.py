"""`rlf bench rotbench`: rows in its format, of the tests' own making, by the scores of its evaluation."""

import asyncio
import json

import pytest

from benchmarks.bench_verdicts import play_all
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds.rotbench import score_call
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

NAMES = ("find_ferry", "ask_to_user", "finish")
GOLD = [("find_ferry", {"port": "Orr", "day": "None"}), ("finish", {"answer": "x"})]


def row(*actions):
    documents = [
        {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}} for name in NAMES
    ]
    value = [f"Thought:\nAction: {name}\nAction Input: {json.dumps(arguments)}" for name, arguments in actions]
    turns = [
        ("system", f"Use tools:\n{json.dumps(documents)}\n\nBegin!"),
        ("user", "A ferry to Orr?"),
        ("assistant", value),
    ]
    return {"id": "t", "conversations": [{"from": who, "value": what} for who, what in turns], "scenario": "TG"}


@pytest.mark.parametrize(
    ("called", "scores"),
    [
        (("find_ferry", {"port": "Orr", "day": "Monday"}), (1, 1, 1)),  # a value that the answer leaves open
        (("find_ferry", {"port": "Vell", "day": "Monday"}), (1, 1, 0)),
        (("find_ferry", {"port": "Orr"}), (1, 0, 0)),
        (("find_train", {"port": "Orr", "day": "None"}), (0, 0, 0)),
        (("finish", {"answer": "other words"}), (1, 1, 1)),
        (("find_ferry", {}), (0, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_scores_are_nested_tool_then_parameters_then_values(called, scores):
    assert score_call(called, GOLD, NAMES) == dict(zip(("ts", "pi", "cf"), map(float, scores), strict=True))


def test_finish_is_the_last_tool_whatever_noise_calls_it_and_also_the_tool_that_got_its_name():
    names = ("finish", "ask_t_se", "get_key")
    for gold in ("get_key", "finish"):
        assert score_call(("finish", {"a": "1"}), [(gold, {"a": "1"})], names)["cf"] == 1.0
    assert score_call(("get_key", {"a": "1"}), [("finish", {"a": "1"})], names)["ts"] == 0.0


def test_rows_of_a_folder_have_their_level_and_their_right_action_scores_in_three_formats(tmp_path):
    for level in ("clean", "heavy"):
        (tmp_path / f"{level}.json").write_text(json.dumps([row(*GOLD)]))
    made = write_benchmark(BENCHMARKS.get("rotbench")(data=str(tmp_path)), tmp_path / "made")
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind")
    assert [task.kind for task in tasks] == ["clean", "heavy"]
    env = load_spec([made.spec]).spec.env
    plan = [
        (task, n, turns) for task in tasks for n, turns in enumerate(([[GOLD[0]]], [[("finish", {"a": 1})]], ["No."]))
    ]
    plan = [(task, number, [*turns, "Done."]) for task, number, turns in plan]
    for name in ("hermes", "llama3", "glm4"):
        found = asyncio.run(play_all(env, stand_in(name, env.tools), plan, score="cf"))
        assert [found[task.id, number][0] for task, number, _ in plan] == [1.0, 0.0, 0.0] * 2


def test_a_file_of_another_form_is_a_fault_with_its_row(tmp_path):
    (tmp_path / "clean.json").write_text(
        json.dumps([row(*GOLD), {"conversations": [{"from": "system", "value": "[]"}]}])
    )
    with pytest.raises(RlfError, match=r"clean\.json: row 1: no row of RoTBench"):
        BENCHMARKS.get("rotbench")(data=str(tmp_path)).read_rows()
    with pytest.raises(RlfError, match=r"none\.json: cannot be read as rows"):
        BENCHMARKS.get("rotbench")(data=str(tmp_path / "none.json")).read_rows()
