"""Every tracker is told a run's metrics, goes on with it after a resume, and can be read back with its own package."""

import importlib
import json
import math
from importlib.util import find_spec

import pytest

from rlf.trackers import TRACKERS, TrackedRun, metrics_of
from rlf.types import EvaluationFinished, Notice, RunFinished, RunStatus, StepFinished

SPEC = {"name": "search", "train": {"steps": 4, "algorithm": {"kind": "grpo"}}}


def run_in(folder, first_step=1):
    return TrackedRun("20260101-000000-abcd", "search", folder, first_step, SPEC)


def events(first, last):
    for step in range(first, last + 1):
        yield StepFinished(step, {"loss/policy": step / 10, "reward/mean": math.nan if step == 3 else 0.5}, (), ())
    yield EvaluationFinished(last, "greedy", {"success": last / 100}, ())
    yield Notice("alarm", "health: entropy is low", {"step": last})


def tell(tracker, run, last, status=RunStatus.FINISHED):
    writer = tracker.open(run)
    for event in events(run.first_step, last):
        writer(event)
    writer(RunFinished(status, last))
    writer.close()


def needs(module):
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed here")


@pytest.mark.parametrize("kind", TRACKERS.names())
def test_a_tracker_whose_package_is_absent_says_what_to_install(kind, monkeypatch):
    tracker = TRACKERS.get(kind)()
    monkeypatch.setattr("rlf.trackers.find_spec", lambda name: None)
    complaint = tracker.complaint()
    assert complaint is None if tracker.module is None else f"`pip install {tracker.install}`" in complaint


def test_numbers_of_an_evaluation_are_named_by_its_mode():
    assert metrics_of(EvaluationFinished(2, "greedy", {"success": 0.5}, ())) == {"eval/greedy/success": 0.5}
    assert metrics_of(Notice("info", "x", {})) == {}


def test_jsonl_has_a_line_for_each_event_and_a_resume_says_no_step_twice(tmp_path):
    tracker = TRACKERS.get("jsonl")()
    tell(tracker, run_in(tmp_path), 3, RunStatus.INTERRUPTED)
    writer = tracker.open(run_in(tmp_path, first_step=4))
    writer(Notice("info", "what a model wrote: \u2028 \x85", {}))  # other ends of lines than JSON Lines have
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "step", "st')  # killed within a line
    tell(tracker, run_in(tmp_path, first_step=3), 4)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [line["step"] for line in lines if line["event"] == "step"] == [1, 2, 3, 4]
    assert [line["metrics"]["reward/mean"] for line in lines if line["event"] == "step"] == [0.5, 0.5, None, 0.5]
    assert lines[0]["spec"] == SPEC
    assert [line["status"] for line in lines if line["event"] == "finished"] == ["finished"]


@needs("tensorboard")
def test_tensorboard_reads_each_step_once_after_a_resume(tmp_path):
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    tracker = TRACKERS.get("tensorboard")()
    tell(tracker, run_in(tmp_path), 3)
    tell(tracker, run_in(tmp_path, first_step=3), 4)
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["eval/greedy/success", "loss/policy", "reward/mean"]
    assert [(value.step, round(value.value, 6)) for value in read.Scalars("loss/policy")] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
        (4, 0.4),
    ]
    words = [value.tensor_proto.string_val[0].decode() for value in read.Tensors("notices/alarm/text_summary")]
    assert words[-1] == "    health: entropy is low"


@needs("mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_of_the_experiment_with_every_step(tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = TRACKERS.get("mlflow")(tracking_uri=uri, experiment="searches")
    tell(tracker, run_in(tmp_path), 3, RunStatus.INTERRUPTED)
    tell(tracker, run_in(tmp_path, first_step=4), 4)
    client = importlib.import_module("mlflow.tracking").MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("searches").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["train.algorithm.kind"] == "grpo"
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss/policy")] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
        (4, 0.4),
    ]


@needs("wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_writes_a_run_under_its_id_that_sync_can_take(tmp_path):
    tell(TRACKERS.get("wandb")(mode="offline"), run_in(tmp_path), 3)
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-20260101-000000-abcd.wandb")
    data = written.read_bytes()
    assert b"loss/policy" in data and b"eval/greedy/success" in data
