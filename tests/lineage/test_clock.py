"""A wall clock that is set in mid-run changes no time that is reported, nor who owns the run."""

import time
from types import SimpleNamespace

import pytest

from rlf.apps.look import events as tail
from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.lease import describe_owner
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import begin_resume
from rlf.reports.overview import elapsed_s
from rlf.types import Notice, RunFinished, RunStatus

from .builders import run_record, step

JUMPS = [3600.0, -3600.0, 86_400.0, -86_400.0]


@pytest.fixture
def clock(monkeypatch):
    """Sets the wall clock by some seconds; the monotonic one goes on."""
    wall, ahead_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: wall() + ahead_s[0])
    return lambda seconds: ahead_s.__setitem__(0, ahead_s[0] + seconds)


def took_s(reader):
    run = reader.get_run("r")
    return elapsed_s(run.record.started, run.finished, run.status, run.idle_s)


@pytest.fixture
def running(store, clock):
    start_run(store, run_record("r", started=time.time()))


@pytest.mark.parametrize("jump_s", JUMPS)
@pytest.mark.usefixtures("running")
def test_a_run_keeps_its_owner_and_its_duration(path, store, reader, clock, jump_s):
    with Recorder(store, "r") as recorder:
        recorder(step(1))
        recorder.flush()
        clock(jump_s)
        with open_store(path) as other, pytest.raises(RlfError, match="still running"):
            begin_resume(other, "r", 1)
        with store.write() as connection:
            store.leases["r"].beat(connection)
        assert took_s(reader) == pytest.approx(0, abs=60)
        clock(jump_s)
        recorder(step(2))
        recorder(RunFinished(RunStatus.FINISHED, 2))
    assert reader.get_run("r").status is RunStatus.FINISHED
    assert took_s(reader) == pytest.approx(0, abs=60)


@pytest.mark.parametrize("jump_s", JUMPS)
@pytest.mark.usefixtures("running")
def test_a_follower_shows_each_event_once(store, reader, clock, jump_s, monkeypatch):
    later = [lambda: recorder(Notice("info", "after", {})), lambda: recorder(RunFinished(RunStatus.FINISHED, 1))]
    with Recorder(store, "r") as recorder:

        def pause(seconds):
            later.pop(0)()
            recorder.flush()

        monkeypatch.setattr(tail, "time", SimpleNamespace(sleep=pause))
        recorder(step(1))
        recorder(Notice("info", "before", {}))
        recorder.flush()
        clock(jump_s)
        texts = [getattr(event, "text", "step") for event in tail.follow_events(reader, "r", 1, follow=True)]
    assert texts == ["before", "after"]


@pytest.mark.usefixtures("running")
def test_a_sign_of_life_from_the_future_is_named(store, clock):
    clock(-3600)
    with store.read() as connection:
        assert "3600 s ahead of this machine's clock" in describe_owner(connection.execute(tables.runs.select()).one())
