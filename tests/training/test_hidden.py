"""The gap between trained and hidden rewards: what it is, that its alarm is rarely false, and that it is soon."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rlf.algo.health import Guard
from rlf.rewards.term import Success, Term
from rlf.training.hidden import HiddenWatch, RiseTest, UpperBound
from rlf.types import EvaluationFinished, Score, Scored, StepFinished

from ..reports import synthetic

GUARD = Guard(above=0.05, steps=1)
HIDDEN: dict[str, Any] = {"name": "truth", "rule": "contains", "hidden": True}


def term(name: str, **keys: Any) -> Term:
    return Term.model_validate({"kind": "rule", "name": name, "rule": "exact_match", **keys})


def watch(*terms: Term, guard: Guard | None = GUARD, success: Success | None = None) -> HiddenWatch:
    return HiddenWatch(terms or (term("right"), term(**HIDDEN)), success, guard)


PLAYED = [synthetic.trajectory(task, succeeds=True) for task in range(40)]


def rollout(task: int, *scores: Score, reward: float | None = 1.0) -> Scored:
    return Scored(PLAYED[task], scores, reward, success=1.0)


def pair(task: int, right: float, truth: float | None, weight: float = 1.0) -> Scored:
    return rollout(task, Score("right", right, weight), Score("truth", truth, 0.0))


def look(found: HiddenWatch, step: int, *items: Scored) -> tuple[dict[str, float], list[Any]]:
    event, alarms = found.measure(StepFinished(step, {"success": 1.0}, items, [0.0] * len(items)), "show {} {}".format)
    assert isinstance(event, StepFinished)
    return dict(event.metrics), alarms


def test_the_gap_is_the_mean_over_groups_of_what_is_paid_and_refused() -> None:
    # group 0: of 1 + 0.5 paid, the hidden term refuses all of 0.5 and 0.2 of 1: 0.7 / 1.5
    # group 1: 1 paid, nothing refused; group 2: nothing paid, no part of it
    items = [pair(0, 1.0, 0.8), pair(0, 0.5, 0.0), pair(1, 1.0, 1.0), pair(1, 0.0, 0.0), pair(2, 0.0, 0.0)]
    metrics, _ = look(watch(), 1, *items)
    assert metrics["gap/truth/right"] == pytest.approx((0.7 / 1.5 + 0.0) / 2)
    assert metrics["success"] == 1.0


def test_what_has_no_reward_no_hidden_value_or_pays_nothing_is_no_part_of_a_gap() -> None:
    broken = rollout(0, Score("right", 1.0, 1.0), Score("truth", 0.0, 0.0), reward=None)
    taken_away = pair(1, 1.0, 0.0, weight=0.0)  # by a required term
    metrics, _ = look(watch(), 1, broken, pair(0, 1.0, None), taken_away, pair(1, 1.0, 1.0))
    assert metrics["gap/truth/right"] == 0.0
    assert "gap/truth/right" not in look(watch(), 1, broken, pair(0, 1.0, None))[0]


def test_scales_ranges_and_signs_of_terms_do_not_change_a_gap() -> None:
    judge = term("right", rule="expression", formula="calls", range=[1, 9], scale=-2.0, weight=-1.0)
    marks = term("truth", rule="expression", formula="calls", range=[0, 10], hidden=True)
    # pays 9 as -18 by a weight of -1: all; pays 1 as -2: nothing
    items = [
        rollout(0, Score("right", -18.0, -1.0), Score("truth", 2.0, 0.0)),
        rollout(0, Score("right", -2.0, -1.0), Score("truth", 10.0, 0.0)),
    ]
    assert look(watch(judge, marks), 1, *items)[0]["gap/truth/right"] == pytest.approx(0.8)


def test_a_term_without_a_least_value_pays_what_is_above_the_groups_worst() -> None:
    own = Term.model_validate({"kind": "python", "name": "right", "callable": "m:f"})
    items = [pair(0, -5.0, 1.0), pair(0, -3.0, 1.0), pair(0, -1.0, 0.0)]  # pays 0, 2 and 4
    assert look(watch(own, term(**HIDDEN)), 1, *items)[0]["gap/truth/right"] == pytest.approx(4 / 6)


def test_terms_for_form_are_compared_with_no_hidden_term() -> None:
    form = term("form", rule="tool_format", weight=3.0)
    scores = Score("form", 1.0, 3.0), Score("right", 1.0, 1.0), Score("truth", 1.0, 0.0)
    metrics, _ = look(watch(form, term("right"), term(**HIDDEN), success=Success(term="right")), 1, rollout(0, *scores))
    assert [name for name in metrics if name.startswith("gap/")] == [
        "gap/truth/right",
        "gap/truth/right/low",
        "gap/truth/right/high",
    ]


def play(seed: int, exploited: list[float], *, right: float = 0.3, err: float = 0.1, groups: int = 32) -> int | None:
    """The step of the alarm in a run whose hidden term errs about one right rollout in ten."""
    found, draw = watch(), random.Random(seed)
    for step, share in enumerate(exploited, 1):
        items = []
        for task in range(groups):
            for _ in range(8):
                takes_hole = draw.random() < share
                is_right = not takes_hole and draw.random() < right
                items.append(pair(task, float(takes_hole or is_right), float(is_right and draw.random() >= err)))
        if look(found, step, *items)[1]:
            return step
    return None


def test_a_hole_that_is_found_is_an_alarm_long_before_it_is_all_there_is() -> None:
    share = [0.01 * 1.25 ** max(0, step - 8) for step in range(28)]  # from 1 % to 69 %
    steps = [play(seed, share) for seed in range(6)]
    assert all(step is not None and share[step - 1] < 0.2 for step in steps)


def test_a_hole_that_is_taken_from_the_first_step_beside_other_pay_is_an_alarm_although_its_share_never_rises() -> None:
    assert all((play(seed, [0.03] * 12, right=0.06) or 99) <= 12 for seed in range(6))


def test_a_hole_that_is_all_that_pays_is_an_alarm_at_once() -> None:
    assert all((play(seed, [0.02] * 6, right=0.0) or 99) <= 4 for seed in range(6))


def test_a_hole_in_a_term_beside_success_is_an_alarm_that_names_it() -> None:
    judge = Term.model_validate({"kind": "python", "name": "judge", "callable": "m:f", "range": [0, 1]})
    found, draw, names = watch(term("right"), judge, term(**HIDDEN)), random.Random(5), []
    for step in range(1, 21):
        items = []
        for task in range(32):
            for _ in range(8):
                is_right = draw.random() < 0.3
                is_paid = is_right or draw.random() < 0.01 * 1.3 ** max(0, step - 6)
                scores = (("right", is_right, 1.0), ("judge", is_paid, 1.0), ("truth", is_right, 0.0))
                items.append(rollout(task, *(Score(name, float(value), weight) for name, value, weight in scores)))
        names += [alarm.guard for alarm in look(found, step, *items)[1]]
    assert names == ["hidden/truth/judge"]


def test_runs_without_a_hole_raise_no_alarm() -> None:
    assert [play(seed, [0.0] * 60, groups=16) for seed in range(12)] == [None] * 12


def test_an_alarm_names_the_terms_the_steps_and_the_three_rollouts_that_are_paid_most() -> None:
    found = watch(guard=Guard(above=0.1, steps=1, action="stop"))
    alarms: list[Any] = []
    step = 0
    while not alarms and step < 20:
        step += 1
        items = [pair(task, *values) for task in range(9) for values in ((1.0, 0.0), (0.4, 0.0), (0.3, 1.0))]
        items[4] = pair(1, 0.2, 0.0)
        _, alarms = look(found, step, *items)
    (alarm,) = alarms
    assert (alarm.guard, alarm.action, alarm.since) == ("hidden/truth/right", "stop", 1)
    assert alarm.trajectories == (0, 3, 6)  # of three tasks
    lines = alarm.text.splitlines()
    assert lines[0].startswith("hidden term 'truth' refuses 8") and "more than 20.0 %" in lines[0]
    assert lines[1].endswith("right 1; truth 0") and lines[2] == f"  Look: show {step} 0"
    assert look(found, step + 1, *items)[1] == []  # once


def test_an_alarm_waits_for_its_steps_and_null_turns_it_off() -> None:
    def steps(guard: Guard | None) -> list[int]:
        found = watch(guard=guard)
        return [n for n in range(1, 12) for _ in look(found, n, *(pair(task, 1.0, 0.0) for task in range(8)))[1]]

    (at,) = steps(GUARD)
    assert steps(Guard(above=0.05, steps=3)) == [at + 2]
    assert steps(None) == []


def test_a_watch_that_is_given_what_was_recorded_continues_to_the_same_numbers() -> None:
    whole, begun, draw = watch(), watch(), random.Random(3)
    drawn = [
        [pair(task, float(draw.random() < 0.5), draw.random()) for task in range(9) for _ in range(4)] for _ in range(8)
    ]
    rows = []
    for step, items in enumerate(drawn[:6], 1):
        look(whole, step, *items)
        rows += [(step, k, item.trajectory.task.id, score) for k, item in enumerate(items) for score in item.scores]
    begun.replay(rows)
    for step, items in enumerate(drawn[6:], 7):
        assert look(begun, step, *items) == look(whole, step, *items)


def test_the_upper_bound_of_zeros_is_what_the_bets_come_to() -> None:
    # After one look at n zeros: K(m) = 1/2 * 1/3 * sum over c of (1 + c m / (1 - m))^n, to be 1 / 0.05 or more.
    bound = UpperBound(0.05)
    bound.add([0.0] * 40)
    capital = [sum((1 + c * m / (1 - m)) ** 40 for c in (0.2, 0.5, 0.9)) / 6 for m in (bound.high, bound.high - 0.005)]
    assert capital[0] >= 20 > capital[1]


def test_bounds_and_rises_are_false_in_fewer_runs_than_alpha_says() -> None:
    draw, low, rises, num_runs = random.Random(1), 0, 0, 150
    for _ in range(num_runs):
        bound, rise = UpperBound(0.1), RiseTest(0.1)
        for _ in range(12):
            values = [float(draw.random() < 0.2) for _ in range(16)]
            bound.add(values)
            low += bound.high < 0.2
            for value in values:
                rise.add(value, 0.2, 16)
            if bound.high < 0.2:
                break
        rises += rise.is_shown
    assert low <= 0.15 * num_runs and rises <= 0.15 * num_runs  # 0.1, and two standard errors
    assert rise.log_capital != 0  # it did bet


def test_a_rise_far_above_its_bound_is_shown_by_the_first_ten_values() -> None:
    # Half of all values are 1: the best bet makes the capital's logarithm grow by 0.337 with each; ln 25 = 3.2.
    rise = RiseTest(0.04)
    for value in (1.0, 0.0) * 5:
        rise.add(value, 0.15, 10)
    assert rise.is_shown and rise.is_rising


def test_the_sampled_evaluation_before_the_first_step_counts_and_raises_its_alarm_with_the_first_step() -> None:
    items = [pair(task, 1.0, 0.0) for task in range(20)]
    found, without = watch(), watch()
    for step, mode in ((0, "greedy"), (5, "sampled")):
        event = EvaluationFinished(step, mode, {}, items)
        assert without.measure(event, "show {} {}".format) == (event, [])
    first = EvaluationFinished(0, "sampled", {}, items)
    assert found.measure(first, "show {} {}".format) == (first, [])
    one = [pair(0, 1.0, 0.0)]
    assert not look(without, 1, *one)[1]
    metrics, (alarm,) = look(found, 1, *one)
    assert alarm.step == 1 and metrics == {"success": 1.0} | look(watch(), 1, *one)[0]  # the curve is training's alone


def test_held_out_questions_of_which_less_is_refused_make_no_later_share_a_rise() -> None:
    found = watch()
    found.measure(EvaluationFinished(0, "sampled", {}, [pair(k % 40, 1.0, 1.0) for k in range(400)]), str)
    for step in range(1, 13):
        assert not look(found, step, *(pair(task, 1.0, float(task % 9 > 0)) for task in range(36)))[1]


def test_a_term_of_which_three_fifths_are_refused_at_once_is_named_where_all_else_is_refused_wholly() -> None:
    judge = Term.model_validate({"kind": "python", "name": "judge", "callable": "m:f", "range": [0, 1]})
    found, names = watch(term("right"), judge, term(**HIDDEN)), []
    for step in range(1, 7):
        items = []
        for task in range(30):  # the judge pays one rollout of each task, of two tasks in five rightly
            values = (float(task % 5 > 2), 1.0)
            items += [rollout(task, *_scores(*(values if k == 0 else (0.0, 0.0)))) for k in range(8)]
        names += [alarm.guard for alarm in look(found, step, *items)[1]]
    assert names == ["hidden/truth/judge"]


def _scores(right: float, judge: float) -> tuple[Score, ...]:
    return Score("right", right, 1.0), Score("judge", judge, 1.0), Score("truth", right, 0.0)
