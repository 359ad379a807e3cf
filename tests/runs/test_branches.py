"""A trajectory is played again from one of its turns: what is kept is kept token by token, and it is recorded."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rlf.apps.evaluate.branches import BranchPoint, play_branches
from rlf.apps.evaluate.turn import explain_turn
from rlf.apps.evaluate.why import explain_turns
from rlf.apps.web.trajectories import BranchLine, branch_charts, find_branches
from rlf.core.errors import RlfError
from rlf.lineage.records import BRANCH
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.runs.place import open_reader

from ..reports.synthetic import run_record

RUNS = Path("copy/runs")


def _longest(reader):
    """The training trajectory with most turns."""
    run = reader.get_run("latest")
    heads = reader.trajectories(run.record.id)
    head = max((one for one in heads if one.phase == "train"), key=lambda one: one.num_turns)
    return run.record.id, reader.whole(run.record.id, head)


def test_branches_keep_the_turns_and_are_found_beside_their_trajectory(project):
    with open_reader(RUNS) as reader:
        run_id, stored = _longest(reader)
    before, place = stored.scored.trajectory, (stored.summary.phase, stored.summary.step, stored.summary.k)
    kept = len(before.turns) - 1
    found = play_branches(BranchPoint(run_id[:12], *place, kept), 2, runs_folder=RUNS, command=["rlf"])
    assert (found.of.run, found.num_played, found.target) == (run_id, 2, f"{run_id}@1")
    with open_reader(RUNS) as reader:
        played = [reader.whole(found.run_id, head) for head in reader.trajectories(found.run_id)]
        (line,) = find_branches(reader, run_id, place)
        assert find_branches(reader, run_id, ("train", 1, 99)) == []
    assert [one.summary.phase for one in played] == [BRANCH, BRANCH]
    assert (line.run_id, line.turn, line.num_played) == (found.run_id, kept, 2)
    end = before.turns[kept - 1].observation_end if kept else before.turns[0].start
    for one in played:
        assert list(one.scored.trajectory.tokens[:end]) == list(before.tokens[:end])
        assert one.scored.trajectory.num_prefix_turns == kept


@pytest.mark.parametrize("explain", [partial(explain_turns, num_samples=2), partial(explain_turn, num_samples=2)])
def test_the_trajectories_of_an_agent_cannot_be_played_again(explain, tmp_path):
    plan = {"spec": {"rollout": {"agent": {"callable": "own:play"}}}}
    with open_store(tmp_path / "rlf.db") as store:
        start_run(store, replace(run_record(), plan=plan))
    with pytest.raises(RlfError, match=r"run 2026.*: an agent made its trajectories, which cannot be played again"):
        explain(BranchPoint("latest", "train", 1, 0, 1), runs_folder=tmp_path, command=["rlf"])


def test_the_result_of_the_last_kept_call_can_be_another(project):
    with open_reader(RUNS) as reader:
        run_id, stored = _longest(reader)
    if not stored.scored.trajectory.turns[0].calls or len(stored.scored.trajectory.turns) < 2:
        pytest.skip("no trajectory of the small run has a call and a turn behind it")
    place = (stored.summary.phase, stored.summary.step, stored.summary.k)
    point = BranchPoint(run_id, *place, 1, "The river is Fodwol.")
    found = play_branches(point, 1, runs_folder=RUNS, command=["rlf"])
    with open_reader(RUNS) as reader:
        (head,) = reader.trajectories(found.run_id)
        (record, *_) = reader.whole(found.run_id, head).scored.trajectory.turns[0].calls
    assert record.result.text == "The river is Fodwol."


@pytest.mark.parametrize(("point", "words"), [({"turn": 99}, "can be kept"), ({"observation": "x"}, "made no call")])
def test_what_cannot_be_a_branch_says_why(project, point, words):
    with pytest.raises(RlfError, match=words):
        play_branches(
            BranchPoint(**{"run": "latest", "phase": "train", "step": 1, "k": 0, "turn": 0} | point),
            1,
            runs_folder=RUNS,
            command=[],
        )


def test_unchanged_branches_of_several_turns_are_a_curve_of_the_chance_of_success():
    lines = [
        BranchLine("d", 1, "result", 8, 0.0),
        BranchLine("c", 1, "", 8, 0.5),
        BranchLine("b", 0, "", 8, 1.0),
        BranchLine("a", 1, "", 8, 0.25),  # played before c
    ]
    (chart,) = branch_charts(lines)
    assert chart.lines[0].points == ((0.0, 1.0), (1.0, 0.5)) and chart.share
    (_, low, high) = chart.lines[0].band[1]
    assert 0.2 < low < 0.5 < high < 0.8  # Wilson, 4 of 8: 0.215 to 0.785
    assert branch_charts(lines[:2]) == []
