"""`rlf bench toolhop`: rows in its published form, of the tests' own making, by the verdict of its evaluation."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from benchmarks.bench_verdicts import play_all
from rlf import check
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.kinds.toolhop import find_answer
from rlf.apps.bench.run import make_benchmark, write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

FIRST, SECOND = "Who built the mill of Orr?", "In which year was Ada Vell born?"


def document(name, key):
    schema = {"type": "object", "properties": {key: {"type": "string", "description": key}}, "required": [key]}
    return {"name": name, "description": f"Finds by {key}.", "parameters": schema}


def row(number, year="1810", key="place"):
    return {
        "id": number,
        "question": "In which year was the builder of the mill of Orr born?",
        "answer": year,
        "sub_task": {FIRST: "Ada Vell", SECOND: year},
        "tools": {FIRST: document("find_builder", key), SECOND: document("find_birth", "name")},
        "functions": [
            f"def find_builder({key}):\n    return {{'Orr': 'Ada Vell'}}[{key}]",
            f"import math\n\ndef find_birth(name):\n    if name != 'Ada Vell':\n        raise ValueError('nobody')\n"
            f"    return '{year}'",
        ],
        "domain": "History",
        "answer_type": "number",
        "previous_answer_type": "person",
    }


def made_of(tmp_path, rows, scenario):
    (tmp_path / "ToolHop.json").write_text(json.dumps(rows))
    benchmark = BENCHMARKS.get("toolhop")(data=str(tmp_path / "ToolHop.json"), scenario=scenario)
    return write_benchmark(benchmark, tmp_path / "made")


@pytest.mark.parametrize("name", ["hermes", "llama3", "glm4"])
@pytest.mark.parametrize("scenario", ["mandatory", "free"])
def test_the_chain_of_calls_solves_every_hop_and_words_alone_none(name, scenario, tmp_path):
    made = made_of(tmp_path, [row(0), row(1, "1900", key="town")], scenario)
    env = load_spec([made.spec]).spec.env
    tasks = load_tasks(str(made.spec.parent / "rows.jsonl"), kind="kind", tools="tools")
    chain = [[("find_builder", {"place": "Orr"})], [("find_birth", {"name": "Ada Vell"})], "<answer>1810</answer>"]
    other = [[("find_builder", {"town": "Orr"})], "<answer>1900</answer>"]
    plan = [(tasks[0], 0, chain), (tasks[0], 1, ["<answer>1810</answer>"]), (tasks[1], 0, other)]
    found = asyncio.run(play_all(env, stand_in(name, env.tools), plan, score="solved"))
    assert [found[task.id, number][0] for task, number, _ in plan] == [1.0, 0.0, 0.5]


def test_its_spec_is_sound_in_every_scenario_but_for_training_on_its_test_rows(tmp_path):
    sizes = ["rollout.max_total_tokens=1024", "rollout.max_new_tokens=64"]
    for scenario in ("direct", "mandatory", "free"):
        made = made_of(tmp_path, [row(0), row(1, key="town")], scenario)
        assert [fault.path for fault in check(made.spec, sizes).faults] == ["data.train.path"], scenario
        assert not check(made.spec, [*sizes, "data.allow_test_data=true"]).faults, scenario
    spec = load_spec([made_of(tmp_path, [row(0)], "direct").spec]).spec
    assert spec.env is None and spec.rollout.max_turns == 1


@pytest.mark.parametrize(
    ("gold", "said", "result", "right"),
    [
        ("1810", "<answer>1810</answer>", None, 1.0),
        ("1810", "I do not know.", "born in 1810", 1.0),
        ("1810", "I do not know.", None, 0.0),
        ("1810", None, "1810", 0.0),
        ("Ada Vell", "<answer>ada vell</answer>", None, 1.0),
        ("1250", "It is 1,250.00", None, 1.0),
        ("7.0", "<answer>7</answer>", None, 1.0),
        ("100", "<answer>12</answer>", None, 1.0),  # its rule: points and zeros at the end are taken off
        ("7", "<answer>8</answer>", "9", 0.0),
    ],
)
def test_the_verdict_is_that_of_its_evaluation(gold, said, result, right):
    calls = () if result is None else (SimpleNamespace(result=SimpleNamespace(text=result)),)
    turns = (SimpleNamespace(calls=calls), SimpleNamespace(calls=()))
    assert find_answer(SimpleNamespace(answer=said, turns=turns), gold) == right


def test_a_row_of_another_form_is_a_fault_with_its_number(tmp_path):
    lacking = {**row(1), "functions": row(1)["functions"][:1]}
    for wrong in (lacking, {"question": "Q?"}, {**row(1), "sub_task": {}}):
        with pytest.raises(RlfError, match=r"ToolHop\.json: row 1: no row of ToolHop"):
            made_of(tmp_path, [row(0), wrong], "free")


def test_data_that_are_not_brought_are_named():
    with pytest.raises(RlfError, match=r"bench toolhop: --data is missing. Bring --data FILE: ToolHop.json"):
        make_benchmark("toolhop", {})
