"""Whole runs of every estimator, each with other settings of the update: what a spec allows does run."""

import math

import pytest

from rlf.algo import ESTIMATORS
from rlf.apps.evaluate.advantage import explain_advantage
from rlf.types import Notice, RunStatus, StepFinished
from tests.runs.test_runs import Watch, start

SETTINGS = {
    "grpo": ["+train.kl.coef=0.01", "+train.dynamic_filtering={}"],
    "dr_grpo": ["train.loss={kind: gspo}"],
    "rloo": ["+model.lora={rank: 4, alpha: 8}"],
    "reinforce": ["+train.kl={coef: 0.01, kind: k1, place: reward}"],
    "reinforce_baseline": ["rollout.schedule=clock", "+train.epochs=2", "+train.mini_batches=2"],
    "gae": ["train.algorithm={kind: gae, observations: skip, lam: 0.9}", "+train.entropy_coef=0.001"],
    "gdpo": ["train.loss={kind: cispo, top_entropy: 0.5}"],
    "gpg": ["train.loss={kind: gpg, aggregation: constant_length, length: 320}"],
    "grpo_passk": ["train.loss={kind: sapo, off_policy_mask: 0.5}"],
    "maxrl": ["train.loss={dppo_mask: 0.2, observations: 0.05}"],
    "opo": ["train.loss={correction: {level: seq_product, mode: clip}, probability_mask: 0.3}"],
    "pass_at_k": ["train.algorithm={kind: pass_at_k, k: 2}", "+train.mask_truncated=true"],
    "tree_grpo": ["+rollout.tree={roots: 1, rounds: 3}"],
    "remax": ["+train.kl={coef: 0.01, sync_every: 1}"],
}
_UNSTORED = {"gae": "critic", "distillation": "teacher"}
"""What only the engine knew of a step."""


@pytest.mark.parametrize("algorithm", ESTIMATORS.names())
def test_every_estimator_trains(small, tmp_path, algorithm):
    watch = Watch()
    short = ["train.steps=2", "eval.limit=2", f"train.algorithm={algorithm}"]
    outcome = start(small, tmp_path, watch, extra=[*short, *SETTINGS.get(algorithm, [])])
    assert outcome.status is RunStatus.FINISHED
    steps = [event for event in watch.events if isinstance(event, StepFinished)]
    assert [event.step for event in steps] == [1, 2]
    for event in steps:
        assert all(math.isfinite(value) for value in event.metrics.values()), event.metrics
        if algorithm == "grpo":
            _assert_groups_are_mixed(event)
        if algorithm == "remax":
            _assert_baselines_are_greedy(event)
    _assert_advantages_are_explained(outcome.run_id, tmp_path, steps[0], algorithm)


def _assert_advantages_are_explained(run_id, runs, event, algorithm):
    """The arithmetic that a page shows ends in what was trained with, but for values that only the critic knew."""
    trained = [k for k, advantage in enumerate(event.advantages) if advantage is not None]
    for k in trained[:1] + trained[-1:]:
        found = explain_advantage(run_id, runs, event.step, k)
        assert found.stored == pytest.approx(event.advantages[k])
        if algorithm in _UNSTORED:
            assert found.agrees is None and _UNSTORED[algorithm] in found.missing
        else:
            assert found.agrees, found


def _assert_groups_are_mixed(event):
    groups = {}
    for scored, advantage in zip(event.trajectories, event.advantages, strict=True):
        if advantage is not None:
            groups.setdefault(scored.trajectory.task.id, []).append(scored.reward)
    assert len(groups) == event.metrics["groups/kept"]
    assert all(0 < sum(rewards) / len(rewards) < 1 for rewards in groups.values())


def _assert_baselines_are_greedy(event):
    """One greedy rollout of each task, in no loss; the advantage of the others is their distance to its reward."""
    greedy = {item.trajectory.task.id: item for item in event.trajectories if item.trajectory.id.endswith("/greedy")}
    assert len(greedy) == 2 and len(event.trajectories) == 2 * (4 + 1)
    assert event.metrics["groups/without_greedy"] == 0
    for scored, advantage in zip(event.trajectories, event.advantages, strict=True):
        baseline = greedy[scored.trajectory.task.id]
        expected = None if scored is baseline else pytest.approx(scored.reward - baseline.reward)
        assert advantage == expected


def test_a_step_whose_every_group_is_filtered_updates_nothing_and_says_so(small, tmp_path):
    watch = Watch()
    never = "+train.dynamic_filtering={low: 0.99, high: 1.0, max_rounds: 2}"
    outcome = start(small, tmp_path, watch, extra=["train.steps=1", "eval.limit=2", never])
    assert outcome.status is RunStatus.FINISHED
    step = next(event for event in watch.events if isinstance(event, StepFinished))
    assert len(step.trajectories) == 2 * 2 * 4 and set(step.advantages) == {None}
    assert any(isinstance(event, Notice) and "not updated" in event.text for event in watch.events)
