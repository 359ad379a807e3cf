"""Asking the lineage: by prefix, by filter, and what a miss says."""

from dataclasses import replace

import pytest

from rlf.core import RlfError
from rlf.core.redact import Redactor
from rlf.lineage import tables
from rlf.lineage.calls import read_left_out, tool_call_summary
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import ParentKind, TrajectoryFilter
from rlf.lineage.rows import encode
from rlf.lineage.run import start_run
from rlf.types import (
    CallRecord,
    EvaluationFinished,
    Outcome,
    Score,
    StepFinished,
    StopReason,
    ToolCall,
    ToolResult,
    Turn,
)
from rlf.types.score import ScoreState
from rlf.types.trajectory import AGENT, SAMPLER, MissingRewardCause

from .builders import run_record, scored, step


@pytest.fixture
def three(store):
    for i, run_id in enumerate(["20260101-000000-aaaa", "20260101-000000-abbb", "20260202-000000-cccc"]):
        start_run(store, run_record(run_id, started=1000.0 + i))


def test_runs_are_listed_newest_first(three, reader):
    assert [run.record.id[-4:] for run in reader.list_runs()] == ["cccc", "abbb", "aaaa"]
    assert [len(run.record.files) for run in reader.list_runs()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("name", "tail"), [("latest", "cccc"), ("latest~1", "abbb"), ("202602", "cccc"), ("20260101-000000-ab", "abbb")]
)
def test_a_run_is_found_by_a_unique_beginning(three, reader, name, tail):
    assert reader.get_run(name).record.id.endswith(tail)


@pytest.mark.parametrize(
    "section", [{"evaluation": {"groups": 8}}, {"evaluation": {"groups": None}, "branch": {"k": 0}}]
)
def test_the_newest_run_is_none_of_those_that_were_played_to_answer_a_question(three, store, reader, section):
    start_run(store, run_record("forecast", started=2000.0, engine="evaluation", plan=section))
    start_run(store, run_record("eval", started=1500.0, engine="evaluation", plan={"evaluation": {"groups": None}}))
    assert [reader.get_run(f"latest~{k}").record.id[-4:] for k in (0, 1, 4)] == ["eval", "cccc", "cast"]


def test_a_whole_id_is_found_though_another_begins_with_it(store, reader):
    start_run(store, run_record("a"))
    start_run(store, run_record("ab"))
    assert reader.get_run("a").record.id == "a"


def test_further_back_than_the_oldest_run_names_that(three, reader):
    with pytest.raises(RlfError, match=r"'latest~3': the lineage has fewer runs; the oldest is 20260101-000000-aaaa"):
        reader.get_run("latest~3")


def test_a_beginning_of_several_runs_names_them(three, reader):
    with pytest.raises(RlfError, match="2 runs begin so: 20260101-000000-abbb, 20260101-000000-aaaa"):
        reader.get_run("20260101")


def test_an_unknown_run_names_the_nearest(three, reader):
    with pytest.raises(RlfError, match="no such run; did you mean '20260202-000000-cccc'"):
        reader.get_run("20260203-000000-cccc")


def test_an_empty_name_is_no_beginning_of_a_run(store, reader):
    start_run(store, run_record("a"))
    with pytest.raises(RlfError, match="run '': no such run"):
        reader.get_run("")


def test_a_run_sought_in_an_empty_lineage_says_how_to_start_one(reader):
    with pytest.raises(RlfError, match="no runs yet"):
        reader.get_run("latest")


def test_a_run_tells_its_parent(store, reader):
    start_run(store, run_record("child", parent_id="gone", parent_kind=ParentKind.FORK))
    record = reader.get_run("child").record
    assert (record.parent_id, record.parent_kind) == ("gone", ParentKind.FORK)


def test_trajectories_are_filtered(store, run_id, reader):
    failed = scored(9, success=0.0)
    unscored = replace(scored(17, success=None), trajectory=replace(scored(17).trajectory, stop=StopReason.LENGTH))
    with Recorder(store, run_id) as recorder:
        recorder(EvaluationFinished(0, "greedy", {}, [scored(8)]))
        recorder(StepFinished(1, {}, [scored(8), failed, unscored], [1.0, -1.0, None]))
        recorder(StepFinished(2, {}, [scored(8)], [0.0]))

    def found(**fields):
        return [(row.phase, row.step, row.k) for row in reader.trajectories(run_id, TrajectoryFilter(**fields))]

    everything = [("greedy", 0, 0), ("train", 1, 0), ("train", 1, 1), ("train", 1, 2), ("train", 2, 0)]
    assert found() == everything
    assert found(phase="greedy") == everything[:1]
    assert found(step=2) == everything[4:]
    assert found(task_id="q1", phase="train") == [("train", 1, 0), ("train", 1, 1), ("train", 2, 0)]
    assert found(stop=StopReason.LENGTH) == [("train", 1, 2)]
    assert found(succeeded=True) == [("greedy", 0, 0), ("train", 1, 0), ("train", 2, 0)]
    assert found(succeeded=False) == [("train", 1, 1), ("train", 1, 2)]
    assert found(limit=2) == everything[:2]


def test_several_trajectories_are_read_as_each_of_them_is(store, run_id, reader, monkeypatch):
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, [scored(number) for number in range(3)], [0.0] * 3))
        recorder(EvaluationFinished(1, "greedy", {}, [scored(8)]))
    heads = reader.trajectories(run_id)[::-1]
    monkeypatch.setattr("rlf.lineage.reader._FEW", 2)
    assert reader.wholes(run_id, heads) == [reader.whole(run_id, head) for head in heads]
    assert reader.wholes(run_id, [replace(heads[0], k=9), heads[0]]) == [None, reader.whole(run_id, heads[0])]


def test_some_steps_of_a_long_run_are_read(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        for step in range(1, 8):
            recorder(StepFinished(step, {"success": 0.5}, (), ()))
    assert [one.step for one in reader.steps(run_id, stride=3)] == [3, 6]


def test_a_trajectory_is_that_of_the_latest_step_unless_one_is_named(store, run_id, reader):
    with Recorder(store, run_id) as recorder:
        recorder(StepFinished(1, {}, [scored(1)], [0.0]))
        recorder(StepFinished(2, {}, [scored(2)], [0.0]))
    assert reader.trajectory(run_id, k=0).scored == scored(2)
    assert reader.trajectory(run_id, k=0, step=1).scored == scored(1)


def test_a_missing_trajectory_says_what_there_is(store, run_id, reader):
    with pytest.raises(
        RlfError,
        match=r"no train trajectory 3\. There are: none yet; they are stored when a step or an evaluation ends",
    ):
        reader.trajectory(run_id, k=3)
    with Recorder(store, run_id) as recorder:
        recorder(step(1, 2))
        recorder(step(2, 2))
    with pytest.raises(
        RlfError,
        match=r"no train trajectory 3 of step 1\. There are: train steps 1\.\.2, k 0\.\.1\. Choose with --phase",
    ):
        reader.trajectory(run_id, k=3, step=1)


def test_tool_calls_are_summed_by_tool_and_outcome(store, run_id, reader):
    def call(name, outcome, run_s, **fields):
        return CallRecord(ToolCall(name, {}), ToolResult(outcome, "", run_s=run_s, **fields))

    calls = (
        call("search", Outcome.OK, 0.1, queue_s=0.4),
        call("search", Outcome.OK, 0.2, cached=True),
        call("search", Outcome.TIMEOUT, 0.6, truncated=True),
        call("add", Outcome.OK, 0.5),
    )
    known = scored(1)
    with Recorder(store, run_id) as recorder:
        trajectory = replace(known.trajectory, turns=(Turn(0, 1, 1, "", calls),))
        recorder(StepFinished(1, {}, [replace(known, trajectory=trajectory)], [0.0]))
    search, add = tool_call_summary(reader, run_id)
    assert (search.name, search.num_calls, search.num_cached, search.num_truncated) == ("search", 3, 1, 1)
    assert search.num_by_outcome == {Outcome.OK: 2, Outcome.TIMEOUT: 1}
    assert search.mean_run_s == pytest.approx(0.3)  # (0.1 + 0.2 + 0.6) / 3
    assert search.mean_queue_s == pytest.approx(0.4 / 3)
    assert search.max_run_s == 0.6
    assert (add.name, add.num_calls, add.mean_run_s) == ("add", 1, 0.5)


def test_rollouts_left_out_of_training_are_counted_once_by_kind_and_by_what_broke_them(store, reader):
    record = run_record()
    start_run(store, record)

    def tried(place, kind, broken=None, term=None, task="t"):
        item = scored(place)
        stop = StopReason.INFRA_FAILURE if broken else StopReason.ANSWERED
        made = replace(item.trajectory, task=replace(item.trajectory.task, id=task, kind=kind), sample_index=place)
        scores = (
            ()
            if broken
            else (Score("a", 1.0, 0.0), Score(term or "b", None if term else 1.0, 1.0, state=ScoreState.FAULT))
        )
        reward = None if broken or term else 1.0
        return replace(item, trajectory=replace(made, stop=stop, broken=broken), scores=scores, reward=reward)

    tool, world, sampler, agent = (
        MissingRewardCause(name, f"{name}: down") for name in ("tool 'search'", "world 'shop'", SAMPLER, AGENT)
    )
    items = [
        *(tried(0, "hard", tool), tried(0, "hard", replace(tool, error="port 2"))),  # one rollout, twice in vain
        *(tried(1, "hard", world), tried(1, "hard")),  # played again with a reward
        *(tried(2, "hard", term="good"), tried(3, "hard", sampler)),
        tried(4, "hard", agent),
        *(tried(4, "easy"), tried(5, None), tried(0, "easy", world, task="u")),
    ]
    with Recorder(store, record.id) as recorder:
        recorder(StepFinished(1, {}, items, [None] * len(items)))
    found = read_left_out(store, record.id)
    assert found.num_by_kind == {None: (0, 1), "easy": (1, 2), "hard": (4, 5)}
    assert found.causes == {
        "tool 'search'": 1,
        "world 'shop'": 1,
        "reward term 'good'": 1,
        "the sampler": 1,
        "the agent": 1,
    }


def test_the_error_of_a_trajectory_of_an_older_checkout_is_read_as_its_samplers(store):
    record = run_record()
    start_run(store, record)
    item = scored(0)
    broken = replace(item.trajectory, stop=StopReason.INFRA_FAILURE, broken=MissingRewardCause("tool 'a'", "no host"))
    item = replace(item, trajectory=broken, reward=None)
    with Recorder(store, record.id) as recorder:
        recorder(StepFinished(1, {}, [item], [None]))
    with store.write() as connection:  # as it was written before the record had its cause
        connection.execute(tables.payloads.update().values(data=encode(replace(broken, broken=None), Redactor({}))))
    found = Reader(store).trajectory(record.id, k=0)
    assert found.scored.trajectory.broken == MissingRewardCause(SAMPLER, "no host")
    assert read_left_out(store, record.id).causes == {SAMPLER: 1}
