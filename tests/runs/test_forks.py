"""A child run starts from a checkpoint, with changes; what cannot start from one says why."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from rlf.apps.keep.export import export_model
from rlf.apps.keep.forks import fork_checkpoint
from rlf.cli import app
from rlf.core import RlfError
from rlf.engines.saved_model import find_file_damage
from rlf.lineage.graph import read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.run import start_run
from rlf.runs.place import open_lineage
from rlf.types import CheckpointSaved
from rlf.types.events import RunStatus

from ..lineage.builders import run_record
from .test_runs import Watch


def rlf(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_child_counts_on_from_the_checkpoint_with_its_changes(project):
    done = rlf("runs", "fork", "latest@1", "train.steps=2", "train.learning_rate=1e-3", "--runs", project / "runs")
    assert done.exit_code == 0, done.output
    with open_lineage(project / "runs") as store:
        reader = Reader(store)
        child, parent = reader.list_runs()
        first, last = reader.checkpoints(child.record.id)[0], reader.steps(child.record.id)[-1]
        evaluated = [item.step for item in reader.evaluations(child.record.id)]
        graph = read_graph(reader, child.record.id)
    assert (child.record.parent_id, child.record.parent_step) == (parent.record.id, 1)
    assert graph.node(f"parent:{parent.record.id}@1 (fork)") in graph.nodes
    assert child.record.plan["spec"]["train"]["learning_rate"] == 1e-3
    assert child.record.plan["origins"]["train.learning_rate"] == "override"
    specs = [file.path.rpartition("/")[2] for file in child.record.files if file.role == "spec"]
    assert "spec.yaml" in specs
    assert (first.step, last.step, evaluated) == (1, 2, [1, 2])
    assert last.metrics["policy/learning_rate"] == 1e-3


@pytest.mark.parametrize("keep", [1, 2])
def test_a_child_is_reproduced_from_the_checkpoint_that_it_was_forked_from(keep, project):
    runs = ("--runs", project / "runs")
    forked = rlf("runs", "fork", "latest@1", "train.steps=2", f"checkpoint.keep={keep}", "checkpoint.every=1", *runs)
    assert forked.exit_code == 0, forked.output
    again = rlf("runs", "reproduce", "latest", "--verify", *runs)
    assert again.exit_code == 0, again.output
    with open_lineage(project / "runs") as store:
        reader = Reader(store)
        reproduced, child, _ = reader.list_runs()
        assert (reproduced.record.parent_id, reproduced.record.parent_step) == (child.record.id, 1)
        assert [saved.step for saved in reader.steps(reproduced.record.id)] == [2]


def test_a_child_that_was_stopped_before_its_first_step_has_the_checkpoint_that_it_was_forked_from(project):
    def stop(event):
        if isinstance(event, CheckpointSaved):
            raise KeyboardInterrupt

    options = {"runs_folder": project / "runs", "command": ["rlf"]}
    stopped = fork_checkpoint("latest", [], ["train.steps=2"], view=Watch(stop), **options)
    with open_lineage(project / "runs") as store:
        (saved,) = Reader(store).checkpoints(stopped.run_id)
    assert (saved.step, find_file_damage(project / "runs" / stopped.run_id / "checkpoints/step-000001")) == (1, None)


def test_a_run_that_is_stopped_while_its_view_is_opened_is_recorded_as_stopped(project):
    def stop(info):
        raise KeyboardInterrupt

    options = {"runs_folder": project / "runs", "command": ["rlf"]}
    stopped = fork_checkpoint("latest", [], ["train.steps=2"], view=stop, **options)
    with open_lineage(project / "runs") as store:
        assert Reader(store).get_run(stopped.run_id).status is RunStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["latest@7"], "the checkpoint of step 7: there is none. Checkpoints are kept of steps: 1"),
        (["latest@0"], "step 0 has no checkpoint to start from. Name one of the steps 1"),
        (["latest@x"], "got the step 'x'; expected a number"),
        (["latest@1", "train.steps=1"], "train.steps: got 1; the checkpoint is of step 1"),
        (["latest@1", "train.stepz=1"], "did you mean 'steps'"),
    ],
)
def test_what_cannot_be_forked_is_a_fault_and_nothing_is_written(arguments, words, project):
    answer = rlf("runs", "fork", *arguments, "--runs", project / "runs")
    assert (answer.exit_code, words in answer.stderr) == (2, True), answer.stderr
    with open_lineage(project / "runs") as store:
        assert len(Reader(store).list_runs()) == 1


def test_openrlhf_says_why_it_starts_from_no_checkpoint_and_what_to_do(tmp_path):
    with open_lineage(tmp_path, create=True) as store:
        start_run(store, run_record("r", engine="openrlhf", plan={"spec": {}}, folder=str(tmp_path / "r")))
    with pytest.raises(RlfError, match=r"DeepSpeed's shards .*rlf export RUN FOLDER --step N.*model.path=FOLDER"):
        fork_checkpoint("r@1", [], [], runs_folder=tmp_path, view=Watch(), command=["rlf"])


@pytest.mark.parametrize("step", ["1", "newest"])
def test_the_model_of_a_stopped_run_is_exported_from_its_checkpoint(step, project, tmp_path):
    done = export_model("latest", tmp_path / "out", runs_folder=project / "runs", step=step)
    assert done.step == 1 and json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "qwen3"
    with open_lineage(project / "runs") as store:
        (saved,) = Reader(store).checkpoints(done.run_id)
    trained, exported = load_file(f"{saved.path}/weights.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert exported and all((trained[name] == value).all() for name, value in exported.items())


def test_a_step_without_a_model_is_a_fault_with_those_there_are(project, tmp_path):
    answer = rlf("export", "latest", tmp_path / "out", "--step", 9, "--runs", project / "runs")
    assert answer.exit_code == 2 and "has models of steps 1" in answer.stderr
    answer = rlf("export", "latest", tmp_path / "out", "--step", "best", "--runs", project / "runs")
    assert answer.exit_code == 2 and "none of the models" in answer.stderr
