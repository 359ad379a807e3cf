"""`rlf bench ftrl`: rows in FTRL's format, of the tests' own making."""

import asyncio
import json

import pytest

from benchmarks.bench_verdicts import play_all
from rlf import check
from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.run import write_benchmark
from rlf.chat.repair import stand_in
from rlf.core.errors import RlfError
from rlf.data.tasks import load_tasks
from rlf.spec.load import load_spec

TOOL = {
    "name": "river_of",
    "description": "The river of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}
ROW = {
    "messages": [{"role": "user", "content": "Which rivers flow through Vell and Dorn?"}],
    "tools": json.dumps([{"type": "function", "function": TOOL}]),
    "codes": json.dumps({"river_of": "def river_of(town):\n    return {'Vell': 'Orr', 'Dorn': 'Ys'}[town]"}),
    "unsolved_set": json.dumps({"river_of": ["Orr", "Ys"]}),
    "data_source": "parallel_single_hop",
}


def test_calls_that_solve_a_share_of_the_sub_questions_score_that_share(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    made = write_benchmark(BENCHMARKS.get("ftrl")(data=str(tmp_path / "rows.jsonl")), tmp_path / "made")
    spec = load_spec([made.spec]).spec
    assert [term.name for term in spec.rewards] == ["solve_f1", "solve_r"]
    sizes = ["rollout.max_total_tokens=1024", "rollout.max_new_tokens=64"]
    assert [fault.path for fault in check(made.spec, sizes).faults] == ["data.train.path"]
    assert not check(made.spec, [*sizes, "data.allow_test_data=true"]).faults
    (task,) = load_tasks(str(made.spec.parent / "rows.jsonl"), answer=None, kind="kind", tools="tools")
    assert task.kind == "parallel_single_hop"
    both = [[("river_of", {"town": "Vell"})], [("river_of", {"town": "Dorn"})], "Orr and Ys."]
    plan = [(task, number, turns) for number, turns in enumerate((both, both[:1] + both[2:], both[2:]))]
    found = asyncio.run(play_all(spec.env, stand_in("hermes", spec.env.tools), plan, score="solved"))
    assert [found[task.id, number][0] for number in range(3)] == [1.0, 0.5, 0.0]


def test_a_row_without_a_column_is_a_fault_that_names_it(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({key: ROW[key] for key in ("messages", "tools")}))
    with pytest.raises(RlfError, match=r"row 0: has no codes, unsolved_set"):
        BENCHMARKS.get("ftrl")(data=str(tmp_path / "rows.jsonl")).read_rows()


def test_rows_of_the_train_split_stand_apart_and_may_be_trained_on(tmp_path):
    rows = [{**ROW, "split": split} for split in ("train", "test", "train")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = write_benchmark(BENCHMARKS.get("ftrl")(data=str(tmp_path / "rows.jsonl")), tmp_path / "made")
    found = check(made.spec, ["rollout.max_total_tokens=1024", "rollout.max_new_tokens=64"])
    assert (found.num_train_rows, found.num_eval_rows, list(found.faults)) == (2, 1, [])
