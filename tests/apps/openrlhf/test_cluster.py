"""Runs on a cluster: a job goes on without its driver, is found again, and tells of itself over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from rlf.apps.openrlhf.cluster import Cluster
from rlf.apps.openrlhf.job import MachinePlace
from rlf.core import RlfError, RunError
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.types import RunStatus, StepFinished

from ...processes import Process
from .test_engine import Watch, place, start, stored, wait_for

SECRET = "a word of both sides"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A job server with the trainer `what`, and the overrides that send a run to it."""
    (tmp_path / "ray").mkdir()
    monkeypatch.setenv("RLF_INGEST_TOKEN", SECRET)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    class Cluster:
        runs, nodes, jobs = tmp_path / "runs", tmp_path / "nodes", tmp_path / "ray"
        shared = ("engine.ray_address=http://head:8265", f"engine.output={tmp_path / 'nodes'}")
        apart = (*shared, "+engine.ingest.host=127.0.0.1", f"+engine.ingest.port={free_port()}")

        def place(self, what):
            there = place(what)
            variables = {"FAKE_TRAINER": what, "FAKE_RAY": str(self.jobs), "PATH": path}
            return there.model_copy(update={"variables": variables})

        def start(self, what="", how=shared, watch=None):
            return start(self.runs, watch=watch, extra=how, at=self.place(what))

        def fix(self):
            (place_,) = self.runs.glob("*/job/place.json")
            place_.write_text(self.place("").model_dump_json())

        def resume(self, watch=None):
            return resume("latest", runs_folder=self.runs, view=watch or Watch(), command=["rlf", "resume"])

        def kill_driver_at(self, step, how):
            """Leaves a job whose trainer waits at a step, and whose driver was killed when it had told that step."""
            driver = Process(start_at, self.runs, how, self.place(f"gate:{step}"))
            wait_for(lambda: last_step(self.runs) == step, timeout_s=300)
            with driver:
                driver.kill()

        def open_gate(self):
            (next(self.nodes.iterdir()) / "ckpt" / "gate").touch()

        def is_over(self):
            return any(self.jobs.glob("rlf-*-1/code"))

        def names(self):
            return sorted(path.name.partition("-nodes-")[0].rpartition("-")[2] for path in self.jobs.iterdir())

    return Cluster()


def start_at(folder, how, at):
    start(folder, extra=how, at=at)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def last_step(runs):
    if not (runs / "rlf.db").exists():
        return None
    with open_lineage(runs) as store:
        found = Reader(store).list_runs()
        return found[0].last_step if found else None


def holds_all(cluster):
    """The whole run is in the lineage, each thing once."""
    run_, steps, evaluations, checkpoints, trajectories = stored(cluster.runs)
    assert (run_.status, sorted(steps)) == (RunStatus.FINISHED, [1, 2, 3, 4])
    assert evaluations == [(step, mode) for step in (0, 2, 4) for mode in ("greedy", "sampled")]
    assert checkpoints == [1, 2, 3, 4]
    assert len({item.trajectory_id for item in trajectories}) == len(trajectories) == 16
    return True


def test_a_job_is_submitted_with_its_folder_followed_and_stopped(cluster):
    def stop(event):
        if isinstance(event, StepFinished) and event.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = cluster.start("hang:2", watch=Watch(stop))
    assert outcome.status is RunStatus.INTERRUPTED
    run_, steps, _, checkpoints, trajectories = stored(cluster.runs)
    assert run_.record.host["device"] == "http://head:8265"
    assert (sorted(steps), checkpoints, len(trajectories)) == ([1, 2], [1, 2], 8)
    assert (cluster.nodes / outcome.run_id / "spool").is_dir()
    assert (cluster.jobs / f"rlf-{outcome.run_id}-1" / "stopped").exists()


def test_a_node_with_other_packages_is_named_before_the_trainer_starts(cluster, tmp_path):
    distribution = tmp_path / "site" / "vllm-0.31.0.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0\n")
    at = cluster.place("")
    there = at.model_copy(update={"paths": (str(distribution.parent), *at.paths)})
    with pytest.raises(
        RunError, match=r"after step 0: the nodes cannot run the job: a node: vllm is 0\.31\.0; jobs are"
    ):
        start(cluster.runs, extra=cluster.shared, at=there)
    accepted = [*cluster.shared, "+engine.accept_versions={vllm: 0.31.0}"]
    assert start(cluster.runs, extra=accepted, at=there).status is RunStatus.FINISHED


def test_without_a_shared_disk_everything_comes_over_http(cluster):
    outcome = cluster.start(how=cluster.apart)
    assert holds_all(cluster)
    assert len([*cluster.nodes.glob("*/spool/attempt-1/*.spool")]) == 1
    assert not (cluster.runs / outcome.run_id / "job" / "spool").exists()  # the lineage has it all
    files = [path for path in cluster.runs.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_job_that_went_on_is_followed_again_by_resume(cluster):
    cluster.kill_driver_at(2, cluster.shared)
    assert not cluster.is_over()
    watch = Watch(lambda event: cluster.open_gate())
    assert cluster.resume(watch).status is RunStatus.FINISHED
    assert watch.info.first_step == 3
    assert cluster.names() == ["1"]
    assert holds_all(cluster)


def test_a_job_that_ended_without_its_driver_is_read_by_resume_and_nothing_is_lost(cluster):
    cluster.kill_driver_at(2, cluster.apart)
    cluster.open_gate()
    wait_for(cluster.is_over, timeout_s=300)
    here = next(cluster.runs.glob("*/job/spool/attempt-1/*.spool")).stat().st_size
    assert here < next(cluster.nodes.glob("*/spool/attempt-1/*.spool")).stat().st_size
    assert cluster.resume().status is RunStatus.FINISHED
    assert cluster.names() == ["1", "1"]  # and one that asked the nodes
    assert holds_all(cluster)


def test_a_job_that_failed_goes_on_from_the_checkpoint_of_its_nodes_once_the_server_answers(cluster):
    with pytest.raises(RunError, match="failed after step 3: ValueError: the GPUs are on fire"):
        cluster.start("fail:3", cluster.apart)
    cluster.fix()
    (cluster.jobs / "away").touch()
    with pytest.raises(RunError, match="job server does not answer: ConnectionError"):
        cluster.resume()
    (cluster.jobs / "away").unlink()
    watch = Watch()
    assert cluster.resume(watch).status is RunStatus.FINISHED
    assert watch.info.first_step == 4
    assert holds_all(cluster)


def test_a_missing_token_and_a_taken_port_are_reported_before_the_job_is_started(cluster, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        how = (*cluster.apart, f"engine.ingest.port={taken.getsockname()[1]}")
        with pytest.raises(RlfError, match=r"engine\.ingest: cannot listen on 127\.0\.0\.1 port"):
            cluster.start(how=how)
    monkeypatch.delenv("RLF_INGEST_TOKEN")
    with pytest.raises(RlfError, match="RLF_INGEST_TOKEN: not set"):
        cluster.start(how=cluster.apart)
    assert list(cluster.jobs.iterdir()) == []


def test_a_job_that_cannot_be_stopped_is_named(tmp_path):
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\ntest $4 = follow && exec sleep 60\nprintf 'no way to \\351' >&2\nexit 1\n")
    client.chmod(0o755)
    notices = []

    async def leave():
        async with Cluster("http://head:8265", MachinePlace(python=str(client)), notices.append).followed(
            "j", tmp_path / "log"
        ):
            pass

    asyncio.run(leave())
    (notice,) = notices
    assert notice.level == "warning"
    assert notice.text == "http://head:8265: job j could not be stopped and may still run: no way to \ufffd"
