"""Jobs: processes of their own that any server of the runs folder finds; runs are stopped by their own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from io import BytesIO
from zipfile import ZipFile

import pytest

from rlf.apps.web.jobs import PAGES, Jobs, JobState
from rlf.core.errors import NotFoundError, RlfError, RunError
from rlf.lineage.process import current_process, is_gone, process_of
from rlf.lineage.upkeep import send_signal

from ...reports.synthetic import run_record


def ended(jobs, job_id, seconds=60):
    deadline = time.monotonic() + seconds
    while (job := jobs.get(job_id)).state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    return job


def test_a_job_is_found_by_another_server_with_its_result(tmp_path):
    started = Jobs(tmp_path / "runs", tmp_path).start("schema", ["schema", "reward"], records=False)
    other = Jobs(tmp_path / "runs", tmp_path)
    job = ended(other, started.id)
    assert (job.state, job.exit_code, job.command) == (JobState.DONE, 0, "rlf schema reward")
    assert [one.id for one in other.list()] == [started.id]


def test_a_job_that_fails_says_so_with_its_last_words(tmp_path):
    jobs = Jobs(tmp_path / "runs", tmp_path)
    job = ended(jobs, jobs.start("run", ["run", "none.yaml"]).id)
    assert job.state is JobState.FAILED and job.exit_code == 2 and "none.yaml" in job.tail


def test_lines_that_user_code_prints_hide_neither_the_run_nor_the_jobs(tmp_path):
    jobs = Jobs(tmp_path / "runs", tmp_path)
    started = ended(jobs, jobs.start("schema", ["schema", "reward"], records=False).id)
    stdout = tmp_path / "runs/.jobs" / started.id / "stdout"
    stdout.write_text('loading\n5\n[1]\n{"data": {"run_id": "r"}}\n7\n')
    assert [(job.run_id, job.result) for job in jobs.list()] == [("r", None)]


def test_no_more_jobs_run_than_may(tmp_path):
    jobs = Jobs(tmp_path / "runs", tmp_path, max_running=0)
    with pytest.raises(RunError, match="which is the limit"):
        jobs.start("run", ["--version"])


def test_the_pages_of_an_export_are_one_archive_once_it_is_done(clients, tmp_path):
    client, folder = clients(runs_folder=tmp_path), tmp_path / ".jobs" / "20260102-030405-0b0b"
    (folder / PAGES / "t").mkdir(parents=True)
    (folder / PAGES / "t" / "train-1-0.html").write_text("a trajectory")
    process = asdict(process_of(os.getpid()))
    about = {"action": "export", "command": "rlf web export x", "started": 0.0, "process": process}
    (folder / "job.json").write_text(json.dumps(about))
    asked = f"/api/v1/jobs/{folder.name}/pages"
    assert client.get(asked).status_code == 404
    (folder / "exit_code").write_text("0")
    with ZipFile(BytesIO(client.get(asked).content)) as archive:
        assert archive.read("t/train-1-0.html") == b"a trajectory"


@pytest.mark.parametrize("name", ["../x", "..", ".", "none", "a/b", "", "\0", "x" * 300])
def test_a_job_that_is_none_is_missing(tmp_path, name):
    with pytest.raises(NotFoundError):
        Jobs(tmp_path, tmp_path).get(name)


def test_a_signal_reaches_the_very_process_and_no_other_of_its_pid():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = process_of(child.pid)
        reused = type(process)(process.pid, process.node, process.boot, process.pid_ticks + 1)
        assert not send_signal(reused, signal.SIGTERM) and child.poll() is None
        assert send_signal(process, signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM
        assert is_gone(process) and not send_signal(process, signal.SIGTERM)
    finally:
        child.kill()
        child.wait()


def test_a_run_that_nobody_runs_cannot_be_stopped(client):
    response = client.post(f"/api/v1/runs/{run_record().id}/stop", json={})
    assert response.status_code == 422 and "no process runs it" in response.json()["error"]["message"]


def test_a_running_run_is_interrupted_by_its_own_process(tmp_path, clients):
    from rlf.lineage.run import start_run
    from rlf.lineage.store import open_store

    caught = []
    before = signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    try:
        with open_store(tmp_path / "runs/rlf.db") as store:
            start_run(store, run_record())
            client = clients(runs_folder=tmp_path / "runs")
            stopped = client.post(f"/api/v1/runs/{run_record().id}/stop", json={})
            assert stopped.json() == {"run_id": run_record().id, "pid": os.getpid(), "signal": "SIGINT"}
        deadline = time.monotonic() + 5
        while not caught and time.monotonic() < deadline:
            time.sleep(0.01)
        assert caught and current_process().pid == os.getpid()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_job_that_has_just_ended_is_not_taken_for_one_that_vanished(tmp_path, monkeypatch):
    jobs = Jobs(tmp_path / "runs", tmp_path)
    started = jobs.start("schema", ["schema", "reward"], records=False)
    code = tmp_path / "runs/.jobs" / started.id / "exit_code"

    def end_now(process):
        code.write_text("0")
        return True

    monkeypatch.setattr("rlf.apps.web.jobs.is_gone", end_now)
    assert jobs.get(started.id).state is JobState.DONE


def test_words_that_would_be_options_are_refused():
    from rlf.apps.web.jobs import checked_words

    assert checked_words(["a.yaml"], ["x=1", "~eval"]) == ["a.yaml", "x=1", "~eval"]
    for word in ("--runs=/x", "-m", "plain", "--", "a=\0", "a=\ud800"):
        with pytest.raises(RlfError):
            checked_words([], [word])


def test_a_project_beside_this_one_is_opened_as_a_page_of_its_own(clients, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "specs").mkdir(parents=True)
    client = clients(project=tmp_path / "one", runs_folder=tmp_path / "one/runs")
    assert client.get("/api/v1/projects").json()["beside"] == ["one", "two"]
    assert "open two" in client.get("/projects").text
    assert client.post("/api/v1/projects/open", json={"name": "../two"}).status_code == 404
    job = client.post("/api/v1/projects/open", json={"name": "two"}).json()
    try:
        deadline = time.monotonic() + 60
        while job["address"] is None and job["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
            job = client.get(f"/api/v1/jobs/{job['id']}").json()
        assert job["address"].startswith("http://127.0.0.1:") and "token=" in job["address"], job
    finally:
        client.request("DELETE", f"/api/v1/jobs/{job['id']}")
        assert ended(client.app.state.site.jobs, job["id"]).state is not JobState.RUNNING
