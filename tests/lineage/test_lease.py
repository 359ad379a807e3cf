"""One process owns a run: the lock decides on one kernel, the heartbeat elsewhere, and every write asks."""

import shutil
import subprocess
import sys
import time

import pytest
from sqlalchemy import update

from rlf.apps.keep.upkeep import remove_run
from rlf.core import RlfError
from rlf.lineage import run as heartbeat_module
from rlf.lineage import tables
from rlf.lineage.lease import LEASE_S, LeaseLost
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import Heartbeat, start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import begin_resume
from rlf.types import RunFinished, RunStatus

from .builders import run_record, step

WRITER = "tests.lineage.writer"
ELSEWHERE = {"node": "pod-7", "boot": "another kernel pid:[1]", "pid": 1, "pid_ticks": 1}
UNSHARED = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_unshare():
    found = shutil.which("unshare") is not None
    return found and subprocess.run([*UNSHARED, "true"], capture_output=True, check=False).returncode == 0


def write_heartbeat(store, lease):
    with store.write() as connection:
        lease.beat(connection)


def rewrite(path, **values):
    """Lets the lineage say something else of the run, as another process would."""
    with open_store(path) as other, other.write() as connection:
        connection.execute(update(tables.runs).values(values))


def status(path):
    with open_store(path) as store:
        return Reader(store).get_run("latest").status


@pytest.fixture
def left(path):
    """A run whose process died without recording it."""
    with open_store(path) as store:
        start_run(store, run_record("r"))
    return path


def test_a_dead_run_seen_from_another_host_name_and_pid_namespace_is_interrupted_at_once(left):
    with open_store(left) as store, store.read() as connection:
        here = connection.execute(tables.runs.select()).one()
    rewrite(left, node="an-earlier-pod", boot=f"{here.boot.split()[0]} pid:[1]", heartbeat=time.time())
    assert status(left) is RunStatus.INTERRUPTED
    with open_store(left) as store:
        begin_resume(store, "r", 0)


def test_a_living_run_seen_from_another_pid_namespace_is_running_and_left_alone(path, store, run_id):
    with store.read() as connection:
        here = connection.execute(tables.runs.select()).one()
    rewrite(path, boot=f"{here.boot.split()[0]} pid:[1]", pid=1, pid_ticks=1, heartbeat=0.0)
    assert status(path) is RunStatus.RUNNING
    with open_store(path) as other:
        with pytest.raises(RlfError, match=r"still running as process 1 .* --take-over"):
            begin_resume(other, run_id, 0)
        with pytest.raises(RlfError, match="still running"):
            remove_run(other, run_id)


@pytest.mark.parametrize(("age_s", "expected"), [(LEASE_S / 2, "running"), (LEASE_S * 2, "interrupted")])
def test_on_another_machine_the_heartbeat_decides(left, age_s, expected):
    rewrite(left, **ELSEWHERE, heartbeat=time.time() - age_s)
    assert status(left) == expected


def test_where_nothing_can_be_locked_the_heartbeat_decides(path, monkeypatch):
    path.parent.mkdir()
    path.with_name("rlf.db-leases").write_text("in the way of the folder")
    with open_store(path) as store:
        start_run(store, run_record("r"))
        rewrite(path, **ELSEWHERE)
        assert status(path) is RunStatus.RUNNING
    rewrite(path, heartbeat=time.time() - 2 * LEASE_S)
    assert status(path) is RunStatus.INTERRUPTED


def test_a_run_that_was_taken_over_is_lost_by_its_old_process_which_writes_nothing_more(path, store, run_id):
    with open_store(path) as other:
        begin_resume(other, run_id, 0, take_over=True)
        with (
            pytest.raises(LeaseLost, match=r"process \d+ on .* took it over") as caught,
            Recorder(store, run_id) as old,
        ):
            old(step(1, 1))
        assert caught.value.is_taken_over
        with Recorder(other, run_id) as new:
            new(step(1, 2))
            new(RunFinished(RunStatus.FINISHED, 1))
        store.close()
        assert len(Reader(other).trajectories(run_id)) == 2
        assert "taken over after step 0 from process" in Reader(other).events(run_id)[0].text
    assert not path.with_name("rlf.db-leases").exists()


def test_the_heartbeat_reports_a_run_that_is_lost(path, store, run_id, monkeypatch):
    monkeypatch.setattr(heartbeat_module, "BEAT_S", 0.001)
    lost = []
    with Heartbeat(store, run_id, lost.append) as heartbeat:
        rewrite(path, owner="another")
        heartbeat._thread.join(20)
    assert [error.is_taken_over for error in lost] == [True]


def test_a_run_that_was_removed_is_lost(path, store, run_id):
    with store.write() as connection:
        connection.execute(tables.runs.delete())
    with pytest.raises(LeaseLost, match="it was removed from the lineage"):
        write_heartbeat(store, store.leases[run_id])


def test_a_lineage_that_was_removed_in_mid_run_is_named_by_the_next_write(path, store, run_id):
    shutil.rmtree(path.parent)
    with pytest.raises(LeaseLost, match="the lineage was removed or replaced"):
        write_heartbeat(store, store.leases[run_id])
    assert not path.parent.exists()


def test_a_heartbeat_is_written(path, store, run_id):
    rewrite(path, heartbeat=1.0)
    write_heartbeat(store, store.leases[run_id])
    with store.read() as connection:
        assert connection.execute(tables.runs.select()).one().heartbeat > time.time() - 60


def test_why_a_run_stopped_stays_among_its_events_when_it_is_resumed(left):
    for number, reason in enumerate(("the disk is full", "stopped by SIGTERM")):
        with open_store(left) as store:
            begin_resume(store, "r", 0)
            with Recorder(store, "r") as recorder:
                recorder(RunFinished(RunStatus.FAILED, number, reason))
    with open_store(left) as store:
        begin_resume(store, "r", 0)
        texts = [event.text for event in Reader(store).events("r")]
    assert "ended without recording why" in texts[0]
    assert texts[1:] == ["failed after step 0: the disk is full", "failed after step 1: stopped by SIGTERM"]


def test_the_time_that_a_run_lay_dead_is_counted(path, store, run_id):
    with Recorder(store, run_id) as recorder:
        recorder(RunFinished(RunStatus.INTERRUPTED, 0, "stopped"))
    rewrite(path, finished=time.time() - 1000)
    begin_resume(store, run_id, 0)
    assert Reader(store).get_run(run_id).idle_s == pytest.approx(1000, abs=30)


@pytest.mark.skipif(not can_unshare(), reason="namespaces are refused here")
def test_a_run_in_another_container_is_running_while_it_lives_also_paused_and_interrupted_once_it_is_killed(path):
    start = [sys.executable, "-m", WRITER, path, "r", "1", "1"]
    command = [*UNSHARED, "sh", "-c", 'hostname pod-1; exec "$@"', "sh", *start]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as container:
        try:
            assert container.stdout.readline() == "1\n"
            rewrite(path, heartbeat=0.0)  # as of a process that was paused for long
            with open_store(path) as store:
                run = Reader(store).get_run("r")
                assert run.status is RunStatus.RUNNING
                with pytest.raises(RlfError, match="still running as process 1 on pod-1"):
                    begin_resume(store, "r", 1)
                with pytest.raises(RlfError, match="still running"):
                    remove_run(store, "r")
        finally:
            container.kill()
    with open_store(path) as store:
        deadline = time.monotonic() + 20  # the namespace's processes end a moment after its first one
        while Reader(store).get_run("r").status is RunStatus.RUNNING and time.monotonic() < deadline:
            pass
        begin_resume(store, "r", 1)
