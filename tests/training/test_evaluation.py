"""What an evaluation plays together, and which trajectories are no part of its figures."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlf.reports.statistics import wilson_interval
from rlf.reports.success import interval_of, kinds_of
from rlf.rewards import TrajectoryFacts
from rlf.rollout.rollout import find_broken
from rlf.spec.models import EvalSpec
from rlf.training import evaluation
from rlf.training.counting import mode_of
from rlf.training.outages import Outages
from rlf.types import EvaluationFinished, Notice, Score, Scored, ScoreState, StopReason, Task, Trajectory

CALL = {"name": "search", "result": "unreachable", "outcome": "unreachable"}


def scored(reward, id_="eval/sampled/4/q/0", **facts):
    trajectory = TrajectoryFacts.model_validate({"gold": "x", **facts}).trajectory()
    return Scored(replace(trajectory, id=id_), scores=(), reward=reward, success=reward)


def harness(*terms):
    return SimpleNamespace(
        evaluation=None,
        greedy=None,
        reward=SimpleNamespace(terms=terms),
        player=lambda *each: None,
        meter=SimpleNamespace(bounded=lambda *each: nullcontext()),
    )


@pytest.mark.parametrize(
    ("metrics", "least"),
    [
        ({"success": 0.5, "num_questions": 10.0}, 0.5),
        ({"success": 0.8, "num_questions": 5.0}, 0.4),  # 4 of 10, whatever the other 5 come to
        ({"success": -0.5, "num_questions": 5.0}, -0.5),
        ({"success": 0.5}, 0.5),
        ({"num_questions": 0.0}, None),
    ],
)
def test_models_are_chosen_as_if_questions_without_a_value_had_failed(metrics, least):
    assert evaluation.least_success(metrics, 10) == least


def test_a_success_outside_0_and_1_is_reported_as_it_is_and_has_no_interval():
    tried = [scored(value, answer="x") for value in (-1.0, 1.0, -1.0, -1.0)]
    asked = [
        replace(one, trajectory=replace(one.trajectory, task=Task(f"q{number}", (), None)))
        for number, one in enumerate(tried)
    ]
    metrics = evaluation.evaluation_metrics(asked, 1)
    assert metrics["success"] == -0.5 and interval_of(metrics) is None


def test_kinds_that_are_named_as_ends_of_the_interval_do_not_replace_it():
    tried = [scored(float(kind == "low"), answer="x") for kind in ("low", "low", "high", "mid")]
    tasks = [Task(f"q{number}", (), None, kind=kind) for number, kind in enumerate(("low", "low", "high", "mid"))]
    asked = [
        replace(one, trajectory=replace(one.trajectory, task=task)) for one, task in zip(tried, tasks, strict=True)
    ]
    metrics = evaluation.evaluation_metrics(asked, 1)
    assert interval_of(metrics) == wilson_interval(2, 4)
    assert kinds_of(metrics) == {"low": 1.0, "high": 0.0, "mid": 0.0}


def test_the_interval_of_an_evaluation_counts_clusters_where_the_data_names_them():
    tried = [scored(float(number < 8), answer="x") for number in range(16)]
    # four documents of four questions each, two of them solved in whole
    tasks = [Task(f"q{number:02d}", (), None, cluster=f"doc{number // 4}") for number in range(16)]
    asked = [
        replace(one, trajectory=replace(one.trajectory, task=task)) for one, task in zip(tried, tasks, strict=True)
    ]
    metrics = evaluation.evaluation_metrics(asked, 1)
    low, high = interval_of(metrics)
    assert metrics["num_clusters"] == 4 and high - low > wilson_interval(2, 4).high - wilson_interval(2, 4).low
    alone = evaluation.evaluation_metrics(
        [
            replace(one, trajectory=replace(one.trajectory, task=replace(one.trajectory.task, cluster=None)))
            for one in asked
        ],
        1,
    )
    assert interval_of(alone) == wilson_interval(8, 16) and "num_clusters" not in alone


@pytest.mark.parametrize("num_broken", [0, 2])
def test_an_evaluation_in_which_a_tool_was_down_names_it_and_the_number(monkeypatch, num_broken):
    item = scored(None, turns=[{"text": "t", "calls": [CALL]}], stop="infra_failure")
    trajectory = replace(item.trajectory, broken=find_broken(item.trajectory.calls))
    broken = [replace(item, trajectory=trajectory)] * num_broken

    async def collect(*args, **kwargs):
        found = [scored(1.0, answer="x"), scored(1.0, answer="x"), *broken]
        return [
            replace(one, trajectory=replace(one.trajectory, task=Task(name, ())))
            for one, name in zip(found, "abcd", strict=False)
        ]

    monkeypatch.setattr(evaluation, "collect", collect)
    events = []
    spec = EvalSpec.model_validate({"greedy": False})
    tasks = [Task(name, ()) for name in "abcd"][: 2 + num_broken]
    outages = Outages(0, lambda *words: None)
    evaluating = evaluation.evaluate_policy(
        None, harness(), tasks, spec, seed=0, step=4, emit=events.append, outages=outages
    )
    success = asyncio.run(evaluating)
    notices = [event for event in events if isinstance(event, Notice)]
    assert success == 2 / (2 + num_broken), "models are chosen as if the questions without a value had failed"
    assert len(notices) == bool(num_broken)
    if num_broken:
        assert "evaluation after step 4, sampled: 2 of 4 trajectories have no value" in notices[0].text
        assert "tool 'search' broke 2 of them" in notices[0].text


@pytest.mark.parametrize(
    ("terms", "max_usd", "collections"),
    [
        ([], None, [["sampled/a", "greedy/a", "sampled/b", "greedy/b"]]),
        ([SimpleNamespace(compares_groups=True)], None, [["sampled/a", "sampled/b"], ["greedy/a", "greedy/b"]]),
        ([], 1.0, [["sampled/a", "sampled/b"], ["greedy/a", "greedy/b"]]),
    ],
    ids=["plain", "groups are compared", "a budget for each mode"],
)
def test_both_modes_of_a_question_are_played_side_by_side_unless_each_stands_for_itself(
    monkeypatch, terms, max_usd, collections
):
    played, events = [], []

    async def collect(rollouts, *args, **kwargs):
        played.append([f"{mode_of(rollout.id)}/{rollout.task.id}" for rollout in rollouts])
        return [scored(float(mode_of(rollout.id) == "greedy"), rollout.id, answer="x") for rollout in rollouts]

    monkeypatch.setattr(evaluation, "collect", collect)
    tasks = [Task(id=name, messages=()) for name in "ab"]
    outages = Outages(0, lambda *words: None)
    evaluating = evaluation.evaluate_policy(
        None, harness(*terms), tasks, EvalSpec(), seed=0, step=4, emit=events.append, outages=outages, max_usd=max_usd
    )
    assert asyncio.run(evaluating) == 0.0
    assert played == collections
    found = [(event.mode, event.metrics["success"]) for event in events if isinstance(event, EvaluationFinished)]
    assert found == [("sampled", 0.0), ("greedy", 1.0)]


def played(place, stop, reward=1.0, state=ScoreState.SCORED, task="q"):
    made = Trajectory(f"train/{task}/{place}", Task(task, ()), place, [1, 2], [False, True], [0.0] * 2, (), stop, None)
    score = Score("good", None if reward is None else 1.0, 1.0, "why", state=state)
    return Scored(made, (score,), reward, reward)


@pytest.mark.parametrize(
    ("mask_truncated", "dropped", "share"), [(False, 0, 1 / 4), (True, 0, 3 / 4), (True, 1, 7 / 8), (False, 3, 13 / 16)]
)
def test_the_share_that_a_step_leaves_out_for_its_length_has_masked_unscored_and_dropped_ones(
    mask_truncated, dropped, share
):
    collected = [
        played(0, StopReason.ANSWERED),
        played(1, StopReason.LENGTH),
        played(2, StopReason.LENGTH, None, ScoreState.UNSCORABLE),
        played(3, StopReason.LENGTH, None, ScoreState.UNANSWERED),  # a judge that was down is why
        played(3, StopReason.LENGTH, None, ScoreState.UNANSWERED),  # of one rollout, played again
    ]
    own = {"groups/dropped": float(dropped)} if dropped else {}
    metrics = evaluation.step_metrics(collected, [], num_groups=1, own=own, mask_truncated=mask_truncated)
    assert metrics["left_out/length"] == pytest.approx(share)


def test_a_step_that_leaves_nothing_out_for_its_length_has_no_such_share():
    collected = [played(0, StopReason.ANSWERED), played(1, StopReason.LENGTH)]
    assert "left_out/length" not in evaluation.step_metrics(collected, [], num_groups=1, own={})
