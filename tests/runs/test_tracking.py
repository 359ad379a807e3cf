"""`report_to:` and `lineage:`: what trackers are told, that none of them can end a run, and where a run is recorded."""

import json
import logging
import threading
from typing import Literal

import pytest

from rlf.core import RlfError, SpecError
from rlf.core.redact import Redactor
from rlf.lineage.reader import Reader
from rlf.plan import plan_to_json
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.runs.tracking import Tracking
from rlf.trackers import TRACKERS, TrackedRun, Tracker
from rlf.types import Notice, RunFinished, RunStatus, StepFinished

from .test_runs import Watch

KEPT: list[object] = []


class Keeper(Tracker):
    """Keeps what it is told."""

    kind: Literal["keeper"] = "keeper"

    def open(self, run):
        KEPT[:] = [run]
        return self

    def __call__(self, event):
        KEPT.append(event)

    def close(self):
        KEPT.append("closed")


class Failing(Keeper):
    """Raises at its second event."""

    kind: Literal["failing"] = "failing"

    def open(self, run):
        seen = []

        def write(event):
            seen.append(event)
            if len(seen) == 2:
                raise SystemExit("gone")

        return write


class Hanging(Keeper):
    """Never comes back from its first event."""

    kind: Literal["hanging"] = "hanging"

    def __call__(self, event):
        threading.Event().wait()


def tracking(folder, *trackers, environment=None, last_s=5.0):
    told = TrackedRun("r", "search", folder, 1, {"key": "hunter2-hunter2"})
    return Tracking(trackers, told, Redactor(environment or {}), last_s=last_s)


STEPS = [StepFinished(step, {"loss": 1.0}, ("bulk",), (1.0,)) for step in range(1, 50)]


def test_a_tracker_is_reported_all_without_trajectories_and_without_secrets(tmp_path):
    with tracking(tmp_path, Keeper(), environment={"MY_KEY": "hunter2-hunter2"}) as told:
        events = [STEPS[0], Notice("info", "key hunter2-hunter2", {"a": "hunter2-hunter2"})]
        for event in [*events, RunFinished(RunStatus.FINISHED, 1)]:
            assert told(event) == []
    opened, step, notice, finished, closed = KEPT
    assert opened.spec == {"key": "[redacted]"} and closed == "closed"
    assert (step.metrics, step.trajectories) == ({"loss": 1.0}, ())
    assert (notice.text, notice.data) == ("key [redacted]", {"a": "[redacted]"})
    assert finished.status is RunStatus.FINISHED


def test_one_that_fails_is_left_out_with_one_warning_and_the_others_go_on(tmp_path):
    warnings = []
    with tracking(tmp_path, Failing(), Keeper()) as told:
        failing = told._lines[0]
        for event in STEPS:
            warnings += told(event)
        failing.join(30.0)
        warnings += told(RunFinished(RunStatus.FINISHED, 49))
    assert [warning.text for warning in warnings] == [
        "report_to: failing gets no more events of this run: SystemExit: gone. The run continues."
    ]
    assert len(KEPT) == 1 + len(STEPS) + 1 + 1


def test_one_that_hangs_holds_the_end_of_a_run_up_for_a_bounded_time(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), tracking(tmp_path, Hanging(), last_s=0.2) as told:
        told(STEPS[0])
        told(RunFinished(RunStatus.FINISHED, 1))
    assert "hanging gets no more events of this run: it did not finish in time" in caplog.text


def test_a_run_that_breaks_is_reported_as_failed(tmp_path):
    with pytest.raises(RlfError), tracking(tmp_path, Keeper()) as told:
        told(STEPS[0])
        raise RlfError("no more disk")
    assert (KEPT[-2].status, KEPT[-2].error) == (RunStatus.FAILED, "no more disk")


def test_a_package_that_is_absent_is_a_fault_of_the_spec_at_its_line(small, tmp_path, monkeypatch):
    monkeypatch.setattr("rlf.trackers.find_spec", lambda name: None)
    spec = tmp_path / "run.yaml"
    spec.write_text(f"extends: {small[0][0]}\nreport_to: [jsonl, wandb]\n")
    with pytest.raises(SpecError) as raised:
        check_spec([spec], [])
    assert f"{spec}:2:20 report_to[1]: wandb is not installed. Run `pip install wandb`" in str(raised.value)


def test_where_a_run_is_reported_of_is_no_part_of_its_plan(small, monkeypatch):
    monkeypatch.setenv("TEAM_DB", "postgresql://me:hunter2@db/runs")
    plain = check_spec(*small).plan
    files, own = small
    told = check_spec(files, [*own, "+report_to=[jsonl]", "+lineage={url: '${oc.env:TEAM_DB}', keep: [failed]}"]).plan
    assert told.plan_hash == plain.plan_hash
    assert told.spec.lineage.url == "postgresql://me:hunter2@db/runs"
    assert "hunter2" not in plan_to_json(told) and "${oc.env:TEAM_DB}" in plan_to_json(told)


def test_a_run_is_recorded_where_its_spec_says_reported_as_it_goes_and_thinned_at_its_end(small, tmp_path, monkeypatch):
    files, own = small
    where = f"sqlite:///{tmp_path / 'team.db'}"
    extra = ["train.steps=2", f"+lineage={{url: '{where}', keep: ['last:1']}}", "+report_to=jsonl"]
    watch = Watch()
    run(files, [*own, *extra], runs_folder=tmp_path / "runs", view=watch, command=["rlf", "run"])
    assert not (tmp_path / "runs/rlf.db").exists()
    lines = [json.loads(line) for line in (watch.info.folder / "metrics.jsonl").read_text().splitlines()]
    monkeypatch.setenv("RLF_DB", where)
    with open_lineage(tmp_path / "runs") as store:
        reader = Reader(store)
        steps = {step.step: step.metrics for step in reader.steps(watch.info.run_id)}
        told = {line["step"]: line["metrics"] for line in lines if line["event"] == "step"}
        assert {step: told[step]["reward/mean"] for step in told} == {n: m["reward/mean"] for n, m in steps.items()}
        assert reader.trajectory(watch.info.run_id, k=0, step=2).scored.trajectory.tokens
        with pytest.raises(RlfError, match="thinned"):
            reader.trajectory(watch.info.run_id, k=0, step=1)
    with pytest.raises(RlfError, match="finished already"):
        resume(watch.info.run_id, runs_folder=tmp_path / "runs", view=Watch(), command=["rlf", "resume"])


def test_every_tracker_that_ships_is_named_in_the_guide():
    from .conftest import ROOT

    guide = (ROOT / "docs/guides/logging.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in guide for name in TRACKERS.names())
