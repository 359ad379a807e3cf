"""Terms that compose, worked by hand for one group and held against what a run records of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rlf.lineage.reader import Reader
from rlf.rewards import Term
from rlf.rollout.rollout import find_broken
from rlf.runs.place import open_lineage
from rlf.runs.start import run
from rlf.training.missing import MissingWatch
from rlf.types import (
    CallRecord,
    Notice,
    Outcome,
    Score,
    Scored,
    ScoreState,
    StepFinished,
    StopReason,
    ToolCall,
    ToolResult,
    Turn,
)

from ..training.trajectories import scored
from .test_runs import Watch

TERMS = """\
import math


def base(trajectory):
    return trajectory.sample_index / 4


def broken(trajectory):
    return {0: 1.0, 1: math.nan, 2: 7.0, 3: 0.5}[trajectory.sample_index]


def silent(trajectory):
    return None if trajectory.sample_index == 3 else 1.0
"""
SPEC = """\
name: composed
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
tools: []
rewards:
  - kind: python
    name: base
    callable: "./composed_terms.py:base"
    range: [0, 1]
    weight: 2.0
    scale: 0.5
    clip: [0.1, 0.3]
  - kind: python
    name: late
    callable: ./composed_terms.py:base
    weight: {schedule: linear, from: 0.0, to: 1.0, steps: 2}
    when: {term: base, at_least: 0.5}
  - {kind: python, name: broken, callable: "./composed_terms.py:broken", weight: 4.0, unscorable: drop_term}
  - {kind: python, name: silent, callable: "./composed_terms.py:silent", weight: 8.0}
  - {kind: python, name: must, callable: "./composed_terms.py:base", weight: -1.0, required: 0.25}
rollout: {num_generations: 4, max_turns: 1, max_total_tokens: 128, max_new_tokens: 16}
train: {algorithm: grpo, steps: 2, prompts_per_step: 1}
"""
REWARDS = [0.0, 8.0, 8.25, None]
"""In step 2, where `late` weighs 1/2; sample k has `base` k/4, which counts as k/8 within 0.1 and 0.3.

0: `must` is 0 and should be 1/4, so that nothing is gained;  1: 2 (1/8) + 8 - 1/4, `broken` is nan and dropped;
2: 2 (1/4) + 1/2 (1/2) + 8 - 1/2: `broken` is 7 and dropped for the whole group;
3: `silent` says nothing, so that there is no reward.
"""
SHARES = {"base": 2.0625, "late": 17 / 24, "broken": 0.0, "silent": 130 / 3, "must": -2.0625}
"""Contributions times the rewards' distances from their mean 65/12, -65/12, 31/12 and 34/12; their squares' sum is
1057/24."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The second step's metrics, and its trajectories as they are in the lineage."""
    folder = tmp_path_factory.mktemp("composed")
    (folder / "composed_terms.py").write_text(TERMS)
    (folder / "run.yaml").write_text(SPEC)
    watch = Watch()
    run([folder / "run.yaml"], [], runs_folder=folder / "runs", view=watch, command=["rlf", "run"])
    with open_lineage(folder / "runs") as store:
        reader = Reader(store)
        stored = [reader.trajectory(watch.info.run_id, k=k, step=2) for k in range(4)]
    metrics = [event.metrics for event in watch.events if isinstance(event, StepFinished)][1]
    notices = [event for event in watch.events if isinstance(event, Notice)]
    return metrics, sorted(stored, key=lambda each: each.summary.sample_index), notices


def test_the_recorded_rewards_are_those_worked_by_hand(recorded: Any) -> None:
    _, stored, _ = recorded
    assert [each.scored.reward for each in stored] == REWARDS
    assert all(score.elapsed_s > 0 for each in stored for score in each.scored.scores)


def test_each_term_is_recorded_with_value_weight_state_and_reason(recorded: Any) -> None:
    _, stored, _ = recorded
    scores = {(k, score.term): score for k, each in enumerate(stored) for score in each.scored.scores}
    assert [scores[k, "base"].value for k in range(4)] == [0.1, 0.125, 0.25, 0.3]
    assert [scores[k, "base"].weight for k in range(4)] == [0.0, 2.0, 2.0, 2.0]
    assert scores[0, "base"].reason == "set to 0, since 'must' is required"
    assert [scores[k, "late"].state for k in range(4)] == [ScoreState.GATED] * 2 + [ScoreState.SCORED] * 2
    assert scores[1, "late"].reason == "not computed: 'base' is 0.25, below 0.5"
    assert (scores[2, "late"].value, scores[2, "late"].weight) == (0.5, 0.5)
    nan = scores[1, "broken"]
    assert (nan.value, nan.weight, nan.state, nan.reason) == (None, 0.0, ScoreState.FAULT, "nan is not a finite number")
    beside = scores[2, "broken"]
    assert (beside.value, beside.weight) == (7.0, 0.0)
    assert beside.reason.endswith("left out: 1 of its group's 3 have no value")
    missing = scores[3, "silent"]
    assert (missing.value, missing.weight, missing.state) == (None, 8.0, ScoreState.UNSCORABLE)
    assert missing.reason.endswith("composed_terms.py:silent returned None")


def test_advantages_are_of_the_scorable_rewards_alone(recorded: Any) -> None:
    """(R - 65/12) / 4.692636, with 4.692636^2 = 1057 / 48."""
    _, stored, _ = recorded
    found = [each.summary.advantage for each in stored]
    assert found[:3] == pytest.approx([-1.154291, 0.550508, 0.603783], abs=1e-5)
    assert found[3] is None


def test_metrics_of_a_step_are_those_worked_by_hand(recorded: Any) -> None:
    metrics, *_ = recorded
    assert metrics["reward/mean"] == pytest.approx(65 / 12) and metrics["unscorable"] == 1
    assert metrics["rewards/base/mean"] == pytest.approx(0.475 / 3)  # (0.1 + 0.125 + 0.25) / 3
    assert metrics["rewards/base/std"] == pytest.approx(0.0656167, abs=1e-6)
    assert (metrics["rewards/late/mean"], metrics["rewards/late/gated"]) == (0.5, 2.0)
    assert (metrics["rewards/broken/faults"], metrics["rewards/broken/unscorable"]) == (1.0, 1.0)
    assert (metrics["rewards/silent/faults"], metrics["rewards/silent/unscorable"]) == (0.0, 1.0)
    shares = {term: metrics[f"rewards/{term}/share"] for term in SHARES}
    assert shares == pytest.approx({term: value * 24 / 1057 for term, value in SHARES.items()})
    assert sum(shares.values()) == pytest.approx(1)


def missing(step: int, term: str, num: int, of: int) -> StepFinished:
    """A step in which a term has no value for some trajectories."""
    one = scored("a", 1.0)
    states = [ScoreState.FAULT] * num + [ScoreState.SCORED] * (of - num)
    scores = [
        Score(term, None if state is ScoreState.FAULT else 1.0, 1.0, "it raised", state=state) for state in states
    ]
    gated = Score("late", None, 0.0, state=ScoreState.GATED)
    trajectories = [
        replace(one, trajectory=replace(one.trajectory, sample_index=place), scores=(score, gated))
        for place, score in enumerate(scores)
    ]
    return StepFinished(step, {}, trajectories, [None] * of)


@pytest.mark.parametrize(("unscorable", "words"), [("drop_term", "summed without it"), ("drop_trajectory", "left out")])
def test_a_term_without_a_value_for_more_than_a_twentieth_is_reported_once(unscorable: str, words: str) -> None:
    declared = {"kind": "rule", "name": "own", "rule": "exact_match", "unscorable": unscorable}
    watch = MissingWatch([Term.model_validate(declared)], str)
    assert watch.after_step(missing(1, "own", 2, 40)) == [], "5 % is not more than 5 %"
    (notice,) = watch.after_step(missing(2, "own", 3, 40))
    assert notice.text.startswith("step 2: reward term 'own' has no value for 3 of 40 trajectories, e.g. fault: it rai")
    assert words in notice.text and f"unscorable: {unscorable}" in notice.text
    assert watch.after_step(missing(3, "own", 40, 40)) == []
    assert watch.after_step(missing(4, "own", 0, 40)) == []
    assert len(watch.after_step(missing(5, "own", 40, 40))) == 1


def searched(place: int, kind: str, outcome: Outcome, num_tries: int = 1) -> Iterator[Scored]:
    """The tries of one rollout, of which the last one ends so and others could not reach their tool."""
    for number in range(num_tries):
        now = outcome if number == num_tries - 1 else Outcome.UNREACHABLE
        one = scored("a", 1.0 if now is Outcome.OK else None)
        call = CallRecord(ToolCall("search", {}), ToolResult(now, "refused"))
        broken = find_broken([call])
        yield replace(
            one,
            trajectory=replace(
                one.trajectory,
                task=replace(one.trajectory.task, id=f"{kind}{place}", kind=kind),
                turns=(Turn(1, 2, 2, "", (call,)),),
                stop=StopReason.INFRA_FAILURE if broken else StopReason.ANSWERED,
                broken=broken,
            ),
        )


def test_a_tool_that_breaks_more_than_a_twentieth_of_a_step_is_reported_with_the_kinds_that_it_hits() -> None:
    watch = MissingWatch([], str)
    bad, good = Outcome.UNREACHABLE, Outcome.OK
    outcomes = [("easy", bad)] + [("easy", good)] * 19 + [("hard", bad)] * 3 + [("hard", good)] * 17
    items = [one for place, (kind, outcome) in enumerate(outcomes) for one in searched(place, kind, outcome)]
    (notice,) = watch.after_step(StepFinished(3, {}, items, [None] * 40))
    assert notice.text.startswith(
        "step 3: tool 'search' broke 4 of 40 trajectories (hard 3 of 20, easy 1 of 20), e.g. "
    )
    assert (notice.data["cause"], notice.data["missing"], notice.data["asked"]) == ("tool 'search'", 4, 40)


def test_what_an_outage_broke_and_was_played_again_is_not_reported_as_left_out() -> None:
    items = [one for place in range(8) for one in searched(place, "easy", Outcome.OK, num_tries=3)]
    assert MissingWatch([], str).after_step(StepFinished(1, {}, items, [None] * 24)) == []


def test_a_run_reports_its_terms_without_values(recorded: Any) -> None:
    *_, notices = recorded
    words = [notice.text for notice in notices if "has no value for" in notice.text]
    assert [text.split(" has no value")[0] for text in words] == [
        "step 1: reward term 'broken'",
        "step 1: reward term 'silent'",
    ]
