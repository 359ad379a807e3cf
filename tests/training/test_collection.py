"""What a step collects: which rollouts are played, which of them stay, and what is left where it is cut off."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlf.rewards import RewardFunction, Term
from rlf.spec.models import RolloutSpec, TrainSpec
from rlf.training import outages
from rlf.training.collection import Collector
from rlf.training.outages import Outages
from rlf.types import Interrupted, StopReason, Task
from rlf.types.trajectory import SAMPLER, MissingRewardCause

from ..rewards.scoring import CONTEXT
from .trajectories import played, scored

TASKS = [Task(name, (), "yes") for name in "abcdefgh"]
RIGHT = Term.model_validate({"kind": "rule", "name": "right", "rule": "exact_match"})


def position(id_):
    return int(id_.split("/")[1])


def train_spec(**keys):
    return TrainSpec.model_validate({"algorithm": {"kind": "grpo"}, "prompts_per_step": 2, **keys})


class Step:
    """A collector whose rollouts have three turns each, and answers by their ids."""

    def __init__(self, answer=lambda id_: "yes", rollout=(), demonstrations=None, plays_back=False, **train):
        self.answer, self.rollouts, self.samplings, self.events, self.certified = answer, [], {}, [], []
        worlds, agents = SimpleNamespace(prepare=self.prepare), SimpleNamespace(certify=self.certify)
        self.prepared = []
        self.reward = RewardFunction([RIGHT], CONTEXT)
        self.harness = SimpleNamespace(
            training="training", greedy="greedy", reward=self.reward, worlds=worlds, agents=agents,
            tools=SimpleNamespace(plays_back=plays_back), player=self.player,
        )  # fmt: skip
        self.collector = Collector(
            None, self.harness, TASKS, train_spec(**train),
            RolloutSpec.model_validate({"num_generations": 2, **dict(rollout)}), seed=3, emit=self.events.append,
            outages=Outages(60, lambda level, text: None, [RIGHT]), demonstrations=demonstrations,
        )  # fmt: skip

    def player(self, policy, sampling):
        async def play(rollout, *, cut_off=None):
            self.rollouts.append(rollout)
            self.samplings[rollout.id] = sampling
            answer = self.answer(rollout.id)
            if answer == "never":
                await asyncio.Event().wait()
            trajectory = played(rollout, 3).trajectory
            if answer == "broken":
                return replace(
                    trajectory,
                    stop=StopReason.INFRA_FAILURE,
                    answer=None,
                    broken=MissingRewardCause(SAMPLER, "the server is gone"),
                )
            return replace(trajectory, answer=answer)

        return SimpleNamespace(open=lambda ids: None, play=play, release=lambda id_: None)

    async def prepare(self, rollouts):
        self.prepared += rollouts

    async def certify(self, harness, policy, tasks, seed):
        self.certified += tasks
        return "certified"

    def run(self, *steps):
        """Collects steps one after the other, each from where the one before it ended."""

        async def main():
            found, cursor, late, drawn = [], 0, (), {}
            async with self.reward:
                for step in steps:
                    found.append(await self.collector.collect(step, cursor, late, drawn))
                    cursor, late, drawn = found[-1].cursor, found[-1].late, found[-1].drawn
            return found

        return asyncio.run(asyncio.wait_for(main(), 20))

    def run_until_it_hangs(self):
        async def main():
            async with self.reward:
                collecting = asyncio.ensure_future(self.collector.collect(1, 0))
                done, _ = await asyncio.wait([collecting], timeout=0.1)
                assert not done
                collecting.cancel()
                await asyncio.wait([collecting])

        asyncio.run(main())
        (event,) = self.events
        assert isinstance(event, Interrupted) and event.step == 1
        return event.trajectories


def ids(scored):
    return [item.trajectory.id for item in scored]


def places(*positions):
    return [f"train/{at}/{sample}" for at in positions for sample in range(2)]


def test_a_step_plays_the_next_tasks_each_as_often_as_its_group_is_large():
    first, second = Step().run(1, 2)
    assert (ids(first.collected), ids(second.collected)) == (places(0, 1), places(2, 3))
    assert (first.kept, first.num_groups, first.cursor, second.cursor) == (first.collected, 2, 2, 4)
    assert (first.greedy, first.greedy_by_task, first.late, first.metrics) == (None, None, (), {})
    assert [item.reward for item in first.collected] == [1.0] * 4
    assert len({item.trajectory.task.id for item in [*first.collected, *second.collected]}) == 4


def test_groups_that_teach_nothing_are_replaced_by_others_until_enough_stay():
    step = Step(lambda id_: "yes" if position(id_) in (0, 2) or id_.endswith("/0") else "no", dynamic_filtering={})
    (found,) = step.run(1)
    assert ids(found.collected) == places(0, 1, 2, 3), "one group is missing after each of two rounds"
    assert (ids(found.kept), found.num_groups, found.cursor) == (places(1, 3), 2, 4)


def test_a_step_ends_after_its_rounds_with_what_there_is():
    (found,) = Step(dynamic_filtering={"max_rounds": 3}).run(1)
    assert (ids(found.collected), found.kept, found.cursor) == (places(*range(6)), [], 6)
    assert found.choose_used(mask_truncated=False) == []


def test_what_a_round_shows_decides_which_tasks_the_next_one_draws():
    step = Step(dynamic_filtering={"max_rounds": 4}, sampler="pools")
    (found,) = step.run(1)
    drawn = [item.trajectory.task.id for item in found.collected[::2]]
    assert len(set(drawn)) == 8, "each task that was solved waits for the others"
    assert found.metrics["draws/retired"] == 8


def test_what_a_step_shows_is_known_to_the_steps_after_it():
    found = Step(sampler="pools").run(1, 2, 3)
    assert [each.metrics["draws/retired"] for each in found] == [2, 4, 6]


def test_each_group_that_stays_has_a_greedy_rollout_beside_it():
    step = Step(lambda id_: "no" if id_ == "train/1/greedy" else "yes", algorithm={"kind": "remax"})
    (found,) = step.run(1)
    assert sorted(ids(found.greedy)) == ["train/0/greedy", "train/1/greedy"]
    assert ids(found.collected) == ids(found.kept) == places(0, 1)
    assert {step.samplings[id_] for id_ in ids(found.greedy)} == {"greedy"}
    assert {step.samplings[id_] for id_ in ids(found.kept)} == {"training"}
    assert sorted(found.greedy_by_task.values()) == [0.0, 1.0]
    assert found.greedy_metrics() == {"groups/without_greedy": 0.0, "reward/greedy/mean": 0.5}
    assert found.choose_used(mask_truncated=False) == found.kept


def test_a_group_whose_greedy_rollout_broke_is_not_learnt_from():
    (found,) = Step(lambda id_: "broken" if id_ == "train/0/greedy" else "yes", algorithm={"kind": "remax"}).run(1)
    assert found.greedy_metrics() == {"groups/without_greedy": 1.0, "reward/greedy/mean": 1.0}
    assert ids(found.choose_used(mask_truncated=False)) == places(1)


def test_trajectories_that_are_all_masked_leave_nothing_to_learn_from():
    (found,) = Step().run(1)
    cut = [replace(one, trajectory=replace(one.trajectory, stop=StopReason.LENGTH)) for one in found.kept]
    assert replace(found, kept=cut).choose_used(mask_truncated=True) == []
    assert replace(found, kept=cut).choose_used(mask_truncated=False) == cut
    assert replace(found, kept=[*cut[:3], found.kept[3]]).choose_used(mask_truncated=True) != []


def test_rollouts_of_a_tree_branch_from_what_was_played_before_them():
    step = Step(rollout={"num_generations": 5, "tree": {"roots": 1, "rounds": 2}}, prompts_per_step=1)
    (found,) = step.run(1)
    assert ids(found.collected) == [f"train/0/{sample}" for sample in range(5)] == [one.id for one in step.rollouts]
    root, *branches = found.collected
    assert root.trajectory.prefix_of == "" and all(one.trajectory.prefix_of for one in branches)
    assert branches[0].trajectory.prefix_of == root.trajectory.id
    assert found.metrics["tree/branches"] == 4


def test_a_group_from_one_state_plays_one_turn_more_and_its_task_is_left_out_where_there_is_no_state():
    step = Step(lambda id_: "broken" if id_ == "train/1/prefix" else "yes", rollout={"prefix_rows": True})
    (found,) = step.run(1)
    assert sorted(one.id for one in step.rollouts[:2]) == ["train/0/prefix", "train/1/prefix"]
    assert ids(found.collected) == places(0)
    own = step.rollouts[2:]
    assert [(one.id, one.is_single_turn, one.prefix.trajectory.id) for one in own] == [
        (id_, True, "train/0/prefix") for id_ in places(0)
    ]


def test_what_a_step_has_when_it_is_cut_off_is_recorded():
    later = Step(lambda id_: "never" if id_ == "train/2/1" else "yes", dynamic_filtering={})
    assert ids(later.run_until_it_hangs()) == [*places(0, 1), "train/2/0", *places(3)]
    tree = {"num_generations": 3, "tree": {"roots": 1, "rounds": 2}}
    branch = Step(lambda id_: "never" if id_ == "train/0/2" else "yes", rollout=tree, prompts_per_step=1)
    assert ids(branch.run_until_it_hangs()) == ["train/0/0", "train/0/1"]
    greedy = Step(lambda id_: "never" if id_ == "train/1/greedy" else "yes", algorithm={"kind": "remax"})
    assert ids(greedy.run_until_it_hangs()) == [*places(0, 1), "train/0/greedy"]


def test_what_an_outage_broke_is_played_again_with_seeds_of_its_own_and_its_first_tries_come_last(monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.001)
    step = Step(lambda id_: "broken" if id_ in places(0, 1) else "yes")
    (found,) = step.run(1)
    again = [f"{id_}/1" for id_ in places(0, 1)]
    assert ids(found.collected) == [*again, *places(0, 1)]
    assert [item.reward for item in found.collected] == [1.0] * 4 + [None] * 4
    assert ids(found.choose_used(mask_truncated=False)) == again
    assert len({one.seed for one in step.rollouts}) == 8


def test_what_broke_in_a_step_that_does_not_wait_for_all_groups_is_played_again_too(monkeypatch):
    monkeypatch.setattr(outages, "_FIRST_PAUSE_S", 0.001)
    (found,) = Step(lambda id_: "broken" if id_ in places(0, 1) else "yes", rollout={"oversample": 1.5}).run(1)
    assert ids(found.collected) == [*(f"{id_}/1" for id_ in places(0, 1)), *places(0, 1)]


def test_groups_that_are_whole_too_late_for_a_step_are_the_next_ones():
    step = Step(rollout={"oversample": 1.5})
    first, second = step.run(1, 2)
    assert (ids(first.collected), first.late, first.cursor) == (places(0, 1), (2,), 3)
    assert ids(second.collected) == places(2, 3) and second.cursor > 3
    assert [item.reward for item in second.kept] == [1.0] * 4


def test_a_late_group_that_a_new_process_plays_again_has_ids_of_its_own():
    step = Step(rollout={"oversample": 1.5})

    async def main():
        async with step.reward:
            found = await step.collector.collect(4, 3, [1])
            await step.collector.close(4)
        return found

    assert ids(asyncio.run(main()).collected) == ["train/1/0/4", "train/1/1/4", *places(3)]


@pytest.mark.parametrize(
    ("rollout", "samples"), [({}, 2), ({"tree": {"roots": 1}}, 1), ({"oversample": 2}, 0)], ids=str
)
def test_worlds_are_reset_ahead_for_the_rollouts_that_begin_with_a_prompt(rollout, samples):
    step = Step(rollout=rollout)
    asyncio.run(step.collector.prepare(2, 2, {}))
    assert [id_ for id_, _ in step.prepared] == [id_ for id_ in places(2, 3) if int(id_[-1]) < samples]


def test_the_first_steps_imitate_and_draw_no_task():
    async def of_step(step):
        return [scored(f"shown {step}", 1.0)]

    step = Step(demonstrations=SimpleNamespace(num_steps=1, of_step=of_step))
    asyncio.run(step.collector.prepare(1, 0, {}))
    first, second = step.run(1, 2)
    assert ids(first.collected) == ids(first.kept) == ["train/0/shown 1"]
    assert (first.cursor, first.greedy, step.prepared) == (0, None, [])
    assert ids(second.collected) == places(0, 1)
    shown = asyncio.run(step.collector.collect(1, 4, [2], {"seen": 7}))
    assert (shown.cursor, shown.late, shown.drawn) == (4, (2,), {"seen": 7}), "what a fork brings along stays"


@pytest.mark.parametrize(("plays_back", "num"), [(False, 2), (True, 0)])
def test_an_agent_is_certified_on_a_steps_tasks_unless_a_recording_is_played_back(plays_back, num):
    step = Step(plays_back=plays_back)
    asyncio.run(step.collector.certify_agent())
    assert step.certified == TASKS[:num] and step.events == ["certified"] * bool(num)
