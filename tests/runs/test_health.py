"""A guard of `health:` warns, stops a run, or takes it back to before the collapse."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.sink import HealthStop
from rlf.runs.start import run
from rlf.types import Notice, RunStatus

from .test_runs import Watch


def started(small, folder, *overrides):
    watch = Watch()
    files, own = small
    run(files, [*own, *overrides], runs_folder=folder, view=watch, command=["rlf", "run"])
    return watch


def alarms(watch):
    return [event for event in watch.events if isinstance(event, Notice) and event.level == "alarm"]


def test_an_alarm_is_in_the_lineage_with_the_trajectories_that_show_it(small, tmp_path):
    watch = started(small, tmp_path, "+health.entropy={below: 99, steps: 2}")
    (alarm,) = alarms(watch)
    assert alarm.text.startswith("health: entropy is ") and alarm.text.endswith("below 99 since step 1")
    with open_lineage(tmp_path) as store:
        reader = Reader(store)
        (kept,) = [event for event in reader.events(watch.info.run_id) if event.level == "alarm"]
        assert kept.data == alarm.data
        assert kept.data["step"] == 2 and len(kept.data["trajectories"]) == 5


def test_a_stop_ends_the_run_and_it_can_be_resumed(small, tmp_path):
    with pytest.raises(HealthStop, match="below 99 since step 1"):
        started(small, tmp_path, "+health.entropy={below: 99, steps: 3, action: stop}")
    with open_lineage(tmp_path) as store:
        stored = Reader(store).get_run("latest")
        assert (stored.status, stored.last_step) == (RunStatus.FAILED, 3)
        assert "health: entropy" in (stored.error or "")


def test_a_rollback_drops_the_checkpoints_of_the_collapse(small, tmp_path):
    with pytest.raises(HealthStop):
        started(small, tmp_path, "+health.entropy={below: 99, steps: 5, action: rollback}", "checkpoint.every=1")
    with open_lineage(tmp_path) as store:
        reader = Reader(store)
        run_id = reader.get_run("latest").record.id
        assert reader.checkpoints(run_id) == []
    assert list((Path(tmp_path) / run_id / "checkpoints").iterdir()) == []
    with pytest.raises(HealthStop):  # resumed from its start, it comes to the same end
        resume(run_id, runs_folder=tmp_path, view=Watch(), command=["rlf", "resume"])
