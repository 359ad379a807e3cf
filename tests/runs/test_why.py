"""Which turn decided follows from what continuations with it and without it came to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.apps.evaluate.branches import Branches, BranchPoint
from rlf.apps.evaluate.why import explain, find_worths
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.lineage.records import BRANCH, TrajectoryFilter
from rlf.runs.exports import trained_run
from rlf.runs.place import open_reader
from rlf.types import Trajectory

RUNS = Path("copy/runs")
POINT = BranchPoint("r", "train", 1, 0, 0)


def played(num_right: int, num: int = 64) -> Branches:
    return Branches("b", POINT, "r@1", num, num_right, 0, None, None)


def longest() -> tuple[str, Trajectory, BranchPoint]:
    """The training trajectory with most turns."""
    with open_reader(RUNS) as reader:
        run = trained_run(reader, "latest").record.id
        head = max(reader.trajectories(run, TrajectoryFilter(phase="train")), key=lambda one: one.num_turns)
        trajectory = reader.whole(run, head).scored.trajectory
    return run, trajectory, BranchPoint("latest", head.phase, head.step, head.k, 0)


@pytest.mark.parametrize(
    ("rights", "is_right", "decides"),
    [
        ((60, 2), False, [True, False]),
        ((60, 58), False, [False, True]),
        ((60, 58), True, [False, False]),
        ((4, 61), True, [True, False]),
        ((33, 30), True, [False, True]),
    ],
)
def test_a_turn_decides_where_the_share_of_right_ends_changes_beyond_chance(
    project: Path, rights: tuple[int, int], is_right: bool, decides: list[bool]
) -> None:
    _, trajectory, _ = longest()
    two = replace(trajectory, turns=(trajectory.turns[0],) * 2)
    worths = find_worths(two, [played(num) for num in rights], is_right=is_right)
    assert [one.decides for one in worths] == decides
    assert worths[1].after == float(is_right) and worths[1].before == worths[0].after
    for one in worths:
        assert one.change.low <= one.after - one.before <= one.change.high


def test_continuations_without_a_score_say_nothing(project: Path) -> None:
    _, trajectory, _ = longest()
    with pytest.raises(RlfError, match="cannot say"):
        find_worths(trajectory, [replace(played(0), num_unscorable=64)], is_right=True)


def test_an_explanation_has_each_turn_and_the_arithmetic_of_the_reward(project: Path) -> None:
    run, trajectory, point = longest()
    found = explain(point, 4, at=None, runs_folder=RUNS, command=["rlf"])
    assert (found.of.run, found.num_samples, len(found.turns)) == (run, 4, len(trajectory.turns))
    assert found.reward == pytest.approx(sum(term.contribution for term in found.terms))
    assert found.reward in found.group and len(found.group) > 1
    assert [one.turn for one in found.turns] == list(range(1, len(trajectory.turns) + 1))
    with open_reader(RUNS) as reader:
        for one in found.turns:
            assert one.branches is not None
            assert {head.phase for head in reader.trajectories(one.branches)} == {BRANCH}
    again = explain(point, 4, at=None, runs_folder=RUNS, command=["rlf"])  # `latest` is still the run that trained
    assert [one.before for one in again.turns] == [one.before for one in found.turns]


def test_the_command_shows_a_row_for_each_turn_and_json(project: Path) -> None:
    _, trajectory, point = longest()
    arguments = ["why", "latest", str(point.k), "--step", str(point.step), "-n", "2", "--runs", str(RUNS)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0 and "Chance of success" in shown.stdout and "reward" in shown.stdout
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["data"]
    assert len(data["turns"]) == len(trajectory.turns)
    assert CliRunner().invoke(app, ["why", "latest", "999", "--step", "1", "--runs", str(RUNS)]).exit_code == 2
