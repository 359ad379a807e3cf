"""A run's graph: what made what, and what differs between two."""

from collections import Counter
from dataclasses import replace

from rlf.lineage.graph import differing, hash_metrics, read_graph
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import FileRecord
from rlf.lineage.run import start_run
from rlf.types import CheckpointSaved, EvaluationFinished, StepFinished

from .builders import run_record, scored


def recorded(store, run_id, metrics=({"loss": 0.5}, {"loss": 0.25}), patch=None, **fields):
    start_run(store, run_record(run_id, **fields), patch)
    with Recorder(store, run_id) as recorder:
        for number, values in enumerate(metrics, start=1):
            recorder(StepFinished(number, values, [scored(8)], [0.0]))
        recorder(EvaluationFinished(2, "greedy", {"success": 1.0}, [scored(8)]))
        recorder(CheckpointSaved(2, f"/runs/{run_id}/2", "c" * 64))


def test_a_checkpoint_is_walked_back_to_everything_that_made_it(store, reader):
    recorded(store, "r")
    graph = read_graph(reader, "r")
    keys = [node.key for node in graph.ancestors("checkpoint:/runs/r/2")]
    assert keys[:2] == ["spec:specs/search.yaml", "tool:tools/s.yaml"]
    assert {"plan:pppppppppppp", "rlf:0.1.0+abc", "seed:7", "run:r", "step:1", "step:2"} <= set(keys)
    assert "evaluation:2 greedy" not in keys


def test_every_node_is_made_of_nodes_that_are_there(store, reader):
    recorded(store, "r", parent_id="p", parent_kind="fork")
    graph = read_graph(reader, "r")
    keys = [node.key for node in graph.nodes]
    assert len(set(keys)) == len(keys)
    for place, node in enumerate(graph.nodes):
        assert set(node.made_of) <= set(keys[:place])


def test_equal_runs_differ_in_nothing_though_they_took_other_times(store, reader):
    recorded(store, "a", metrics=({"loss": 0.5, "time/step_s": 1.0}, {"loss": 0.25, "time/step_s": 2.0}))
    recorded(store, "b", metrics=({"loss": 0.5, "time/step_s": 9.0}, {"loss": 0.25, "time/step_s": 9.0}))
    assert differing(read_graph(reader, "a"), read_graph(reader, "b")) == []


def test_one_changed_file_is_the_only_source_that_differs(store, reader):
    files = run_record().files
    recorded(store, "a")
    recorded(store, "b", files=(files[0], replace(files[1], sha256="e" * 64), FileRecord("data", "d", "d" * 64)))
    found = differing(read_graph(reader, "a"), read_graph(reader, "b"))
    assert [(item.kind, item.name) for item in found] == [("tool", "tools/s.yaml"), ("data", "d")]
    assert found[1].left == ""


def test_the_first_step_that_differs_is_reported_first(store, reader):
    recorded(store, "a", metrics=({"loss": 0.5}, {"loss": 0.25}))
    recorded(store, "b", metrics=({"loss": 0.5}, {"loss": 0.250000001}))
    assert [(d.kind, d.name) for d in differing(read_graph(reader, "a"), read_graph(reader, "b"))] == [("step", "2")]


def test_code_that_differs_from_its_commit_is_kept_and_differs(store, reader):
    recorded(store, "a")
    recorded(store, "b", patch="+ one line")
    assert reader.get_run("b").record.patch_sha256 is not None
    assert [d.kind for d in differing(read_graph(reader, "a"), read_graph(reader, "b"))] == ["rlf"]


def test_metrics_are_hashed_to_the_last_bit_and_without_the_machines_pace():
    assert hash_metrics({"loss": 0.1 + 0.2}) != hash_metrics({"loss": 0.3})
    assert hash_metrics({"loss": float("nan")}) == hash_metrics({"loss": float("nan"), "throughput/x": 1.0})


def test_the_rows_that_were_seen_are_a_node_for_each_phase(store, reader):
    recorded(store, "a")
    rows = [node for node in read_graph(reader, "a").nodes if node.kind == "rows"]
    assert [node.name for node in rows] == ["1 greedy", "1 train"]
    assert rows[0].sha256 == rows[1].sha256, "both tried the same question"
    assert rows[0].key in read_graph(reader, "a").node("run:a").made_of


def test_a_step_that_is_asked_for_shows_its_trajectories_calls_and_scores(store, reader):
    recorded(store, "a")
    graph = read_graph(reader, "a", step=2)
    kinds = Counter(node.kind for node in graph.nodes)
    assert (kinds["trajectory"], kinds["call"], kinds["score"]) == (1, 3, 2)
    assert [node.key for node in graph.ancestors("call:2 0 1")][-2:] == ["step:1", "trajectory:2 0"]


def test_the_trajectory_and_the_call_that_differ_are_named(store, reader):
    recorded(store, "a")
    start_run(store, run_record("b"))
    item = scored(8)
    turn = item.trajectory.turns[0]
    other = replace(turn, calls=(replace(turn.calls[0], result=replace(turn.calls[0].result, text="else")),))
    changed = replace(item, trajectory=replace(item.trajectory, turns=(other, *item.trajectory.turns[1:])))
    with Recorder(store, "b") as recorder:
        recorder(StepFinished(1, {"loss": 0.5}, [changed], [0.0]))
    found = differing(read_graph(reader, "a", step=1), read_graph(reader, "b", step=1))
    assert ("call", "1 0 0") in [(item.kind, item.name) for item in found]
    assert not [item for item in found if item.kind == "score" or item.name == "1 0 1"]
