"""Runs whose rollouts branch from others of their group."""

import re

import pytest

from rlf.core import SpecError
from rlf.lineage.reader import Reader
from rlf.reports.trajectory import show_links
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import RunStatus

from .conftest import ROOT, SMALL
from .test_runs import Watch, history

SPEC = ROOT / "specs" / "search.yaml"
TREES = [
    *SMALL,
    "rollout.num_generations=8",
    "+rollout.tree={roots: 2, rounds: 3}",
    "rollout.schedule=invariant",
    "train.algorithm=tree_grpo",
    "train.prompts_per_step=1",
    "train.steps=3",
    "checkpoint.every=1",
]


def play(folder, extra=(), watch=None):
    return run([SPEC], [*TREES, *extra], runs_folder=folder, view=watch or Watch(), command=["rlf"])


def trajectories(folder, run_id, step):
    with open_lineage(folder) as store:
        reader = Reader(store)
        return [reader.trajectory(run_id, k=k, step=step).scored.trajectory for k in range(8)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    return folder, play(folder).run_id


def test_branches_share_the_tokens_of_a_trajectory_of_their_group_and_are_traced_to_it(whole):
    folder, run_id = whole
    num_branches = 0
    for step in (1, 2, 3):
        by_id = {one.id: one for one in trajectories(folder, run_id, step)}
        assert len(by_id) == 8
        for one in by_id.values():
            if not one.prefix_of:
                continue
            parent, kept = by_id[one.prefix_of], one.num_prefix_turns
            end = parent.turns[kept - 1].observation_end
            assert one.tokens[:end] == parent.tokens[:end] and one.turns[kept].start == end
            assert [turn.text for turn in one.turns[:kept]] == [turn.text for turn in parent.turns[:kept]]
            assert not any(one.action_mask[:end]) and all(one.action_mask[end : one.turns[kept].end])
            assert show_links(one)[kept].startswith(f"branches from {parent.id} after turn {kept}")
            num_branches += 1
    assert num_branches > 3
    with open_lineage(folder) as store:
        reader = Reader(store)
        steps = reader.steps(run_id)
        totals = {one.step: one.num_sampled for one in reader.step_totals(run_id)}
    assert num_branches == sum(step.metrics["tree/branches"] for step in steps)
    for step in steps:
        own = [turn.end - turn.start for one in trajectories(folder, run_id, step.step)
               for turn in one.turns[one.num_prefix_turns :]]  # fmt: skip
        assert totals[step.step] == sum(own), "what is shared was sampled once"


def test_a_seed_gives_the_same_trees_again_and_a_resumed_run_those_of_one_that_was_not_stopped(whole, tmp_path):
    folder, run_id = whole

    class Stop(Exception):
        pass

    def stop_after_two(event):
        if getattr(event, "step", 0) == 2 and type(event).__name__ == "CheckpointSaved":
            raise Stop

    with pytest.raises(Stop):
        play(tmp_path, watch=Watch(at=stop_after_two))
    with open_lineage(tmp_path) as store:
        (cut,) = Reader(store).list_runs()
    done = resume(cut.record.id, runs_folder=tmp_path, view=Watch(), command=["rlf", "resume"])
    assert done.status is RunStatus.FINISHED
    assert history(tmp_path, cut.record.id) == history(folder, run_id)
    for step in (1, 3):
        ours, theirs = (trajectories(*place, step) for place in ((tmp_path, cut.record.id), (folder, run_id)))
        assert [(one.prefix_of, one.num_prefix_turns) for one in ours] == [
            (one.prefix_of, one.num_prefix_turns) for one in theirs
        ]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["rollout.max_turns=1"], "rollout.tree: got a tree with max_turns: 1"),
        (["+rollout.prefix_rows=true"], "rollout.tree: got a tree with prefix_rows"),
        (["rollout.num_generations=7"], "each round must add equally many to each tree. Write e.g. num_generations: 8"),
        (["rollout.num_generations=2"], "Write e.g. num_generations: 8"),
        (["rollout.schedule=clock", "+rollout.oversample=1.5"], "rollout.tree: got this with oversample"),
        (["engine.kind=openrlhf"], "rollout.tree: got a tree; samples of a prompt begin side by side"),
        (
            ["rewards=[{kind: judge, name: best, compare: group, endpoints: [{url: 'http://localhost:1', model: m}]}]"],
            "rewards[0]: got 'best', which compares the rollouts of a group",
        ),
    ],
)
def test_a_spec_that_cannot_have_trees_says_why(overrides, words):
    with pytest.raises(SpecError, match=re.escape(words)):
        check_spec([SPEC], [*TREES, *overrides])
