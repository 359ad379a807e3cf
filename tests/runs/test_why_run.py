"""What a run's trajectories show of one planted fault is named first, and a healthy run is suspected of nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.apps.evaluate.breaks import SUCCESS, Point, fall_of, find_breaks, points_of, read_breaks
from rlf.apps.evaluate.explain_run import Influence, find_influences
from rlf.apps.evaluate.suspects import Recorded, find_suspects
from rlf.cli.main import app
from rlf.lineage.records import StoredTrajectory, TrainingStep, TrajectorySummary
from rlf.rollout.collect import rollout_metrics
from rlf.rollout.signal import DiagnosisSetting
from rlf.types import Message, Outcome, Score, Scored, StopReason, Task, ToolCall, ToolResult, Trajectory
from rlf.types.tool import Attempt
from rlf.types.trajectory import CallRecord, Turn

RUNS = Path("copy/runs")
NUM_STEPS, BROKEN_FROM, NUM_TASKS, NUM_SAMPLES = 20, 12, 8, 4


@dataclass(frozen=True)
class Play:
    """One rollout before it is recorded."""

    step: int
    phase: str
    number: int
    """Of the question."""
    gold: str
    answer: str
    result: str
    outcome: Outcome = Outcome.OK
    run_s: float = 0.01
    value: float | None = None
    """Of the first term; None: by answer and gold."""
    extra: float | None = None
    """Of a second term, of weight 4."""
    num_sampled: int = 20


def record(play: Play, k: int, sample: int) -> StoredTrajectory:
    task = Task(
        f"t{play.step if play.phase == 'train' else 'h'}-{play.number}", (Message("user", ask(play)),), play.gold
    )
    value = float(play.answer == play.gold) if play.value is None else play.value
    value = None if value < 0 else value
    scores = [Score("right", value, 1.0, "", 0.0)]
    scores += [] if play.extra is None else [Score("other", play.extra, 4.0, "", 0.0)]
    result = ToolResult(play.outcome, play.result, (Attempt(play.outcome, play.run_s),), run_s=play.run_s)
    calls = (CallRecord(ToolCall("search", {"query": f"town {play.number}"}), result),)
    turns = (Turn(1, 10, 15, "call", calls), Turn(15, 15 + play.num_sampled, 15 + play.num_sampled, play.answer))
    tokens = 15 + play.num_sampled
    trajectory = Trajectory(
        f"{play.phase}/{play.step}/{k}", task, sample, [1] * tokens, [True] * tokens, [-1.0] * tokens, turns,
        StopReason.ANSWERED, play.answer,
    )  # fmt: skip
    scored = Scored(trajectory, tuple(scores), None if value is None else sum(s.contribution for s in scores), value)
    head = TrajectorySummary(
        play.step, play.phase, k, trajectory.id, task.id, sample, None, trajectory.stop, None, play.answer, play.gold,
        scored.reward, value, None, tokens, play.num_sampled, 2, 1, 1.0,
    )  # fmt: skip
    return StoredTrajectory(head, scored)


def ask(play: Play) -> str:
    return f"Where is {'town' if play.phase == 'train' else 'city'} {play.number}?"


def plays(change: Callable[[Play], Play]) -> Recorded:
    """A run that learns within its first steps, changed by a plant."""
    draw = random.Random(0)
    steps, trained, evaluated = [], list[StoredTrajectory](), list[StoredTrajectory]()
    for step in range(1, NUM_STEPS + 1):
        chance = min(0.95, 0.25 + 0.2 * step)
        items = []
        for task in range(NUM_TASKS):
            number = draw.randrange(60)
            for sample in range(NUM_SAMPLES):
                answer = f"place {number}" if draw.random() < chance else f"place {draw.randrange(60)}"
                made = Play(step, "train", number, f"place {number}", answer, f"Town {number}: place {number}")
                items.append(record(change(made), task * NUM_SAMPLES + sample, sample))
        trained += items
        metrics = rollout_metrics([item.scored for item in items]) | {"policy/entropy": 0.3, "time/step_s": 1.0}
        steps.append(TrainingStep(step, metrics, float(step)))
    for step in (0, NUM_STEPS):
        for number in range(100, 124):
            made = Play(step, "sampled", number, f"place {number}", f"place {number}", "Found.")
            evaluated.append(record(change(made), number, 0))
    breaks = read_breaks(trained, steps)
    fall = fall_of(breaks, points_of(trained, SUCCESS), is_worse=False)
    return Recorded(
        trained, evaluated, steps, breaks, fall, DiagnosisSetting(("search",), True), "train.learning_rate 1"
    )


def since(**changes: object) -> Callable[[Play], Play]:
    return lambda play: replace(play, **changes) if play.step >= BROKEN_FROM else play  # type: ignore[arg-type]


def lie(play: Play) -> Play:
    wrong = f"place {(play.number + 7) % 60}"
    return replace(play, result=f"Town: {wrong}", answer=wrong) if play.step >= BROKEN_FROM else play


def cut(play: Play) -> Play:
    return replace(play, result=play.result[:4], answer="?") if play.step >= BROKEN_FROM else play


def flip(play: Play) -> Play:
    return replace(play, value=float(play.answer != play.gold)) if play.step >= BROKEN_FROM else play


def lose(play: Play) -> Play:
    return replace(play, value=-1.0) if play.step >= BROKEN_FROM and play.number % 2 else play


def spoil(play: Play) -> Play:
    """One gold in eight is another one, and the policy keeps to what the tool says."""
    is_spoilt = play.number % 8 == 0 and play.phase == "train"
    return replace(play, gold="nowhere", answer=f"place {play.number}") if is_spoilt else play


def hack(play: Play) -> Play:
    """The second term is paid more and more often, the first one as at the start."""
    extra = float(random.Random(f"{play}").random() < play.step / NUM_STEPS)
    return replace(play, answer="?" if play.number else play.answer, extra=extra)


def healthy(play: Play) -> Play:
    return play


PLANTED = {
    "tool_lies": lie,
    "results_cut": cut,
    "tools_fail": since(outcome=Outcome.TOOL_ERROR, result="down", answer="?"),
    "tool_slow": since(run_s=0.5),
    "reward_changed": flip,
    "not_scored": lose,
    "wrong_golds": spoil,
    "other_term_pays": hack,
    "policy_broke": since(answer="!", num_sampled=300),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_fault_is_named_first_from_the_step_on_at_which_it_began(kind: str) -> None:
    first, *_ = find_suspects(plays(PLANTED[kind]))
    assert first.kind == kind, first
    assert first.step == (1 if kind in ("wrong_golds", "other_term_pays") else BROKEN_FROM)
    assert first.seen and first.refuted_by and first.advice and first.shows


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_learns_is_suspected_of_nothing(seed: int) -> None:
    draw = random.Random(seed)
    noisy = plays(lambda play: replace(play, run_s=draw.uniform(0.005, 0.02), num_sampled=draw.randrange(15, 40)))
    assert noisy.fall is None and find_suspects(noisy) == []


def test_a_question_that_is_trained_on_and_held_out_is_a_leak() -> None:
    run = plays(healthy)
    first = run.trained[0]
    again = [replace(one, summary=replace(one.summary, phase="sampled")) for one in run.trained[:40:4]]
    suspects = find_suspects(replace(run, evaluated=[*run.evaluated, *again]))
    assert [one.kind for one in suspects] == ["leak"] and ("train", 1, first.summary.k) in suspects[0].shows


def test_a_tool_that_answers_by_the_state_of_a_world_is_not_suspected_of_lies() -> None:
    draw = random.Random(0)
    run = plays(lambda play: replace(play, result=f"Room {draw.randrange(5)} after {play.step // 10}"))
    assert [one.kind for one in find_suspects(run)] == []


def test_a_term_that_reads_more_than_the_answer_may_change_with_the_policy() -> None:
    draw = random.Random(0)
    run = plays(lambda play: replace(play, answer="?", value=float(draw.random() < play.step / NUM_STEPS)))
    assert find_suspects(run) == []


def test_a_fall_that_nothing_explains_has_no_suspect() -> None:
    run = plays(since(answer="!"))  # as many tokens, turns and calls as before: the answers alone are wrong
    assert run.fall is not None and run.fall.step == BROKEN_FROM and find_suspects(run) == []


def test_a_fall_that_held_out_success_shows_is_dated_by_less_than_one_that_it_does_not() -> None:
    points = [Point(1, 0.27, 0.11), *(Point(step, 0.0, 0.04) for step in range(2, 20))]
    assert fall_of({}, points, is_worse=False) is None
    fall = fall_of({}, points, is_worse=True)
    assert fall is not None and fall.step == 2


@pytest.mark.parametrize("at", [3, 10, 16])
def test_a_change_of_level_is_found_at_its_step_and_a_drift_or_noise_is_none(at: int) -> None:
    draw = random.Random(at)
    noise = [0.02 * draw.gauss(0, 1) for _ in range(20)]
    points = [Point(step, 0.9 - 0.4 * (step >= at) + noise[step], 0.02) for step in range(20)]
    assert [one.step for one in find_breaks("x", points, 0.1)] == [at]
    assert find_breaks("x", [Point(step, 0.5 + noise[step], 0.02) for step in range(20)], 0.1) == []


def test_the_command_explains_a_run_and_refuses_half_of_a_trajectory(project: Path) -> None:
    shown = CliRunner().invoke(app, ["why", "latest", "--runs", str(RUNS)])
    assert shown.exit_code == 0 and "verdict: " in shown.stdout and "1. too hard" in shown.stdout
    data = json.loads(CliRunner().invoke(app, ["why", "latest", "--runs", str(RUNS), "--json"]).stdout)["data"]
    assert data["suspects"][0]["shows"] and data["num_read"] > 0
    for half in (["0"], ["--step", "1"]):
        assert CliRunner().invoke(app, ["why", "latest", *half, "--runs", str(RUNS)]).exit_code == 2


def moving(trains: Callable[[int], set[str]], moves: Callable[[int, str], float]) -> list[Influence]:
    """A run whose training kinds of a step have groups that differ, and whose held-out kinds have a success."""
    draw, trained, evaluated = random.Random(1), list[StoredTrajectory](), list[StoredTrajectory]()
    for step in range(17):
        for kind in ("easy", "hard"):
            for number in range(60 if step % 2 == 0 else 0):
                right = draw.random() < moves(step, kind)
                play = Play(step, "sampled", number, "a", "a" if right else "b", "")
                evaluated.append(of_kind(record(play, number, 0), kind))
            for number in range(24 if step else 0):
                answer = "ab"[number % 2] if kind in trains(step) else "b"
                play = Play(step, "train", number // 4, "a", answer, "")
                trained.append(of_kind(record(play, number, number % 4), kind))
    return find_influences(trained, evaluated)


def of_kind(item: StoredTrajectory, kind: str) -> StoredTrajectory:
    return replace(item, summary=replace(item.summary, kind=kind, task_id=f"{kind}-{item.summary.task_id}"))


def test_the_only_kind_with_advantages_moved_what_moved_and_what_stayed_is_not_named() -> None:
    (found,) = moving(lambda step: {"easy"}, lambda step, kind: 0.1 + 0.05 * step * (kind == "easy"))
    assert (found.held_out, found.trained) == ("easy", "easy") and "100.0 % of all advantages" in found.seen


def test_kinds_that_are_trained_one_after_the_other_are_separated_and_those_at_once_are_not() -> None:
    def first_easy(step: int, kind: str) -> float:
        return 0.05 + 0.9 * (min(step, 8) if kind == "easy" else max(0, step - 8)) / 8

    found = moving(lambda step: {"easy"} if step <= 8 else {"hard"}, first_easy)
    assert {one.held_out: one.trained for one in found} == {"easy": "easy", "hard": "hard"}
    mixed = moving(lambda step: {"easy", "hard"}, lambda step, kind: 0.1 + 0.05 * step)
    assert [one.trained for one in mixed] == [None, None]
