"""Which turn decided follows from what continuations with it and without it came to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.apps.evaluate import branches
from rlf.apps.evaluate.branches import Branches, BranchPoint
from rlf.apps.evaluate.turn import explain_turn, find_turn_changes, rewrite
from rlf.apps.evaluate.why import explain_turns, find_orders, find_worths, order_words
from rlf.chat.repair import stand_in
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.lineage.records import BRANCH, StoredTrajectory, TrajectoryFilter
from rlf.runs.exports import trained_run
from rlf.runs.place import open_reader
from rlf.types import Score, ToolCall, Trajectory

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


@pytest.mark.parametrize("option", ["--step 1", "--turn 1", "--at 1", "--phase sampled", "-n 8"])
def test_an_option_of_a_trajectory_is_refused_for_a_whole_run(option: str) -> None:
    done = CliRunner().invoke(app, ["why", "latest", *option.split()])
    assert done.exit_code == 2 and f"got {option} without K" in done.stderr


def test_continuations_without_a_score_say_nothing(project: Path) -> None:
    _, trajectory, _ = longest()
    with pytest.raises(RlfError, match="cannot say"):
        find_worths(trajectory, [replace(played(0), num_unscorable=64)], is_right=True)


def test_an_explanation_has_each_turn_and_the_arithmetic_of_the_reward_and_names_code_that_changed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(branches.logger, "warning", lambda text, *values: warned.append(text % values))
    run, trajectory, point = longest()
    found = explain_turns(point, 4, at=None, runs_folder=RUNS, command=["rlf"])
    assert (found.of.run, found.num_samples, len(found.turns)) == (run, 4, len(trajectory.turns))
    assert found.reward == pytest.approx(sum(term.contribution for term in found.terms))
    assert found.reward in found.group and len(found.group) > 1
    assert [one.turn for one in found.turns] == list(range(1, len(trajectory.turns) + 1))
    with open_reader(RUNS) as reader:
        for one in found.turns:
            assert one.branches is not None
            assert {head.phase for head in reader.trajectories(one.branches)} == {BRANCH}
    assert not warned
    with (project / "search.py").open("a") as code:
        code.write("# edited\n")
    again = explain_turns(
        point, 4, at=None, runs_folder=RUNS, command=["rlf"]
    )  # `latest` is still the run that trained
    assert [one.before for one in again.turns] == [one.before for one in found.turns]
    assert len(warned) == 1 and "search.py" in warned[0] and "changed since the run" in warned[0]


def test_the_command_shows_a_row_for_each_turn_and_json(project: Path) -> None:
    _, trajectory, point = longest()
    arguments = ["why", "latest", str(point.k), "--step", str(point.step), "-n", "2", "--runs", str(RUNS)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0 and "Chance of success" in shown.stdout and "reward" in shown.stdout
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["data"]
    assert len(data["turns"]) == len(trajectory.turns)
    assert CliRunner().invoke(app, ["why", "latest", "999", "--step", "1", "--runs", str(RUNS)]).exit_code == 2


def member(k: int, values: tuple[float, ...], weights: tuple[float, ...] = (1.0, 0.5)) -> StoredTrajectory:
    """One of a group, with the values of two terms."""
    with open_reader(RUNS) as reader:
        run = trained_run(reader, "latest").record.id
        whole = reader.whole(run, reader.trajectories(run)[0])
    scores = tuple(Score(name, value, weight) for name, value, weight in zip("ab", values, weights, strict=True))
    reward = sum(score.contribution for score in scores)
    scored = replace(whole.scored, scores=scores, reward=reward)
    return replace(whole, summary=replace(whole.summary, k=k, reward=reward), scored=scored)


def test_the_weights_at_which_two_trajectories_change_places_are_found_term_by_term(project: Path) -> None:
    # Rewards 1 + 0.5 * 0 = 1 and 0 + 0.5 * 1 = 0.5: equal where a's weight is 0.5, and where b's is 1.
    a, b = find_orders([member(3, (1.0, 0.0)), member(4, (0.0, 1.0))])
    assert (a.term, a.above, b.below) == ("a", None, None) and a.below is not None and b.above is not None
    assert (a.below.weight, a.below.gains, a.below.loses) == (0.5, 4, 3)
    assert (b.above.weight, b.above.gains, b.above.loses) == (1.0, 4, 3)
    assert order_words(b) == (
        "weight of 'b', now 0.5: no lower one changes the order; above 1 trajectory 4 has more than 3"
    )


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((1.0, 0.0), (0.5, 1.0), "weight of 'b', now 0.5: below 0.5 trajectory 3 has more than 4; above 0.5"),
        ((1.0, 1.0), (0.0, 1.0), "weight of 'b', now 0.5: no lower one changes the order; no higher one"),
    ],
)
def test_equal_rewards_part_at_any_other_weight_and_equal_values_at_none(
    project: Path, first: tuple[float, float], second: tuple[float, float], words: str
) -> None:
    found = find_orders([member(3, first), member(4, second)])
    assert order_words(found[1]).startswith(words)
    assert find_orders([member(3, first)]) == ()


def test_a_penalty_keeps_its_sign(project: Path) -> None:
    (_, b) = find_orders([member(3, (1.0, 1.0), (1.0, -0.5)), member(4, (0.0, 0.0), (1.0, -0.5))])
    assert b.above is None and b.below is not None and b.below.weight == -1.0  # 1 - 1 = 0 = 0


def test_a_turn_is_written_with_another_argument_as_its_format_reads_it_back(project: Path) -> None:
    _, trajectory, _ = longest()
    turn, chat = trajectory.turns[0], stand_in("hermes")
    (record,) = turn.calls
    call = ToolCall(record.call.name, {**record.call.arguments, "query": 'another "place"'})
    text = rewrite(chat, turn, 0, [call])
    assert text is not None and chat.parse(text, truncated=False).calls == (call,)
    # A call that the turn does not hold as it would be written, with a value that it holds twice.
    spaced = replace(turn, text="<tool_call>no call</tool_call>")
    assert rewrite(chat, spaced, 0, [call]) is None


def test_parts_that_cannot_be_another_are_named(project: Path) -> None:
    _, trajectory, point = longest()
    lines: list[str] = []
    changes = list(find_turn_changes(trajectory, replace(point, turn=1), [], stand_in("hermes"), lines.append))
    assert [(one.part, one.instead) for one in changes if one.part == "turn"] == [("turn", "sampled again")]
    assert lines == ["result of search: no other call of search gave another"]


def test_each_part_of_a_turn_is_left_out_or_another_and_its_worth_has_an_interval(trained: tuple[Path, str]) -> None:
    runs, run = trained
    with open_reader(runs) as reader:
        heads = [head for head in reader.trajectories(run, TrajectoryFilter(phase="train")) if head.num_calls]
        head = next(one for one in heads if one.reward is not None)
        (first, *_) = reader.whole(run, head).scored.trajectory.turns[0].calls
    found = explain_turn(
        BranchPoint(run, head.phase, head.step, head.k, 1), 2, at=None, runs_folder=runs, command=["rlf"]
    )
    parts = {part.part.partition(" (call")[0] for part in found.parts}
    assert {"result of search", "turn", "argument query of search"} <= parts and len(found.parts) >= 5
    for part in found.parts:
        assert part.worth.low <= found.share - part.share <= part.worth.high
    asked = next(part for part in found.parts if part.part.startswith("argument"))
    with open_reader(runs) as reader:
        played = [reader.whole(asked.branches, one).scored.trajectory for one in reader.trajectories(asked.branches)]
        assert reader.get_run(asked.branches).record.parent_id == run
    calls = {json.dumps(dict(one.turns[0].calls[0].call.arguments)) for one in played}
    assert len(calls) == 1 and calls != {json.dumps(dict(first.call.arguments))}
    assert all(one.turns[0].calls[0].result.text != first.result.text for one in played)  # the tool was asked with it


def test_a_turn_without_a_call_is_refused_and_a_page_has_the_curve(project: Path, tmp_path: Path) -> None:
    _, _, point = longest()
    with pytest.raises(RlfError, match=r"--turn: got 99; expected a turn with a call and its result"):
        explain_turn(replace(point, turn=99), 2, at=None, runs_folder=RUNS, command=["rlf"])
    base = ["why", "latest", str(point.k), "--step", str(point.step), "-n", "2", "--runs", str(RUNS)]
    pages = {name: tmp_path / f"{name}.html" for name in ("turns", "one", "run")}
    assert CliRunner().invoke(app, [*base, "--html", str(pages["turns"])]).exit_code == 0
    assert CliRunner().invoke(app, [*base, "--turn", "1", "--html", str(pages["one"])]).exit_code == 0
    assert CliRunner().invoke(app, ["why", "latest", "--runs", str(RUNS), "--html", str(pages["run"])]).exit_code == 0
    texts = {name: page.read_text(encoding="utf-8") for name, page in pages.items()}
    assert "Chance of success after each turn" in texts["turns"] and "<svg" in texts["turns"]
    assert "in its place" in texts["one"] and "why " in texts["run"]


def test_the_page_of_a_trajectory_draws_what_was_played_from_its_turns(project: Path) -> None:
    from starlette.testclient import TestClient

    from rlf.apps.web.app import create_app
    from rlf.apps.web.settings import WebSettings

    run, trajectory, point = longest()
    explain_turns(point, 2, at=None, runs_folder=RUNS, command=["rlf"])
    client = TestClient(create_app(WebSettings(project, RUNS)), base_url="http://127.0.0.1:8642")
    text = client.get(f"/runs/{run}/t/{point.phase}/{point.step}/{point.k}").text
    assert "Branches" in text and ('data-for="chance"' in text) is (len(trajectory.turns) > 1)
