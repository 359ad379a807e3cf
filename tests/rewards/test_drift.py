"""Sentinels: chosen at their rate, counted by CUSUM and kappa, and what an alarm does."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlf.apps.judges.drift import Charts, LabelledItem, Watchman, _run_length, cohen_kappa, height_of
from rlf.apps.judges.settings import Sentinels
from rlf.core import RlfError, RunError, SpecError
from rlf.rewards import RewardFunction, Term, TrajectoryFacts
from rlf.rollout.collect import rollout_metrics
from rlf.types import Scored, Trajectory

from .judges import Judge, judging
from .scoring import CONTEXT, score_with

LINES = [
    {"question": "S", "answer": "good one", "label": 10},
    {"question": "S", "answer": "good two", "label": True},
    {"question": "S", "answer": "poor one", "label": 1},
    {"question": "S", "answer": "poor two", "label": False},
]


@pytest.fixture
def sentinels(tmp_path: Path) -> str:
    path = tmp_path / "sentinels.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    return str(path)


def honest(body: Mapping[str, Any]) -> str:
    return json.dumps({"score": 1 if "poor" in body["messages"][1]["content"] else 10})


def watched(judge: Judge, file: str, **keys: Any) -> Term:
    told = {"file": file, **keys}
    common = {"kind": "judge", "name": "good", "endpoints": [judge.endpoint()], "unscorable": "drop_term"}
    return Term.model_validate(common | {"sentinels": told})


def tasks(num: int, step: int) -> list[Trajectory]:
    return [TrajectoryFacts(question="T", answer="good enough").trajectory(f"{step}/{at}") for at in range(num)]


def run(term: Term, num_steps: int, num: int, told: list[tuple[str, str]] | None = None) -> list[list[Scored]]:
    """Steps of a run, one after the other."""

    async def main() -> list[list[Scored]]:
        context = replace(CONTEXT, notify=lambda *words: told.append(words) if told is not None else None)
        async with RewardFunction([term], context) as function:
            return [await function.score_all(tasks(num, step), step=step) for step in range(1, num_steps + 1)]

    return asyncio.run(main())


def asked_about(judge: Judge, question: str) -> int:
    return sum(f"\n{question}\n" in prompt for prompt in judge.prompts)


def play(
    charts: Charts,
    seed: int,
    num: int,
    *,
    errors: float = 0.1,
    shift: float = 0.0,
    inward: float = 0.0,
    poor: float = 0.0,
    good: float = 0.0,
) -> int:
    """Sentinels until the first alarm, at most `num`: values at .75 and .25 with some spread, kept on their side."""
    draw = random.Random(seed)
    for count in range(1, num + 1):
        known = draw.random() < 0.5
        judged = known if draw.random() >= errors else not known
        value = (0.75 + good if judged else 0.25 + poor) + shift - (inward if judged else -inward)
        value += draw.uniform(-0.05, 0.05)
        if charts.add(value, judged=judged, known=known) is not None:
            return count
    return num


def calibrated(seed: int) -> Charts:
    charts = Charts(0.1, 0.3, 5000, None)
    play(charts, seed, 150)
    return charts


def test_the_heights_are_those_of_the_stated_run_length() -> None:
    # one chart that moves +1 with .5 and else -1, height .5: the first +1 passes, after 2 verdicts on average
    assert _run_length(((0.5, 1.0), (0.5, -1.0)), 0.5) == pytest.approx(2.0)
    outcomes = ((0.1, math.log(3)), (0.9, math.log(7 / 9)))
    assert _run_length(outcomes, height_of(outcomes, 5000)) == pytest.approx(5000, rel=0.25)


def test_a_judge_as_tolerated_has_five_thousand_sentinels_between_false_alarms() -> None:
    charts, alarms, num = Charts(0.1, 0.3, 5000, None), 0, 60_000
    draw = random.Random(0)
    for _ in range(num):
        known = draw.random() < 0.5
        judged = known if draw.random() >= 0.1 else not known
        alarms += (
            charts.add((0.75 if judged else 0.25) + draw.uniform(-0.2, 0.2), judged=judged, known=known) is not None
        )
    assert num / max(alarms, 1) >= 5000


@pytest.mark.parametrize(
    "drift", [{"errors": 0.3}, {"shift": 0.2}, {"shift": -0.2}, {"inward": 0.2}, {"inward": -0.2}], ids=str
)
def test_a_drift_of_a_fifth_is_found_within_sixty_sentinels(drift: dict[str, float]) -> None:
    counts = [play(calibrated(seed), seed + 1000, 2000, **drift) for seed in range(60)]
    assert sum(counts) / len(counts) <= 60


@pytest.mark.parametrize(
    ("drift", "said"),
    [
        ({"poor": 0.2}, "values of poor items are inflated"),
        ({"poor": -0.2}, "values of poor items are deflated"),
        ({"good": -0.2}, "values of good items are deflated"),
        ({"good": 0.2}, "values of good items are inflated"),
    ],
    ids=str,
)
def test_a_drift_of_one_side_alone_is_found_within_sixty_sentinels_and_named(
    drift: dict[str, float], said: str
) -> None:
    counts = [play(calibrated(seed), seed + 1000, 2000, **drift) for seed in range(60)]
    assert sum(count <= 60 for count in counts) >= 57
    charts = calibrated(1)
    found = [charts.add(value, judged=known, known=known) for known, value in _pairs(drift)]
    assert next(filter(None, found)) == said


def _pairs(drift: dict[str, float]) -> list[tuple[bool, float]]:
    return [(False, 0.25 + drift.get("poor", 0.0)), (True, 0.75 + drift.get("good", 0.0))] * 60


@pytest.mark.parametrize(
    ("poor", "good", "said"),
    [(0.2, 0.2, "inflated"), (-0.2, -0.2, "deflated"), (0.2, -0.2, "compressed"), (-0.2, 0.2, "spread")],
)
def test_a_drift_of_both_sides_is_named_as_one(poor: float, good: float, said: str) -> None:
    charts = calibrated(1)
    found = [charts.add(value, judged=known, known=known) for known, value in _pairs({"poor": poor, "good": good})]
    assert next(filter(None, found)) == f"values are {said}"


def test_a_state_without_charts_of_one_side_is_taken_up() -> None:
    charts, resumed = calibrated(3), Charts(0.1, 0.3, 5000, None)
    state = charts.state()
    del state["sides"]
    resumed.restore(state)
    assert play(resumed, 9, 2000, poor=0.2) <= 60


def test_charts_continue_from_their_state() -> None:
    straight = calibrated(3)
    resumed = Charts(0.1, 0.3, 5000, None)
    resumed.restore(json.loads(json.dumps(straight.state())))
    assert play(straight, 9, 2000, shift=0.2) == play(resumed, 9, 2000, shift=0.2)


def test_what_sentinels_have_counted_outlives_the_process(sentinels: str) -> None:
    """Six steps of a judge that has drifted raise the alarm, whether or not the reward is opened anew for each."""
    told: list[tuple[str, str]] = []

    async def main(judge: Judge) -> None:
        context = replace(CONTEXT, notify=lambda *words: told.append(words))
        state: dict[str, Any] = {}
        for step in range(1, 7):
            function = RewardFunction([watched(judge, sentinels, rate=1.0)], context)
            function.restore(json.loads(json.dumps(state)))
            async with function:
                await function.score_all(tasks(5, step), step=step)
            state = function.state()

    with judging(drifting_after(0)) as judge:
        asyncio.run(main(judge))
    assert told and "it is wrong too often" in told[0][1]


def test_kappa_is_the_agreement_beyond_chance() -> None:
    # Cohen's table [[20, 5], [10, 15]]: p_o = 0.7, p_e = 0.5 * 0.6 + 0.5 * 0.4 = 0.5, kappa = 0.4
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    assert cohen_kappa([(1, 1), (2, 2), (3, 3)]) == 1.0
    assert cohen_kappa([(1, 2), (2, 1)]) == -1.0
    assert cohen_kappa([(1, 1), (1, 1)]) is None
    assert cohen_kappa([]) is None


def test_kappa_of_three_classes_comes_out_as_in_the_confusion_matrix() -> None:
    matrix = [[44, 5, 1], [7, 20, 3], [9, 5, 6]]
    pairs = [(row, column) for row in range(3) for column in range(3) for _ in range(matrix[row][column])]
    # n = 100, p_o = 70 / 100, rows 50 30 20, columns 60 30 10: p_e = 0.3 + 0.09 + 0.02 = 0.41
    assert cohen_kappa(pairs) == pytest.approx((0.70 - 0.41) / (1 - 0.41))


def test_a_step_has_a_sentinel_and_more_by_the_rate(sentinels: str) -> None:
    with judging(honest) as judge:
        run(watched(judge, sentinels, rate=1e-9), 5, 4)
        assert asked_about(judge, "S") == 5
    with judging(honest) as judge:
        run(watched(judge, sentinels, rate=0.25), 2, 200)
        assert 60 <= asked_about(judge, "S") <= 140  # 100 expected, standard deviation 9


def test_steps_that_overlap_have_one_certain_sentinel_each(sentinels: str) -> None:
    item = LabelledItem(TrajectoryFacts(answer="x").trajectory(), 1.0, None)
    watchman = Watchman("good", Sentinels(file=sentinels, rate=1e-9), [item], 0, lambda level, words: None)
    steps = [1, 1, 2, 1, 2, 3, 2, 3]
    chosen = [watchman.sentinel(f"t{at}", step) is not None for at, step in enumerate(steps)]
    assert chosen == [True, False, True, False, False, True, False, False]


def test_sentinels_are_asked_anew_each_time_and_change_no_reward(sentinels: str) -> None:
    with judging(honest) as judge:
        steps = run(watched(judge, sentinels, rate=1.0), 2, 3)
        assert (asked_about(judge, "S"), asked_about(judge, "T")) == (6, 1)
    assert [item.reward for step in steps for item in step] == [1.0] * 6
    assert rollout_metrics(steps[0])["rewards/good/tokens"] == (3 + 1) * 110


def test_kappa_of_the_steps_before_is_a_metric(sentinels: str) -> None:
    with judging(honest) as judge:
        steps = run(watched(judge, sentinels, rate=1.0), 2, 12)
    assert "rewards/good/kappa" not in rollout_metrics(steps[0])
    assert rollout_metrics(steps[1])["rewards/good/kappa"] == 1.0


def drifting_after(num: int) -> Callable[[Mapping[str, Any]], str]:
    asked: list[None] = []

    def say(body: Mapping[str, Any]) -> str:
        if "\nS\n" not in body["messages"][1]["content"]:
            return '{"score": 10}'
        asked.append(None)
        return honest(body) if len(asked) <= num else '{"score": 10}'

    return say


def test_a_judge_that_drifts_raises_an_alarm_and_an_honest_one_none(sentinels: str) -> None:
    told: list[tuple[str, str]] = []
    with judging(honest) as judge:
        run(watched(judge, sentinels, rate=1.0), 6, 10, told)
    assert told == []
    with judging(drifting_after(20)) as judge:
        steps = run(watched(judge, sentinels, rate=1.0), 6, 10, told)
    assert told and {level for level, _ in told} == {"alarm"}
    assert "rewards.good: the judge has drifted:" in told[0][1]
    assert all(item.reward == 1.0 for step in steps for item in step)


def test_a_frozen_term_has_no_value_from_then_on_and_alone_gives_no_reward(sentinels: str) -> None:
    told: list[tuple[str, str]] = []
    with judging(drifting_after(0)) as judge:
        steps = run(watched(judge, sentinels, rate=1.0, on_drift="freeze"), 4, 20, told)
        asked = len(judge.asked)
    assert "the term is frozen" in told[0][1]
    last = steps[-1][0]
    assert (last.reward, last.scores[0].value) == (None, None)
    assert last.scores[0].reason.startswith("frozen since step 1")
    assert asked <= 2 * 20  # nothing is asked after the first step


def test_on_drift_stop_ends_the_run(sentinels: str) -> None:
    with judging(drifting_after(0)) as judge, pytest.raises(RunError, match=r"rewards\.good: the judge has drifted"):
        run(watched(judge, sentinels, rate=1.0, on_drift="stop"), 4, 20)


def test_a_sentinel_without_a_verdict_counts_neither_way(sentinels: str) -> None:
    told: list[tuple[str, str]] = []
    with judging(lambda body: "?" if "\nS\n" in body["messages"][1]["content"] else '{"score": 10}') as judge:
        steps = run(watched(judge, sentinels, rate=1.0), 3, 10, told)
    assert told == [] and steps[-1][0].reward == 1.0
    assert "rewards/good/kappa" not in rollout_metrics(steps[-1])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"answer": "a", "label": 11}', "line 1: the label 11 lies outside the judge's range, 1 to 10"),
        ('{"answer": "a"}', "label: field required"),
        ('{"answer": "a", "label": "first"}', "is for a judge that compares pairs"),
        ("{", "it is not JSON: Expecting property name"),
    ],
)
def test_a_line_that_is_wrong_is_reported_before_the_run(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line)
    with judging(honest) as judge, pytest.raises(SpecError) as caught:
        asyncio.run(score_with([watched(judge, str(path))], []))
    assert words.removeprefix("line 1: ") in str(caught.value) and ":1:1" in str(caught.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with judging(honest) as judge, pytest.raises(RlfError, match="cannot be read"):
        asyncio.run(score_with([watched(judge, str(tmp_path / "none.jsonl"))], []))
