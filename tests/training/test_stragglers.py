"""An update starts when enough groups are whole; late ones are the next step's, and no task is lost by its length."""

from __future__ import annotations

import asyncio
import random
from statistics import fmean

import pytest

from rlf.spec.models import Late, RolloutSpec, TrainSpec
from rlf.training import stragglers as module
from rlf.training.stragglers import Stragglers
from rlf.types import Interrupted

from .trajectories import scored

TRAIN = TrainSpec.model_validate({"algorithm": {"kind": "grpo"}, "prompts_per_step": 2})


class Groups:
    """Groups of one trajectory each that end when they are let go, or after a time of their own."""

    def __init__(self, durations_s=None) -> None:
        self.durations_s = durations_s
        self.started: list[tuple[int, int, bool]] = []
        self.ends: dict[int, asyncio.Event] = {}

    async def play(self, position, step, again, cut_off):
        self.started.append((position, step, again))
        end = self.ends[position] = asyncio.Event()
        try:
            await (end.wait() if self.durations_s is None else asyncio.sleep(self.durations_s[position]))
        except asyncio.CancelledError:
            cut_off([scored(str(position), None)])
            raise
        return [scored(str(position), 1.0)]

    async def let_go(self, *positions):
        await asyncio.sleep(0.01)
        for position in positions:
            self.ends[position].set()


def positions(found) -> list[int]:
    return [int(item.trajectory.task.id) for item in found.collected]


def test_an_update_starts_when_enough_groups_are_whole_and_waits_for_those_that_were_late_often(monkeypatch):
    monkeypatch.setattr(module, "MOST_STEPS", 1)

    async def main():
        groups, events = Groups(), []
        stragglers = Stragglers(groups.play, RolloutSpec(oversample=1.5), TRAIN, events.append)
        first, _ = await asyncio.gather(stragglers.take(1, 0, ()), groups.let_go(1, 2))
        second = asyncio.ensure_future(stragglers.take(2, first.cursor, first.late))
        await groups.let_go(3, 4)
        await asyncio.sleep(0.01)
        is_waiting = not second.done()
        await groups.let_go(0)
        return groups, events, first, is_waiting, await second

    groups, events, first, is_waiting, second = asyncio.run(asyncio.wait_for(main(), 10))
    assert (positions(first), first.cursor, first.late, first.metrics["groups/late"]) == ([1, 2], 3, (0,), 1)
    assert is_waiting and positions(second) == [0, 3] and second.late == (4,)
    assert second.metrics == {"groups/late": 0, "groups/carried": 1}
    assert [again for *_, again in groups.started] == [False] * 5 and events == []


def test_late_groups_that_are_dropped_are_recorded_and_their_tasks_played_again(monkeypatch):
    monkeypatch.setattr(module, "MOST_STEPS", 1)

    async def main():
        groups, events = Groups(), []
        rollout = RolloutSpec(oversample=1.5, late=Late.DROP)
        stragglers = Stragglers(groups.play, rollout, TRAIN, events.append)
        first, _ = await asyncio.gather(stragglers.take(1, 0, ()), groups.let_go(0, 2))
        second, _ = await asyncio.gather(stragglers.take(2, first.cursor, first.late), groups.let_go(1, 3))
        await stragglers.close(3)
        return groups, events, first, second

    groups, events, first, second = asyncio.run(asyncio.wait_for(main(), 10))
    assert (positions(first), first.late, first.metrics["groups/dropped"]) == ([0, 2], (1,), 1)
    assert groups.started[3] == (1, 2, True) and positions(second) == [1, 3]
    assert [type(event) for event in events] == [Interrupted, Interrupted]
    assert [item.trajectory.task.id for item in events[0].trajectories] == ["1"]


def test_at_the_deadline_a_step_takes_what_is_whole_and_waits_for_the_first_where_nothing_is():
    async def main():
        groups = Groups([0.3, 5.0, 0.0])
        stragglers = Stragglers(groups.play, RolloutSpec(deadline_s=0.05), TRAIN, lambda event: None)
        found = await stragglers.take(1, 0, ())
        await stragglers.close(1)
        return found

    found = asyncio.run(asyncio.wait_for(main(), 4))
    assert (positions(found), found.late) == ([0], (1,))


@pytest.mark.parametrize("late", Late)
def test_long_tasks_are_trained_on_as_often_as_short_ones(late):
    """Whoever takes the first groups that are whole and forgets the others trains on short tasks alone."""
    draw = random.Random(0)
    durations_s = [0.03 if draw.random() < 0.2 else 0.001 for _ in range(200)]

    async def main():
        groups = Groups(durations_s)
        stragglers = Stragglers(groups.play, RolloutSpec(oversample=2, late=late), TRAIN, lambda event: None)
        taken, cursor, left = [], 0, ()
        for step in range(1, 31):
            found = await stragglers.take(step, cursor, left)
            taken, cursor, left = taken + positions(found), found.cursor, found.late
        await stragglers.close(31)
        return taken, cursor, left

    taken, cursor, left = asyncio.run(asyncio.wait_for(main(), 20))
    assert sorted([*taken, *left]) == list(range(cursor)) and len(left) <= 5
    lengths, all_lengths = [durations_s[at] for at in taken], durations_s[:cursor]
    assert fmean(lengths) == pytest.approx(fmean(all_lengths), rel=0.25)
