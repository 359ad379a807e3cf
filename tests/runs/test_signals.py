"""A run that cannot learn reports it after each step, and every run ends with a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlf.lineage.reader import Reader
from rlf.reports.report import read_report, shown_events
from rlf.reports.verdict import VerdictKind
from rlf.runs.place import open_lineage
from rlf.runs.sink import HealthStop
from rlf.runs.start import run
from rlf.types import Notice, RunStatus

from .test_runs import Watch

WRONG = ["data.train.answer=kind", "data.eval.answer=kind"]
SHORT = ["train.steps=3", "eval.every=1", "eval.greedy=false", "checkpoint.every=3"]


def started(small, folder, *overrides):
    watch = Watch()
    files, own = small
    outcome = run(files, [*own, *SHORT, *overrides], runs_folder=folder, view=watch, command=["rlf", "run"])
    return watch, outcome


def notices(watch, key):
    return [event for event in watch.events if isinstance(event, Notice) and key in event.data]


@pytest.fixture(scope="module")
def without_signal(tmp_path_factory):
    """A run whose golds are in the wrong column, with its folder."""
    from pathlib import Path

    from .conftest import SMALL

    folder = tmp_path_factory.mktemp("runs")
    every_row = ("~data.train.limit", "~data.eval.limit")
    small = ([Path(__file__).parents[2] / "specs" / "search.yaml"], [*SMALL, *every_row])
    return folder, *started(small, folder, *WRONG)


def test_every_step_without_signal_is_diagnosed_with_figures_an_example_and_a_command(without_signal):
    folder, watch, outcome = without_signal
    found = notices(watch, "signal")
    assert [(notice.data["phase"], notice.data["step"]) for notice in found] == [
        ("sampled", 0),
        *(("train", step) for step in (1, 2, 3)),
    ]
    assert {notice.level for notice in found} == {"warning"}
    for notice in found:
        assert "0 of 8 trajectories succeeded" in notice.text
        assert "too few to say that there is nothing to learn from" in notice.text
        assert "Example: asked" in notice.text
        assert f"Look: rlf runs show {outcome.run_id} --phase " in notice.text
        assert notice.data["command"].endswith(f"--runs {folder}")


def test_causes_that_were_named_before_are_repeated_in_words(without_signal):
    _, watch, _ = without_signal
    named, num_repeated = set(), 0
    for notice in notices(watch, "signal"):
        kinds = [cause["kind"] for cause in notice.data["causes"]]
        is_repeated = "Likely, as before: " in notice.text
        assert not is_repeated or set(kinds) & named, notice.text
        num_repeated += is_repeated
        named.update(kinds)
    assert num_repeated


def test_a_wrong_answer_column_is_named_by_the_run(without_signal):
    _, watch, _ = without_signal
    causes = [cause for notice in notices(watch, "signal") for cause in notice.data["causes"]]
    assert any(cause["kind"] == "answer_column" and "not kind" in cause["advice"] for cause in causes)


def test_the_verdict_on_a_run_without_signal_is_in_its_outcome_its_events_and_its_report(without_signal):
    folder, watch, outcome = without_signal
    assert (outcome.status, outcome.verdict.kind) == (RunStatus.FINISHED, VerdictKind.NO_SIGNAL)
    (notice,) = notices(watch, "verdict")
    assert notice.text == outcome.verdict.line
    assert notice.text.startswith(
        "verdict: no signal: all rewards that are compared were equal in 3 of 3 steps; likely: "
    )
    with open_lineage(folder) as store:
        report = read_report(Reader(store), outcome.run_id)
        assert report.verdict == outcome.verdict
        assert [e.data["verdict"] for e in report.events if "verdict" in e.data] == ["no signal"]
        assert len([event for event in report.events if "signal" in event.data]) == 4
        assert len([event for event in shown_events(report.events) if "signal" in event.data]) == 1


def test_a_run_can_be_stopped_where_there_is_nothing_to_learn_from(small, tmp_path):
    with pytest.raises(HealthStop, match="nothing to learn from since step 1") as stopped:
        started(small, tmp_path, *WRONG, "train.steps=6", "health.on_no_signal=stop")
    assert str(stopped.value).splitlines()[-1].startswith("verdict: no signal: all rewards")
    with open_lineage(tmp_path) as store:
        stored = Reader(store).get_run("latest")
        assert (stored.status, stored.last_step) == (RunStatus.FAILED, 3)
        assert "verdict" not in stored.error


def test_only_a_setting_that_can_stop_a_run_changes_the_plan(small):
    from rlf.runs.plans import check_spec

    def plan_hash(*overrides):
        return check_spec(small[0], [*small[1], *overrides]).plan.plan_hash

    assert plan_hash() == plan_hash("health.on_no_signal=warn") != plan_hash("health.on_no_signal=stop")


TOOL = """name: search
description: Find passages.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "search.py:search", isolation: inline}
"""
CODE = "def search(query):\n    raise ValueError('no index loaded')\n"


def test_a_tool_that_always_fails_is_the_cause_that_is_named(small, tmp_path):
    (tmp_path / "search.yaml").write_text(TOOL)
    (tmp_path / "search.py").write_text(CODE)
    spec = {"extends": str(small[0][0]), "tools": ["search.yaml"]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    watch, _ = started(([tmp_path / "spec.yaml"], small[1]), tmp_path / "runs", "train.steps=1")
    causes = [cause for notice in notices(watch, "signal") for cause in notice.data["causes"]]
    assert any(cause["kind"] == "tools_fail" and "no index loaded" in cause["seen"] for cause in causes)


def test_time_that_the_schedule_took_is_reported_once_with_its_share():
    from rlf.runs.plans import check_spec
    from rlf.runs.sink import SignalWatch
    from rlf.types import StepFinished

    from .conftest import ROOT

    watch = SignalWatch(check_spec([ROOT / "specs" / "search.yaml"], []).plan.spec, "x", Path("runs"), str)

    def step(number, lost_s):
        metrics = {"reward/mean": 0.5, "success": 0.5, "time/generate_s": 2.0, "time/schedule_s": lost_s}
        return watch.after_step(StepFinished(number, metrics, (), ()))[0]

    assert step(1, 0.1) == []
    (notice,) = step(2, 0.5)
    assert notice.text.startswith("step 2: 25 % of the time of the rollouts (0.50 of 2.00 s) was lost to")
    assert step(3, 0.5) == []


@pytest.mark.parametrize(("call_s", "is_reported"), [(0.004, False), (0.2, True)])
def test_time_that_quick_tools_took_on_a_busy_machine_is_not_the_schedules(call_s, is_reported):
    from rlf.runs.plans import check_spec
    from rlf.runs.sink import SignalWatch
    from rlf.types import CallRecord, Outcome, StepFinished, StopReason, Task, ToolCall, ToolResult

    from .conftest import ROOT

    watch = SignalWatch(check_spec([ROOT / "specs" / "search.yaml"], []).plan.spec, "x", Path("runs"), str)
    metrics = {"reward/mean": 0.5, "success": 0.5, "time/generate_s": 2.0, "time/schedule_s": 0.5}
    record = CallRecord(ToolCall("search", {}), ToolResult(Outcome.OK, "", run_s=call_s))
    trajectory = SimpleNamespace(
        calls=(made := [record, record]),
        played_calls=made,
        task=Task("t", ()),
        sample_index=0,
        stop=StopReason.ANSWERED,
    )
    played = SimpleNamespace(trajectory=trajectory, scores=(), reward=0.5)
    notices = watch.after_step(StepFinished(1, metrics, (played,), ()))[0]
    assert [notice.text.count("search: 0.2 s a call") for notice in notices] == [1] * is_reported
