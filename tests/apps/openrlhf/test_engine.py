"""A run on this engine: launched, followed, stopped, failed, resumed, by a trainer that only draws rows and prints."""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from rlf.apps.openrlhf import run as engine_run
from rlf.apps.openrlhf.job import MachinePlace
from rlf.apps.openrlhf.process import JobWatch
from rlf.core import RlfError, RunError
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.processes.supervise import descendants
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import EvaluationFinished, Notice, RunStatus, StepFinished

from ...processes import Process

ROOT = Path(__file__).parents[3]
SIZES = [
    "engine.kind=openrlhf",
    "data.train.limit=64",
    "data.eval.limit=64",
    "train.prompts_per_step=2",
    "rollout.num_generations=2",
    "train.steps=4",
    "eval.every=2",
    "eval.limit=3",
    "checkpoint.every=1",
    "checkpoint.keep=9",
]
FAKES = Path(__file__).parent / "fake_packages"


def place(what: str = "", raylet: str = "") -> MachinePlace:
    variables = {"FAKE_TRAINER": what, "FAKE_RAYLET": raylet}
    return MachinePlace(paths=(str(FAKES), str(ROOT)), variables=variables, num_gpus=8, name="nowhere")


class Watch:
    """A view that keeps every event, and may do something at one."""

    def __init__(self, at=None):
        self.events, self.at = [], at

    def __call__(self, info):
        self.info = info
        return self.take

    def take(self, event):
        self.events.append(event)
        if self.at is not None:
            self.at(event)


def start(folder, what="", watch=None, extra=(), at=None):
    return run(
        [ROOT / "specs" / "search.yaml"],
        [*SIZES, *extra],
        runs_folder=folder,
        view=watch or Watch(),
        command=["rlf", "run"],
        place=at or place(what),
    )


def stored(folder):
    with open_lineage(folder) as store:
        reader = Reader(store)
        run_ = reader.get_run("latest")
        run_id = run_.record.id
        return (
            run_,
            {item.step: item.metrics for item in reader.steps(run_id)},
            [(item.step, item.mode) for item in reader.evaluations(run_id)],
            [item.step for item in reader.checkpoints(run_id)],
            reader.trajectories(run_id, TrajectoryFilter(phase="train")),
        )


def test_processor_time_is_that_of_the_step_and_not_of_what_lies_between_steps(monkeypatch):
    watch, looks = JobWatch([], ""), iter([(0.0, 10.0), (1.0, 12.0), (2.0, 18.0), (4.0, 22.0), (5.0, 23.0)])
    watch._resident_bytes = 1.0
    monkeypatch.setattr(watch, "_read", lambda: watch._seen.append(next(looks)))
    for _ in range(3):
        watch._read()
    assert watch.take(2.5)["time/processor_s"] == 10.0 * 2.5 / 3  # from 1 s on, where 12 s had been used
    assert watch.take(math.inf)["time/processor_s"] == 1.0  # of unknown length: since the one before


@pytest.fixture
def left_nothing():
    """Holds that the test leaves no process behind."""
    before = descendants(os.getpid())
    yield
    wait_for(lambda: not descendants(os.getpid()) - before)  # what was ended may still be about to be waited for


def test_a_run_is_in_the_lineage_as_a_local_one_would_be(tmp_path, monkeypatch, left_nothing):
    watch = Watch()
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked\nwhile sleep 0.02; do echo "50, 1024"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,0,1,2,3")
    assert start(tmp_path, watch=watch).status is RunStatus.FINISHED
    run_, steps, evaluations, checkpoints, trajectories = stored(tmp_path)
    assert (run_.record.engine, run_.status, run_.last_step) == ("openrlhf", RunStatus.FINISHED, 4)
    assert run_.record.host["device"] == "nowhere"
    assert sorted(steps) == [1, 2, 3, 4]
    assert steps[4]["loss/policy"] == 0.125
    assert steps[4]["policy/grad_norm"] == 1.0
    assert "policy/kl_ref" not in steps[4]
    assert steps[4]["success"] == 0.0
    assert steps[4]["throughput/generate_tokens_per_s"] > 0
    assert (tmp_path / "asked").read_text() == "--id=4\n"  # the one that Ray gives to the job
    taken = [metrics for metrics in steps.values() if "gpu/busy" in metrics]
    assert {(metrics["gpu/busy"], metrics["gpu/held_bytes"]) for metrics in taken} == {(0.5, 1024.0 * 2**20)}
    assert all(metrics["time/processor_s"] >= 0.0 for metrics in steps.values())
    assert 5e6 < steps[4]["memory/resident_bytes"] <= steps[4]["memory/peak_bytes"]
    assert evaluations == [(step, mode) for step in (0, 2, 4) for mode in ("greedy", "sampled")]
    assert checkpoints == [1, 2, 3, 4]
    assert len(trajectories) == 16
    assert {item.advantage is not None for item in trajectories} == {True}
    kinds = [type(event) for event in watch.events]
    assert kinds.index(EvaluationFinished) < kinds.index(StepFinished)
    stages = [event.data.get("stage") for event in watch.events if isinstance(event, Notice)]
    assert [stage for stage in stages if stage] == ["parts", "ray", "models"]


def test_a_job_that_fails_does_so_in_its_own_words_and_goes_on_from_deepspeeds_checkpoint(tmp_path, left_nothing):
    with pytest.raises(RunError, match=r"job failed after step 3: ValueError: the GPUs are on fire\nIts whole output"):
        start(tmp_path, "fail:3")
    run_, steps, *_ = stored(tmp_path)
    assert (run_.status, sorted(steps)) == (RunStatus.FAILED, [1, 2, 3])
    assert "the GPUs are on fire" in run_.error
    take_away_checkpoint(tmp_path, 3)
    fix(tmp_path)
    watch = Watch()
    outcome = resume("latest", runs_folder=tmp_path, view=watch, command=["rlf", "resume"])
    assert (outcome.status, watch.info.first_step) == (RunStatus.FINISHED, 3)
    _, steps, evaluations, checkpoints, trajectories = stored(tmp_path)
    assert sorted(steps) == [1, 2, 3, 4] == checkpoints
    assert evaluations == [(step, mode) for step in (0, 2, 4) for mode in ("greedy", "sampled")]
    assert len({item.trajectory_id for item in trajectories}) == len(trajectories) == 16


@pytest.mark.parametrize("is_driver_killed", [False, True])
def test_what_a_failure_cut_off_is_in_the_lineage_once(is_driver_killed, tmp_path, left_nothing):
    with pytest.raises(RunError, match="after step 1: ValueError: the GPUs are on fire"):
        start(tmp_path, "cut:2")
    assert cut_off(tmp_path) == [2] * 4
    attempt = next(tmp_path.glob("*/job/attempt.json"))
    if is_driver_killed:  # before it could report that
        attempt.write_text(attempt.read_text().replace('"left_is_told": true', '"left_is_told": false'))
        with open_lineage(tmp_path) as store, store.write() as connection:
            connection.execute(text("delete from trajectories where phase = 'interrupted'"))
    fix(tmp_path)
    assert resume("latest", runs_folder=tmp_path, view=Watch(), command=["rlf"]).status is RunStatus.FINISHED
    assert cut_off(tmp_path) == [2] * 4


def cut_off(folder):
    """The steps of trajectories that count nowhere."""
    with open_lineage(folder) as store:
        reader = Reader(store)
        run_id = reader.get_run("latest").record.id
        return [item.step for item in reader.trajectories(run_id, TrajectoryFilter(phase="interrupted"))]


@pytest.mark.parametrize("algorithm", ["reinforce_baseline", "gae"])
def test_a_job_that_dies_while_it_saves_continues_from_the_one_checkpoint_that_it_keeps(algorithm, tmp_path):
    """It dies twice, so that what the first death left half-written takes the place of no whole one."""
    extra = ["checkpoint.keep=1", f"train.algorithm={algorithm}"]
    with pytest.raises(RunError, match="job failed"):
        start(tmp_path, "die:2", extra=extra)
    next(tmp_path.glob("*/job/place.json")).write_text(place("die:2").model_dump_json())
    watch = Watch()
    with pytest.raises(RunError, match="job failed"):
        resume("latest", runs_folder=tmp_path, view=watch, command=["rlf", "resume"])
    assert watch.info.first_step == 2
    fix(tmp_path)
    outcome = resume("latest", runs_folder=tmp_path, view=watch, command=["rlf", "resume"])
    assert (outcome.status, watch.info.first_step) == (RunStatus.FINISHED, 2)
    models = {"_actor", "_critic"} if algorithm == "gae" else {"_actor"}
    saved = {(path.parent.name, path.name) for path in tmp_path.glob("*/job/ckpt/_*/global_step*")}
    kept = [2, 4]  # 2: of the first evaluation, which none was better than
    assert saved == {(model, f"global_step{step}") for model in models for step in kept}
    with open_lineage(tmp_path) as store:
        rows = Reader(store).checkpoints(watch.info.run_id)
    assert [item.step for item in rows if item.dropped is None] == kept


@pytest.mark.parametrize("algorithm", ["reinforce_baseline", "gae"])
def test_the_checkpoint_of_the_best_evaluation_stays_beside_the_newest(algorithm, tmp_path):
    def at(event):
        if isinstance(event, EvaluationFinished) and (event.step, event.mode) == (
            2,
            "greedy",
        ):  # the sampled one is over
            (next(tmp_path.glob("*/job/ckpt")) / "gate").touch()

    extra = ["checkpoint.keep=1", "train.steps=8", f"train.algorithm={algorithm}"]
    assert start(tmp_path, "gate:3", Watch(at), extra).status is RunStatus.FINISHED
    models = {"_actor", "_critic"} if algorithm == "gae" else {"_actor"}
    saved = {(path.parent.name, path.name) for path in tmp_path.glob("*/job/ckpt/_*/global_step*")}
    assert saved == {(model, f"global_step{step}") for model in models for step in (2, 8)}
    assert [item.step for item in checkpoints_of(tmp_path) if item.dropped is None] == [2, 8]


def checkpoints_of(folder):
    with open_lineage(folder) as store:
        reader = Reader(store)
        return reader.checkpoints(reader.get_run("latest").record.id)


def test_a_job_that_the_disk_does_not_hold_is_refused_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("rlf.runs.opening.find_free_bytes", lambda _: 10**6)
    with pytest.raises(RlfError, match=r"0\.001 GB are free, and the run still writes up to .* \(checkpoints: policy"):
        start(tmp_path)
    assert not list(tmp_path.glob("*/job"))


def test_ray_and_its_agents_have_longer_to_come_up_than_its_own_limits(tmp_path, left_nothing):
    at = place(raylet="slow")
    assert start(tmp_path, at=at, extra=["train.steps=1", "eval.every=1"]).status is RunStatus.FINISHED


def test_a_process_of_ray_that_has_ended_is_named_with_its_last_line_and_not_waited_for(tmp_path, left_nothing):
    began = time.monotonic()
    with pytest.raises(RunError, match="last line: Ray's raylet ended with code 1 before it reported: no room in /dev"):
        start(tmp_path, at=place(raylet="dead"))
    assert time.monotonic() - began < 120


def take_away_checkpoint(folder, step):
    """What a guard that rolls back does."""
    shutil.rmtree(next(folder.glob(f"*/job/ckpt/_actor/global_step{step}")))


def fix(folder):
    """Lets the trainer of a run go to its end."""
    next(folder.glob("*/job/place.json")).write_text(place().model_dump_json())


def test_ctrl_c_ends_everything_and_keeps_what_was_done(tmp_path, left_nothing):
    def stop(event):
        if isinstance(event, StepFinished) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    assert start(tmp_path, "hang:2", watch=Watch(stop)).status is RunStatus.INTERRUPTED
    run_, steps, *_ = stored(tmp_path)
    assert (run_.status, sorted(steps)) == (RunStatus.INTERRUPTED, [1, 2])


def test_a_run_that_ended_before_it_had_a_job_is_resumed(tmp_path, monkeypatch, left_nothing):
    def stop(event):
        if isinstance(event, Notice) and event.data.get("stage") == "parts":
            os.kill(os.getpid(), signal.SIGINT)

    assert start(tmp_path, watch=Watch(stop)).status is RunStatus.INTERRUPTED
    shutil.rmtree(next(tmp_path.glob("*/job")))  # as where it is killed before it writes
    monkeypatch.setattr(engine_run, "MachinePlace", place)
    assert resume("latest", runs_folder=tmp_path, view=Watch(), command=["rlf"]).status is RunStatus.FINISHED
    assert sorted(stored(tmp_path)[1]) == [1, 2, 3, 4]


def test_a_killed_driver_takes_its_job_along_and_is_caught_up_with_once(tmp_path):
    driver = Process(start, tmp_path, "hang:3")
    wait_for(lambda: len(list(tmp_path.glob("*/job/ckpt/_actor/global_step3"))) == 1)
    family = descendants(driver.pid)
    assert len(family) >= 4
    with driver:
        driver.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    forget_step(tmp_path, 3)
    fix(tmp_path)
    outcome = resume("latest", runs_folder=tmp_path, view=Watch(), command=["rlf", "resume"])
    assert outcome.status is RunStatus.FINISHED
    _, steps, evaluations, checkpoints, trajectories = stored(tmp_path)
    assert sorted(steps) == [1, 2, 3, 4]
    assert (3 in checkpoints, (2, "sampled") in evaluations) == (True, True)
    assert len({item.trajectory_id for item in trajectories}) == len(trajectories) == 16


def forget_step(folder, step):
    """The lineage as it would be, had the driver died before it told of the step."""
    from sqlalchemy import delete, select, update

    from rlf.lineage import tables

    with open_lineage(folder) as store, store.write() as connection:
        for table in (tables.steps, tables.trajectories, tables.checkpoints):
            connection.execute(delete(table).where(table.c.step >= step))
        last = min(step - 1, connection.execute(select(tables.runs.c.last_step)).scalar_one())
        connection.execute(update(tables.runs).values(last_step=last))


def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_machine_without_the_packages_or_the_gpus_is_reported_before_anything_is_written(tmp_path):
    with pytest.raises(RlfError, match="the job needs 2 GPUs, and it has 1") as error:
        run(
            [ROOT / "specs" / "search.yaml"],
            [*SIZES, "engine.actor.per_node=2"],
            runs_folder=tmp_path,
            view=Watch(),
            command=[],
            place=MachinePlace(num_gpus=1),
        )
    assert "ray is not installed there" in str(error.value)
    assert "rlf rehearse" in str(error.value)
    assert list(tmp_path.glob("*/job")) == []
