"""Gates, required terms, scale and clip, schedules, turns, what a missing value does: R by worked numbers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RlfError, RunError
from rlf.rewards import RewardFunction, Term, TrajectoryFacts
from rlf.rollout.collect import rollout_metrics
from rlf.types import Outcome, Score, Scored, ScoreState, StopReason

from .scoring import CONTEXT, score, score_with

FOLDER = Path(__file__).parent
OK, UNKNOWN = Outcome.OK, Outcome.UNKNOWN_TOOL


def term(name: str, **keys: Any) -> Term:
    """A rule of that name, or a function that returns the column `name`, with the range given."""
    rule = {"kind": "rule", "rule": keys.pop("rule", name)} if "callable" not in keys else {"kind": "python"}
    return Term.model_validate({"name": name, **rule, **keys}, context={"folder": FOLDER})


def says(name: str, **keys: Any) -> Term:
    """A term whose value is the row's column of that name."""
    return Term.model_validate(
        {"name": name, "kind": "rule", "rule": "expression", "formula": "calls", "range": [-10, 10], **keys}
    )


def by_name(scored: Scored) -> dict[str, Score]:
    return {each.term: each for each in scored.scores}


def test_scale_comes_before_clip_and_clip_before_weight(trajectory: Any) -> None:
    one = trajectory("x", outcomes=(OK, OK, OK))  # 3 calls: 3 * 0.5 = 1.5, clipped to 1.2, weight 2
    scored = score(one, says("calls", scale=0.5, clip=[0, 1.2], weight=2))
    assert scored.reward == pytest.approx(2.4)
    assert (scored.scores[0].value, scored.success) == (1.2, 3.0)


@pytest.mark.parametrize(("answer", "reward", "state"), [("Paris", 1.5, "scored"), ("Rome", 0.0, "gated")])
def test_a_gated_term_adds_nothing_until_its_gate_opens(
    trajectory: Any, answer: str, reward: float, state: str
) -> None:
    one = trajectory(answer, "Paris", outcomes=(OK, UNKNOWN))
    gated = term("tool_format", when={"term": "exact_match"})
    scored = score(one, gated, term("exact_match"))
    assert scored.reward == reward
    assert scored.scores[0].state == state
    assert [each.term for each in scored.scores] == ["tool_format", "exact_match"]


def test_a_closed_gate_says_why_and_is_no_zero(trajectory: Any) -> None:
    scored = score(trajectory("Rome", "Paris"), term("exact_match"), term("length", when={"term": "exact_match"}))
    said = by_name(scored)["length"]
    assert (said.value, said.weight, said.reason) == (None, 0.0, "not computed: 'exact_match' is 0, below 1")


@pytest.mark.parametrize(
    ("gate", "calls", "opens"),
    [
        ({"at_least": 2}, 2, True),
        ({"at_least": 2}, 1, False),
        ({"at_most": 1}, 1, True),
        ({"at_most": 1}, 2, False),
        ({"at_least": 1, "at_most": 2}, 2, True),
        ({"at_least": 1, "at_most": 2}, 0, False),
    ],
)
def test_a_gate_reads_the_value_before_scale(trajectory: Any, gate: dict[str, float], calls: int, opens: bool) -> None:
    one = trajectory("x", outcomes=(OK,) * calls)
    scored = score(one, says("calls", scale=100), term("length", when={"term": "calls", **gate}))
    assert by_name(scored)["length"].state is (ScoreState.SCORED if opens else ScoreState.GATED)


def test_behind_a_gated_term_the_next_gate_is_closed_too(trajectory: Any) -> None:
    terms = (
        term("exact_match"),
        term("contains", when={"term": "exact_match"}),
        term("length", when={"term": "contains"}),
    )
    scored = score(trajectory("Rome", "Paris"), *terms)
    assert [each.state for each in scored.scores] == [ScoreState.SCORED, ScoreState.GATED, ScoreState.GATED]
    assert scored.reward == 0.0


def test_a_gate_on_a_term_without_a_value_leaves_the_trajectory_unscorable(trajectory: Any) -> None:
    weightless = term("exact_match", weight=0, unscorable="drop_term")
    scored = score(trajectory("x"), term("length", when={"term": "exact_match"}), weightless)
    assert scored.reward is None
    assert (
        scored.scores[0].reason
        == "its gate cannot be decided: 'exact_match' has no value: task task-1 has no gold answer"
    )


def test_a_required_term_that_falls_short_takes_every_gain_and_leaves_every_loss(trajectory: Any) -> None:
    # correct 1 * 2, calls 3 * -0.1, format 1/3 of at least 0.5: R = min(0, 2) + min(0, -0.3) + min(0, 1/3) = -0.3
    one = trajectory("Paris", "Paris", outcomes=(OK, UNKNOWN, UNKNOWN))
    scored = score(one, term("exact_match", weight=2), says("calls", weight=-0.1), term("tool_format", required=0.5))
    assert scored.reward == pytest.approx(-0.3)
    said = by_name(scored)
    assert said["exact_match"].weight == 0.0
    assert said["exact_match"].reason == "right; set to 0, since 'tool_format' is required"
    assert scored.reward == pytest.approx(sum(each.weight * each.value for each in scored.scores if each.value))
    assert scored.success == 1.0


def test_a_required_term_that_is_met_changes_nothing(trajectory: Any) -> None:
    one = trajectory("Paris", "Paris", outcomes=(OK,))
    assert score(one, term("exact_match", weight=2), term("tool_format", required=True)).reward == 3.0


def test_a_required_term_behind_a_closed_gate_is_not_asked_for(trajectory: Any) -> None:
    terms = term("exact_match"), term("tool_format", required=True, when={"term": "exact_match"}), term("length")
    assert score(trajectory("Rome", "Paris"), *terms).reward == 1.0


@pytest.mark.parametrize(
    ("policy", "weight", "reward"), [("drop_trajectory", 1, None), ("drop_term", 1, 1.0), ("drop_trajectory", 0, 1.0)]
)
def test_a_missing_value_drops_the_trajectory_or_the_term(
    trajectory: Any, policy: str, weight: float, reward: float | None
) -> None:
    scored = score(trajectory("x"), term("length"), term("exact_match", unscorable=policy, weight=weight))
    assert scored.reward == reward
    assert scored.scores[1].state is ScoreState.UNSCORABLE


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"length": {"weight": 0}},
        {"length": {"weight": {"schedule": "linear", "from": 0, "to": 1, "steps": 10}}},
        {"numeric": {"unscorable": "drop_term"}},
        {"calls": {"weight": 0}, "length": {"when": {"term": "calls", "at_least": 1}}},
    ],
    ids=["alone", "beside a term of weight 0", "beside one of weight 0 so far", "beside another", "beside a gated one"],
)
def test_a_trajectory_of_which_no_term_with_a_weight_has_a_value_has_no_reward(
    trajectory: Any, others: dict[str, Any]
) -> None:
    built = [says(name, **keys) if name == "calls" else term(name, **keys) for name, keys in others.items()]
    scored = score(trajectory("x"), term("exact_match", unscorable="drop_term"), *built)
    assert (scored.reward, scored.outcome_reward) == (None, None)
    assert scored.scores[0].weight == 1.0, "a term that is not dropped keeps its weight, which names what is missing"


async def settled_rewards(terms: list[Term], trajectories: list[Any]) -> list[float | None]:
    async with RewardFunction(terms, CONTEXT) as function:
        once = function.settle(await function.score_all(trajectories, step=1), step=1)
        assert function.settle(once, step=1) == once
        assert all(item.reward is None or item.reward == sum(s.contribution for s in item.scores) for item in once)
        return [item.reward for item in once]


def in_groups(trajectory: Any, *rows: tuple[str, str, str | None]) -> list[Any]:
    """Trajectories of tasks, each with its answer and gold."""
    made = [(task, trajectory(answer, gold)) for task, answer, gold in rows]
    return [replace(each, id=f"t{k}", task=replace(each.task, id=task)) for k, (task, each) in enumerate(made)]


DROPS, KEEPS = {"unscorable": "drop_term"}, {"unscorable": "drop_trajectory"}


@pytest.mark.parametrize(
    ("judge", "other", "rows", "rewards"),
    [
        # `exact_match` has no value where there is no gold; `length` is 1 for every short answer
        (DROPS, {}, [("a", "x", "x"), ("a", "x", None), ("a", "y", "x")], [1.0, 1.0, 1.0]),
        (DROPS, {}, [("a", "x", "x"), ("b", "x", None), ("a", "y", "x")], [2.0, 1.0, 1.0]),
        (DROPS, {}, [("a", "x", None), ("a", "x", None)], [1.0, 1.0]),
        (KEEPS, {}, [("a", "x", "x"), ("a", "x", None), ("a", "y", "x")], [2.0, None, 1.0]),
        # a gated `length` is paid to right answers alone: without the gate's term nothing is left to sum
        (DROPS, {"when": {"term": "exact_match"}}, [("a", "x", "x"), ("a", "y", "x")], [2.0, 0.0]),
    ],
    ids=["one of a group", "one of another group", "the whole group", "the trajectory", "no fault"],
)
def test_a_dropped_term_is_left_out_for_its_whole_group(
    trajectory: Any, judge: dict[str, str], other: dict[str, Any], rows: list[Any], rewards: list[float | None]
) -> None:
    terms = [term("exact_match", **judge), term("length", **other)]
    assert asyncio.run(settled_rewards(terms, in_groups(trajectory, *rows))) == rewards


def test_a_group_of_which_no_term_works_for_all_has_no_rewards(trajectory: Any) -> None:
    async def settle(scored: list[Scored]) -> list[Scored]:
        async with RewardFunction([term("exact_match", **DROPS), term("length", **DROPS)], CONTEXT) as function:
            return function.settle(scored, step=1)

    def made(one: Any, first: float | None, second: float | None) -> Scored:
        values = {"exact_match": first, "length": second}
        scores = [
            Score(name, value, float(value is not None), state=ScoreState.FAULT if value is None else ScoreState.SCORED)
            for name, value in values.items()
        ]
        return Scored(one, tuple(scores), 1.0, None)

    rows = in_groups(trajectory, ("a", "x", "x"), ("a", "x", "x"))
    found = asyncio.run(settle([made(rows[0], 1.0, None), made(rows[1], None, 1.0)]))
    assert [item.reward for item in found] == [None, None]


def test_a_trajectory_without_a_reward_decides_nothing_for_its_group(trajectory: Any) -> None:
    terms = [term("exact_match", **DROPS), term("contains", **KEEPS)]
    rows = in_groups(trajectory, ("a", "x", "x"), ("a", "x", None), ("a", "y", "x"))
    assert asyncio.run(settled_rewards(terms, rows)) == [2.0, None, 0.0]


def test_a_dropped_term_beside_one_whose_gain_is_lost_leaves_a_reward(trajectory: Any) -> None:
    # required `calls` is 0 of at least 1: sum of min(0, 1 * 1) of `length`; `exact_match` has no gold and is dropped
    required = says("calls", required=1)
    scored = score(trajectory("x"), term("exact_match", unscorable="drop_term"), term("length"), required)
    assert scored.reward == 0.0


@pytest.mark.parametrize(
    ("curve", "step", "weight"),
    [
        ("linear", 0, 1.0),
        ("linear", 1, 1.0),
        # x = (6 - 1) / 10: 1 + (0.2 - 1) * 0.5
        ("linear", 6, 0.6),
        ("linear", 11, 0.2),
        ("linear", 99, 0.2),
        ("cosine", 1, 1.0),
        # (1 - cos(pi / 4)) / 2 = 0.146447: 1 - 0.8 * 0.146447
        ("cosine", 3.5, 0.882843),
        ("cosine", 6, 0.6),
        ("cosine", 11, 0.2),
    ],
)
def test_a_weight_moves_over_the_steps(trajectory: Any, curve: str, step: int, weight: float) -> None:
    moving = term("length", weight={"schedule": curve, "from": 1.0, "to": 0.2, "steps": 10})
    scored = score(trajectory("x"), moving, step=step)
    assert (scored.reward, scored.scores[0].weight) == (pytest.approx(weight), pytest.approx(weight))


TWO_TURNS = TrajectoryFacts.model_validate(
    {
        "gold": "Paris",
        "answer": "Paris",
        "turns": [
            {"calls": [{"name": "a"}, {"name": "b", "outcome": "unknown_tool"}]},
            {"calls": [{"name": "a"}], "failures": ["bad_json"]},
            {"text": "Paris"},
        ],
    }
).trajectory()


def test_a_turn_term_counts_its_mean_over_the_turns_it_speaks_of() -> None:
    # well formed: 1 of 2, 1 of 2, nothing to say; repeated: 2 of 2 new, 0 of 1 new, nothing
    scored = score(
        TWO_TURNS, term("exact_match"), term("tool_format", stage="turn", weight=2), term("no_repeat", stage="turn")
    )
    said = by_name(scored)
    assert said["tool_format"].turn_values == (0.5, 0.5, None)
    assert said["no_repeat"].turn_values == (1.0, 0.0, None)
    assert scored.reward == pytest.approx(1 + 2 * 0.5 + 0.5)
    assert scored.outcome_reward == 1.0
    assert scored.turn_rewards == (pytest.approx(2.0), pytest.approx(1.0), 0.0)


def test_a_turn_term_that_has_no_values_cannot_be_scored() -> None:
    object.__setattr__(TWO_TURNS.task, "columns", {"value": None})
    (said,) = score(TWO_TURNS, term("own", callable="functions.py:value", stage="turn")).scores
    assert (said.state, said.value, said.turn_values) == (ScoreState.UNSCORABLE, None, None)


def test_scale_and_clip_are_of_each_turns_value() -> None:
    scored = score(TWO_TURNS, term("no_repeat", stage="turn", scale=4, clip=[0.5, 3]))
    assert scored.scores[0].turn_values == (3.0, 0.5, None)
    assert scored.reward == 1.75


def test_turns_that_a_term_says_nothing_of_count_0(trajectory: Any) -> None:
    scored = score(trajectory("x"), term("tool_format", stage="turn"))
    assert (scored.reward, scored.turn_rewards) == (0.0, ())


def test_other_terms_read_0_of_a_term_that_says_nothing_of_any_turn(trajectory: Any) -> None:
    silent, reader = term("tool_format", stage="turn"), term("sum", rule="expression", formula="terms.tool_format")
    assert [each.value for each in score(trajectory("x"), silent, reader).scores] == [0.0, 0.0]


def test_a_value_that_is_no_number_is_in_no_success_rate_and_counted(trajectory: Any) -> None:
    own = term("own", callable="functions.py:value", **DROPS)
    rows = [replace(trajectory("x", value=value), id=f"t{k}") for k, value in enumerate([1.0, float("nan"), 0.0])]
    metrics = rollout_metrics(asyncio.run(score_with([own, term("length")], rows)))
    assert (metrics["success"], metrics["rewards/own/mean"]) == (0.5, 0.5)
    assert (metrics["rewards/own/faults"], metrics["unscorable"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1.5, "1.5 is outside the term's range [0, 1]"),
        (-0.1, "-0.1 is outside the term's range [0, 1]"),
        (float("nan"), "nan is not a finite number"),
        (float("inf"), "inf is not a finite number"),
    ],
)
def test_a_value_outside_the_range_is_a_fault_of_the_term_and_not_clipped(
    trajectory: Any, value: float, reason: str
) -> None:
    own = term("own", callable="functions.py:value", range=[0, 1])
    (said,) = score(trajectory("x", value=value), own).scores
    assert (said.value, said.state, said.reason) == (None, ScoreState.FAULT, reason)


@pytest.mark.parametrize(
    ("values", "reason"),
    [([1.0], "1 values for 3 turns"), ([0.5, 2.0, None], "2 is outside the term's range [0, 1]")],
)
def test_wrong_turn_values_are_a_fault(values: list[float | None], reason: str) -> None:
    own = term("own", callable="functions.py:value", range=[0, 1], stage="turn")
    object.__setattr__(TWO_TURNS.task, "columns", {"value": values})
    (said,) = score(TWO_TURNS, own).scores
    assert (said.state, said.reason) == (ScoreState.FAULT, reason)


def test_an_expression_reads_other_terms_before_scale_and_weight(trajectory: Any) -> None:
    one = trajectory("Paris", "Paris", outcomes=(OK, UNKNOWN))
    both = term("both", rule="expression", formula="terms.exact_match * terms.tool_format", weight=4)
    scored = score(one, both, term("exact_match", scale=7, weight=0), term("tool_format", weight=0))
    assert scored.reward == pytest.approx(4 * 1 * 0.5)


def test_slow_terms_of_one_trajectory_run_side_by_side_and_answer_in_order(trajectory: Any) -> None:
    slow = [term(f"slow{number}", callable="functions.py:after", timeout_s=20) for number in range(8)]
    started = time.perf_counter()
    scored = score(trajectory("x", delay_s=0.3), *slow)
    assert time.perf_counter() - started < 1.8  # one after the other 2.4 s
    assert [each.term for each in scored.scores] == [each.name for each in slow]


def test_a_slow_term_behind_a_closed_gate_is_never_called(trajectory: Any) -> None:
    gated = term("own", callable="functions.py:fail", when={"term": "exact_match"})
    assert score(trajectory("Rome", "Paris"), gated, term("exact_match")).reward == 0.0


def test_a_slow_term_can_read_a_slow_term(trajectory: Any) -> None:
    terms = (
        term("last", callable="functions.py:later", when={"term": "first", "at_least": 0.25}),
        term("first", callable="functions.py:later"),
        term("sum", rule="expression", formula="terms.last + terms.first"),
    )
    scored = score(trajectory("x"), *terms)
    assert [each.value for each in scored.scores] == [0.25, 0.25, 0.5]


def test_a_run_error_of_a_term_ends_the_run(trajectory: Any) -> None:
    with pytest.raises(RunError, match="the judges are gone"):
        score(trajectory("x"), term("length"), term("own", callable="functions.py:end_run"))


def test_scoring_cancelled_leaves_no_task(trajectory: Any) -> None:
    async def main() -> set[Any]:
        async with RewardFunction([term("own", callable="functions.py:never")], CONTEXT) as function:
            scoring = asyncio.ensure_future(function.score(trajectory("x"), step=1))
            await asyncio.sleep(0)
            scoring.cancel()
            await asyncio.wait([scoring])
        await asyncio.sleep(0.01)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()


def test_many_trajectories_are_scored_in_the_order_given(trajectory: Any) -> None:
    tried = [trajectory(answer, "Paris") for answer in ("Paris", "Rome", "Paris")]
    assert [each.reward for each in asyncio.run(score_with([term("exact_match")], tried))] == [1, 0, 1]


def test_an_unscorable_trajectory_has_no_scores(trajectory: Any) -> None:
    scored = score(trajectory("x", stop=StopReason.INFRA_FAILURE), term("length"))
    assert (scored.scores, scored.reward, scored.outcome_reward, scored.turn_rewards) == ((), None, None, ())


def test_terms_that_do_not_hang_together_are_refused_by_name() -> None:
    with pytest.raises(RlfError, match=r"rewards\.length\.when\.term: unknown term 'right'"):
        RewardFunction([term("length", when={"term": "right"})], CONTEXT)


def test_a_gate_may_open_at_the_highest_value_alone(trajectory: Any) -> None:
    terms = [term("exact_match"), term("length", when={"term": "exact_match", "at_least": 1})]
    assert by_name(score(trajectory("x", "x"), *terms))["length"].state is ScoreState.SCORED
    with pytest.raises(RlfError, match=r"got 1\.01, but the values of 'exact_match' lie between 0 and 1"):
        RewardFunction([terms[0], term("length", when={"term": "exact_match", "at_least": 1.01})], CONTEXT)


def test_terms_that_wait_for_each_other_are_refused_by_their_circle() -> None:
    gated = [says("a", when={"term": "b", "at_least": 1}), says("b", when={"term": "a", "at_least": 1})]
    with pytest.raises(RlfError, match=r"in a circle: (a -> b -> a|b -> a -> b)\."):
        RewardFunction(gated, CONTEXT)


def test_an_unknown_term_is_answered_with_the_others() -> None:
    terms = [says("calls"), says("turns", when={"term": "cals", "at_least": 1})]
    with pytest.raises(RlfError, match=r"unknown term 'cals'.*'calls'.*\(known: calls\)"):
        RewardFunction(terms, CONTEXT)


def test_behind_a_closed_gate_no_gold_is_needed(trajectory: Any) -> None:
    scored = score(trajectory("x"), says("calls"), term("exact_match", when={"term": "calls", "at_least": 1}))
    assert (scored.reward, by_name(scored)["exact_match"].state) == (0.0, ScoreState.GATED)


def test_a_term_of_one_task_in_three_is_asked_about_all_rollouts_of_about_a_third(trajectory: Any) -> None:
    def asked(name: str) -> set[str]:
        one = trajectory("Paris", "Paris")
        tasks = [replace(one.task, id=f"q{number}") for number in range(300)]
        played = [replace(one, task=task, id=f"{task.id}/{sample}") for task in tasks for sample in range(2)]
        terms = [term("exact_match"), term(name, rule="contains", hidden=True, every=3)]
        found = [(item.trajectory, by_name(item)[name]) for item in asyncio.run(score_with(terms, played))]
        scored_ids = {trajectory.id for trajectory, score in found if score.value == 1.0}
        others = {score.reason for trajectory, score in found if trajectory.id not in scored_ids}
        assert others == {"not computed: it is asked about one task in 3"}
        ids = {id_.partition("/")[0] for id_ in scored_ids}
        assert scored_ids == {f"{id_}/{sample}" for id_ in ids for sample in range(2)}
        return ids

    ids, of_another = asked("truth"), asked("other")
    assert 70 < len(ids) < 130
    assert ids != of_another and ids & of_another, "whether one is asked says nothing of the other"
