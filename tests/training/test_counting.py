"""What counts, what broke the rest, and what a step's numbers are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlf.rollout.rollout import Rollout, find_broken
from rlf.spec.models import EvalSpec
from rlf.training.counting import broken_trajectory, choose_tries, counts, find_cause
from rlf.training.evaluation import step_metrics
from rlf.types import (
    CallRecord,
    Outcome,
    Phase,
    Score,
    ScoreState,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Turn,
    WorldRecord,
)
from rlf.types.trajectory import SAMPLER, MissingRewardCause

from .trajectories import scored


def test_a_trajectory_counts_with_a_reward_and_a_sampled_token() -> None:
    assert counts(scored("a", 0.0))
    assert not counts(scored("a", None))
    assert not counts(scored("a", 1.0, sampled=0))


def test_of_several_tries_of_a_rollout_the_first_with_a_reward_is_taken() -> None:
    missed, later, won, again = scored("a", None), scored("a", None), scored("a", 0.0), scored("a", 1.0)
    other = scored("b", None)
    assert choose_tries([missed, other, later, won, again]) == [won, other]
    assert choose_tries([missed, later]) == [missed]


def test_what_broke_a_trajectory_is_named() -> None:
    assert find_cause(scored("a", 1.0)) is None
    assert find_cause(scored("a", None, stop=StopReason.INFRA_FAILURE)) == MissingRewardCause(SAMPLER, "")
    broken = broken_trajectory(Rollout("train/0/3", Task("a", ()), 3, 1), [5, 6], "ValueError: no")
    assert not counts(broken)
    assert find_cause(broken) == MissingRewardCause(SAMPLER, "ValueError: no")
    trajectory = broken.trajectory
    assert (trajectory.tokens, trajectory.action_mask) == ([5, 6], [False, False])
    assert trajectory.rollout_logprobs == [0.0, 0.0]
    assert (trajectory.id, trajectory.task.id, trajectory.sample_index) == ("train/0/3", "a", 3)
    assert (trajectory.turns, trajectory.answer, trajectory.error) == ((), None, "ValueError: no")
    assert (broken.scores, broken.reward, broken.success) == ((), None, None)


@pytest.mark.parametrize(
    ("phase", "state", "cause"),
    [
        ("train", ScoreState.UNANSWERED, None),
        ("eval/sampled", ScoreState.UNANSWERED, MissingRewardCause("reward term 'judge'", "refused")),
        ("eval/greedy", ScoreState.FAULT, MissingRewardCause("reward term 'judge'", "refused")),
        ("eval/sampled", ScoreState.UNSCORABLE, MissingRewardCause("reward term 'judge'", "refused", may_pass=False)),
        ("eval/sampled", ScoreState.GATED, None),
    ],
)
def test_an_evaluation_misses_the_success_term_also_where_training_drops_it(
    phase: str, state: ScoreState, cause: object
) -> None:
    """`unscorable: drop_term` of the first term."""
    item, terms = scored("a", 1.0), (Score("judge", None, 0.0, "refused", state=state), Score("other", 1.0, 1.0))
    trajectory = replace(item.trajectory, id=f"{phase}/0/a/0")
    assert find_cause(replace(item, trajectory=trajectory, scores=terms, success=None)) == cause


def test_the_first_tool_that_broke_is_named() -> None:
    item = scored("a", None, stop=StopReason.INFRA_FAILURE)
    records = tuple(
        CallRecord(ToolCall(name, {}), ToolResult(outcome, ""))
        for name, outcome in (("fine", Outcome.OK), ("gone", Outcome.INFRA), ("last", Outcome.INFRA))
    )
    trajectory = replace(item.trajectory, turns=(Turn(1, 2, 2, "", records),), broken=find_broken(records))
    cause = find_cause(replace(item, trajectory=trajectory))
    assert cause is not None and cause.name == "tool 'gone'"


def test_a_world_that_failed_is_named_before_the_tools() -> None:
    item = scored("a", None, stop=StopReason.INFRA_FAILURE)
    call = CallRecord(ToolCall("gone", {}), ToolResult(Outcome.INFRA, ""))
    for failed, name in ((Phase.RESET, "world 'shop'"), (None, "tool 'gone'")):
        world = WorldRecord("shop", failed=failed)
        trajectory = replace(
            item.trajectory, turns=(Turn(1, 2, 2, "", (call,)),), world=world, broken=find_broken([call])
        )
        cause = find_cause(replace(item, trajectory=trajectory))
        assert cause is not None and cause.name == name


def test_the_term_that_took_the_reward_is_named_with_its_error_and_whether_it_may_pass() -> None:
    def missing(term: str, state: ScoreState, weight: float = 1.0) -> Score:
        return Score(term, None, weight, f"{term} is {state}", state=state)

    fine, watched = Score("fine", 1.0, 1.0), missing("watched", ScoreState.UNANSWERED, weight=0.0)
    row, judge = missing("gold", ScoreState.UNSCORABLE), missing("judge", ScoreState.UNANSWERED)
    for scores, cause in (
        ((fine, watched, judge), MissingRewardCause("reward term 'judge'", "judge is unanswered")),
        ((row, judge), MissingRewardCause("reward term 'judge'", "judge is unanswered")),
        ((fine, watched, row), MissingRewardCause("reward term 'gold'", "gold is unscorable", may_pass=False)),
        ((missing("own", ScoreState.FAULT),), MissingRewardCause("reward term 'own'", "own is fault")),
        ((fine,), None),
    ):
        assert find_cause(replace(scored("a", None), scores=scores)) == cause


def test_throughput_follows_from_the_times_that_an_engine_measured() -> None:
    collected = [scored("a", 1.0, sampled=3), scored("a", 0.0, sampled=5), scored("b", None, sampled=4)]
    own = {"time/generate_s": 2.0, "time/update_s": 0.5, "loss/policy": 0.25}
    metrics = step_metrics(collected, collected[:2], num_groups=1, own=own)
    assert metrics["throughput/generate_tokens_per_s"] == 6.0  # (3 + 5 + 4) sampled / 2 s
    assert metrics["throughput/update_tokens_per_s"] == 20.0  # (1 + 3 + 1 + 5) tokens / 0.5 s
    assert (metrics["groups/kept"], metrics["groups/dead_share"], metrics["loss/policy"]) == (1.0, 0.0, 0.25)
    assert "throughput/update_tokens_per_s" not in step_metrics(collected, [], num_groups=1, own={})


@pytest.mark.parametrize(("every", "due"), [(None, {0, 7}), (3, {0, 3, 6, 7}), (7, {0, 7})])
def test_an_evaluation_is_due_first_last_and_every_few_steps(every: int | None, due: set[int]) -> None:
    assert EvalSpec(every=every).due_steps(7) == due
