"""A hidden term in whole runs: nothing that is trained on changes, its gap is recorded, and its guard stops the run."""

from __future__ import annotations

import asyncio

import pytest

from rlf.apps.rewards.scoring import try_reward_files
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.lineage.upkeep import training_scores
from rlf.runs.declared import load_rewards
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.sink import HealthStop
from rlf.runs.start import run
from rlf.types import RunStatus, ScoreState

from .conftest import ROOT
from .test_runs import Watch

SPEC = """
extends: {base}
name: hidden
rewards:
  - {{kind: rule, name: truth, rule: regex, pattern: {pattern}, hidden: true, every: {every}}}
"""
CUT = ("data.train.limit=64", "~eval", "~data.eval", "train.prompts_per_step=8", "rollout.num_generations=4")


@pytest.fixture
def start(tmp_path):
    def start(*overrides, pattern="never", every=1, folder="runs"):
        spec = tmp_path / "hidden.yaml"
        spec.write_text(SPEC.format(base=ROOT / "specs" / "search.yaml", pattern=pattern, every=every))
        files, own = [spec], [*CUT, "train.steps=4", "checkpoint.every=2", *overrides]
        return run(files, own, runs_folder=tmp_path / folder, view=Watch(), command=["rlf", "run"])

    return start


def read(folder):
    with open_lineage(folder) as store:
        reader = Reader(store)
        run_id = reader.get_run("latest").record.id
        heads = reader.trajectories(run_id, TrajectoryFilter(phase="train"))
        whole = [reader.whole(run_id, head) for head in heads]
        return reader.get_run("latest"), reader.steps(run_id), heads, whole, reader.events(run_id)


def gaps(steps):
    return [{name: value for name, value in step.metrics.items() if name.startswith("gap/")} for step in steps]


@pytest.mark.parametrize("algorithm", ["gdpo", "mt_grpo"])
def test_a_hidden_term_changes_nothing_that_is_trained_on(start, tmp_path, algorithm):
    own = (f"train.algorithm={algorithm}", "train.steps=2", "train.dynamic_filtering={}", "health.hidden=null")
    start(*own, every=2)
    start(*own, "~rewards.1", folder="without")
    _, steps, heads, whole, _ = read(tmp_path / "runs")
    _, others, theirs, _, _ = read(tmp_path / "without")
    pick = [(head.step, head.k, head.reward, head.success, head.advantage, head.num_tokens) for head in heads]
    assert pick == [(head.step, head.k, head.reward, head.success, head.advantage, head.num_tokens) for head in theirs]
    for ours, other in zip(steps, others, strict=True):
        assert ours.metrics["loss/policy"] == other.metrics["loss/policy"]
    for item in whole:
        scored = item.scored
        assert scored.reward == sum(score.weight * score.value for score in scored.scores if score.weight)
        assert [score.weight for score in scored.scores if score.term == "truth"] == [0.0]
    states = {}
    for item in whole:
        (score,) = (score for score in item.scored.scores if score.term == "truth")
        states.setdefault(item.scored.trajectory.task.id, set()).add(score.state)
    assert {frozenset(found) for found in states.values()} == {  # all rollouts of a task or none
        frozenset({ScoreState.SCORED}),
        frozenset({ScoreState.GATED}),
    }


def test_a_gap_that_is_shown_stops_the_run_and_shows_three_rollouts(start, tmp_path):
    with pytest.raises(HealthStop) as stopped:
        start("health.hidden={above: 0.05, steps: 1, action: stop}", "train.steps=9")
    text = str(stopped.value)
    assert "health: hidden term 'truth' refuses 100.0 % of what 'exact_match' pays; since step 1 more than 15" in text
    stored, steps, heads, _, events = read(tmp_path / "runs")
    (alarm,) = (event for event in events if event.level == "alarm")
    assert (stored.status, stored.last_step) == (RunStatus.FAILED, alarm.data["step"])
    assert alarm.data["guard"] == "hidden/truth/exact_match" and len(alarm.data["trajectories"]) == 3
    for k in alarm.data["trajectories"]:
        (head,) = (head for head in heads if (head.step, head.k) == (alarm.data["step"], k))
        assert head.success == 1.0
        assert f"--phase train --step {head.step} --trajectory {k}" in alarm.text
    assert gaps(steps)[-1]["gap/truth/exact_match"] == 1.0
    # Continued, from before the alarm too, it is not stopped again for what it was stopped for.
    outcome = resume("latest", runs_folder=tmp_path / "runs", view=Watch(), command=["rlf", "resume"])
    assert outcome.status is RunStatus.FINISHED


def test_a_resumed_run_has_the_gaps_of_one_that_was_not_stopped_and_reads_the_first_evaluation_again(tmp_path):
    class Stop(Watch):
        def __call__(self, info):
            take = super().__call__(info)

            def seen(event):
                take(event)
                if getattr(event, "step", 0) == 3 and type(event).__name__ == "StepFinished":
                    raise KeyboardInterrupt

            return seen

    spec = tmp_path / "hidden.yaml"
    spec.write_text(SPEC.format(base=ROOT / "specs" / "search.yaml", pattern="a", every=1))
    own = [*CUT, "train.steps=4", "checkpoint.every=2"]
    own = [each for each in own if not each.startswith("~")] + ["eval={limit: 4, num_samples: 2}"]
    run([spec], own, runs_folder=tmp_path / "whole", view=Watch(), command=["rlf"])
    assert run([spec], own, runs_folder=tmp_path / "cut", view=Stop(), command=["rlf"]).status is RunStatus.INTERRUPTED
    resume("latest", runs_folder=tmp_path / "cut", view=Watch(), command=["rlf", "resume"])
    _, steps, _, _, _ = read(tmp_path / "whole")
    _, again, _, _, _ = read(tmp_path / "cut")
    assert len(gaps(steps)) == 4 and gaps(steps)[3]
    assert gaps(again) == gaps(steps)
    found = [scores_of(tmp_path / folder) for folder in ("whole", "cut")]
    assert found[0] == found[1] and [row[:2] for row in found[0] if row[0] == 0] == [(0, k) for k in range(8)]


def scores_of(folder):
    with open_lineage(folder) as store, store.read() as connection:
        run_id = Reader(store).get_run("latest").record.id
        return [(step, k, task, score.value) for step, k, task, score in training_scores(connection, run_id, {"truth"})]


def test_the_tests_of_a_hidden_term_are_run_whichever_tasks_it_is_asked_about(tmp_path):
    spec = tmp_path / "term.yaml"
    tests = "[{gold: Lyon, answer: Lyon, expect: 1}, {gold: Lyon, answer: Paris, expect: 0}]"
    spec.write_text(f"{{kind: rule, name: truth, rule: contains, hidden: true, every: 50, tests: {tests}}}")
    trials = asyncio.run(try_reward_files(load_rewards([spec])))
    assert trials and all(trial.ok for trial in trials)
