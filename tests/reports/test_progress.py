"""The fold of events that views draw."""

from __future__ import annotations

import pytest

from rlf.reports.progress import Progress
from rlf.types import EvaluationFinished, Notice, RunFinished, RunStatus, StepFinished

from .synthetic import events, scored


def step(number: int, **metrics: float) -> StepFinished:
    return StepFinished(number, metrics, (), ())


def test_a_whole_run_leaves_its_curves_evaluations_and_end() -> None:
    progress = Progress(12)
    for second, event in enumerate(events(num_steps=12, eval_every=4)):
        progress = progress.after(event, float(second))
    assert progress.step == 12
    assert len(progress.curves["success"]) == len(progress.curves["reward/mean"]) == 12
    assert [(item.step, item.mode) for item in progress.evaluations][:3] == [
        (0, "sampled"),
        (0, "greedy"),
        (4, "sampled"),
    ]
    assert progress.checkpoint_step == 12
    assert progress.finished == RunFinished(RunStatus.FINISHED, 12)


def test_an_earlier_state_does_not_change() -> None:
    before = Progress(10).after(step(1, success=0.1), 0.0)
    before.after(step(2, success=0.2), 1.0)
    assert before.step == 1
    assert before.curves == {"success": (0.1,)}


def test_trajectories_are_not_kept() -> None:
    evaluation = EvaluationFinished(0, "sampled", {}, (scored(0, succeeds=True),))
    assert Progress(10).after(evaluation, 0.0).evaluations[0].trajectories == ()


def test_time_left_is_the_pace_of_the_latest_steps_times_what_is_left() -> None:
    progress = Progress(10)
    assert progress.time_left_s(0.0) is None
    for number, arrival in ((1, 5.0), (2, 7.0), (3, 9.0)):
        progress = progress.after(step(number), arrival)
    assert progress.time_left_s(9.0) == pytest.approx(7 * 2.0)
    assert progress.time_left_s(10.0) == pytest.approx(13.0)
    assert progress.time_left_s(99.0) == 0.0


def test_after_one_step_its_own_time_is_the_pace() -> None:
    progress = Progress(10).after(step(1, **{"time/step_s": 3.0}), 100.0)
    assert progress.time_left_s(100.0) == pytest.approx(27.0)


def test_the_latest_notices_are_kept() -> None:
    progress = Progress(10)
    for number in range(5):
        progress = progress.after(Notice("info", str(number), {}), 0.0)
    assert [notice.text for notice in progress.notices] == ["2", "3", "4"]


def test_one_slow_step_does_not_change_the_time_left():
    progress = Progress(total_steps=20)
    now_s = 0.0
    for number in range(1, 11):
        now_s += 500.0 if number == 6 else 2.0
        progress = progress.after(StepFinished(number, {}, [], []), now_s)
    assert progress.time_left_s(now_s) == pytest.approx(10 * 2.0)


def test_two_slow_steps_of_ten_do_not_change_the_time_left():
    progress, now_s = Progress(total_steps=20), 0.0
    for number in range(1, 11):
        now_s += 500.0 if number in (4, 8) else 2.0
        progress = progress.after(step(number), now_s)
    assert progress.time_left_s(now_s) == pytest.approx(10 * 2.0)


def test_the_time_left_has_the_steps_share_of_evaluations():
    """Steps of 2 s and, after every second one, an evaluation of 10 s: 9 measured steps, before 4 of which one ran."""
    progress, now_s = Progress(total_steps=20), 0.0
    for number in range(1, 11):
        now_s += 2.0
        progress = progress.after(step(number), now_s)
        if number % 2 == 0 and number < 10:
            now_s += 10.0
            progress = progress.after(EvaluationFinished(number, "sampled", {}, ()), now_s)
    assert progress.time_left_s(now_s) == pytest.approx(10 * (2.0 + 4 * 10.0 / 9))
