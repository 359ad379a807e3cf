"""Guards trip after their steps in a row, once, and name the trajectories that show it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from rlf.algo.health import READINGS, Action, Guard, HealthConfig, Watch
from rlf.types import FailureClass, ParseFailure, StepFinished, StopReason

from ..reports.synthetic import scored

OFF = dict.fromkeys(READINGS)
HEALTHY = {"success": 0.5, "loss/policy": 0.1, "policy/entropy": 1.0, "tools/calls_per_trajectory": 1.0}


def watch(**guards: object) -> Watch:
    return Watch(HealthConfig.model_validate(OFF | guards), has_tools=True, by_group=True)


def step(number: int, trajectories: object = (), **metrics: float) -> StepFinished:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    items = trajectories or [scored(0, succeeds=True)]
    return StepFinished(number, HEALTHY | named, items, [0.0] * len(items))  # type: ignore[arg-type]


def alarms(guard: Watch, values: list[float], metric: str) -> list[int]:
    return [n for n, value in enumerate(values, 1) for _ in guard.after(step(n, **{metric: value}))]


def test_every_guard_reads_something() -> None:
    assert READINGS.keys() == HealthConfig.model_fields.keys() - {"on_no_signal", "hidden"}  # which reads scores


def test_an_alarm_takes_its_steps_in_a_row_and_comes_once() -> None:
    guard = watch(entropy={"below": 0.1, "steps": 3})
    assert alarms(guard, [0.05, 0.05, 0.5, 0.05, 0.05, 0.05, 0.05, 0.5, 0.05, 0.05, 0.05], "policy__entropy") == [6, 11]


def test_an_alarm_tells_since_when_and_what_follows() -> None:
    guard = watch(kl_old={"above": 0.5, "steps": 2, "action": "rollback"})
    assert guard.after(step(4, policy__kl_old=0.7)) == []
    (alarm,) = guard.after(step(5, policy__kl_old=0.9))
    assert (alarm.text, alarm.action, alarm.since) == (
        "kl_old is 0.9, above 0.5 since step 4",
        Action.ROLLBACK,
        4,
    )


def test_a_loss_that_is_no_number_stops_at_once_by_default() -> None:
    (alarm,) = Watch(HealthConfig(), has_tools=True, by_group=True).after(step(1, loss__policy=float("nan")))
    assert (alarm.guard, alarm.action) == ("loss", Action.STOP)
    assert "no number" in alarm.text


def test_long_trajectories_that_steps_leave_out_are_an_alarm_by_default() -> None:
    guard = Watch(HealthConfig(), has_tools=True, by_group=True)
    assert alarms(guard, [0.05, 0.2, 0.2, 0.2, 0.2], "left_out__length") == [4]


def test_a_healthy_step_raises_nothing() -> None:
    guard = Watch(HealthConfig(), has_tools=True, by_group=True)
    assert [alarm for n in range(1, 30) for alarm in guard.after(step(n))] == []


def test_giving_tools_up_is_measured_against_the_most_there_were() -> None:
    guard = watch(tool_use={"below": 0.1, "steps": 1})
    assert alarms(guard, [0.0, 0.0, 2.0, 0.3, 0.1], "tools__calls_per_trajectory") == [1, 5]


def test_a_policy_that_never_calls_its_tools_is_an_alarm() -> None:
    def never(*, has_tools: bool) -> list[int]:
        guard = Watch(HealthConfig(), has_tools=has_tools, by_group=True)
        steps = [step(n, tools__calls_per_trajectory=0.0) for n in range(1, 11)]
        return [alarm.step for event in steps for alarm in guard.after(event)]

    assert (never(has_tools=True), never(has_tools=False)) == ([5], [])


def test_dead_groups_are_an_alarm_within_a_first_run_of_ten_steps() -> None:
    guard = Watch(HealthConfig(), has_tools=True, by_group=True)
    steps = [step(n, groups__dead_share=1.0) for n in range(1, 11)]
    assert [alarm.guard for event in steps for alarm in guard.after(event)] == ["dead_groups"]


@pytest.mark.parametrize(("success", "share"), [(0.89, 0.5), (0.9, None), (None, None)])
def test_dead_groups_are_read_below_nine_tenths_of_success_alone(success: float | None, share: float | None) -> None:
    metrics = {"groups/dead_share": 0.5} | ({} if success is None else {"success": success})
    assert READINGS["dead_groups"](metrics) == share


def test_dead_groups_of_a_solved_task_are_no_alarm() -> None:
    guard = watch(dead_groups={"above": 0.95, "steps": 1})
    assert guard.after(step(1, groups__dead_share=1.0, success=0.99)) == []
    assert [alarm.guard for alarm in guard.after(step(2, groups__dead_share=1.0, success=0.1))] == ["dead_groups"]


def test_the_trajectories_that_show_it_are_named() -> None:
    cut = replace(
        scored(1, succeeds=False), trajectory=replace(scored(1, succeeds=False).trajectory, stop=StopReason.LENGTH)
    )
    items = [scored(0, succeeds=True), cut, scored(2, succeeds=True), cut]
    (alarm,) = watch(length={"above": 0.4, "steps": 1}).after(step(1, items, stop__length=0.5))
    assert alarm.trajectories == (1, 3)
    (alarm,) = watch(entropy={"below": 2.0, "steps": 1}).after(step(1, items))
    assert alarm.trajectories == (1, 3, 0, 2)  # lowest reward first


def test_turns_that_cannot_be_parsed_are_counted_by_trajectory() -> None:
    whole = scored(1, succeeds=False)
    failure = ParseFailure(FailureClass.BAD_JSON, "no JSON", "{", 0, structural=False)
    turn = replace(whole.trajectory.turns[0], failures=(failure,) * 3)
    broken = replace(whole, trajectory=replace(whole.trajectory, turns=(turn,)))
    (alarm,) = watch(parse_failures={"above": 1.0, "steps": 1}).after(step(1, [scored(0, succeeds=True), broken]))
    assert (alarm.text, alarm.trajectories) == ("parse_failures is 1.5, above 1 since step 1", (1,))


@pytest.mark.parametrize("bad", [{}, {"above": 1, "below": 2}, {"above": 1, "steps": 0}, {"over": 1}])
def test_a_guard_that_bounds_nothing_or_everything_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Guard.model_validate(bad)


@pytest.mark.parametrize("by_group", [True, False])
def test_dead_groups_are_looked_at_where_the_rewards_of_a_group_are_compared(by_group):
    guard = Watch(HealthConfig(dead_groups=Guard(above=0.95, steps=1)), has_tools=True, by_group=by_group)
    alarms = guard.after(step(1, groups__dead_share=1.0, success=0.1))
    assert [alarm.guard for alarm in alarms if alarm.guard == "dead_groups"] == ["dead_groups"] * by_group


@pytest.mark.parametrize("bad", [{"below": 0.1}, {"above": 0.1, "below": 0.0}, {"above": 1.0}, {"above": -0.1}])
def test_the_guard_of_hidden_terms_bounds_a_rise_alone(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="bounds a rise of a share"):
        HealthConfig.model_validate({"hidden": bad})
