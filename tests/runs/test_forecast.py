"""A forecast's figures follow from what was played, and its intervals hold what they say."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import Result
from typer.testing import CliRunner

from rlf.apps.evaluate import forecast as module
from rlf.apps.evaluate.forecast import expect, forecast
from rlf.apps.evaluate.forecast_views import show_forecast
from rlf.apps.evaluate.outlook import (
    Curve,
    Obstacle,
    expect_differing,
    expect_gpus,
    expect_learning,
    expect_steps,
    find_needed,
    find_obstacle,
    find_questions,
    find_step,
    gpu_words,
    parse_gpus,
    steps_words,
)
from rlf.apps.evaluate.run import EvaluationResults
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.core.errors import RunError
from rlf.endpoints.spec import EndpointSpec
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.plan import plan_to_json
from rlf.reports.paired import mcnemar_power
from rlf.rollout.signal import CauseKind, Signal
from rlf.runs.place import open_lineage, open_reader
from rlf.runs.plans import check_spec
from rlf.types import EvaluationFinished, RunFinished, RunStatus

from ..lineage.builders import run_record
from .conftest import ROOT

SEARCH = ROOT / "specs" / "search.yaml"
SMALL = ["train.prompts_per_step=4", "rollout.num_generations=4", "~data.eval", "~eval"]


def make(runs: Path, *overrides: str, groups: int = 8) -> module.Forecast:
    return forecast(
        [SEARCH], [*SMALL, *overrides], num_groups=groups, runs_folder=runs, command=["rlf"], show=lambda shown: None
    )


@pytest.mark.parametrize("chance", [0.02, 0.3, 0.9])
def test_four_of_five_further_steps_lie_in_the_interval(chance: float) -> None:
    draw, inside = random.Random(7), 0
    for _ in range(1000):
        seen = [float(draw.random() < chance) for _ in range(32)]
        found = expect(seen, 16, 0.0, 1.0)
        assert found is not None
        inside += found.low <= fmean(draw.random() < chance for _ in range(16)) <= found.high
    assert 0.74 <= inside / 1000 <= (0.97 if chance > 0.1 else 1.0)  # of so few, shares come in sixteenths


def test_equal_values_leave_room_for_others() -> None:
    found = expect([0.0] * 32, 16, 0.0, 1.0)
    assert found is not None and found.low == 0.0 < found.high < 0.2
    assert expect([0.5], 16) is None


def test_the_share_of_groups_that_differ_is_that_of_all_subsets() -> None:
    tries = [[1.0, 0.0, 0.0, 1.0], [0.0] * 4, [1.0, 1.0, 1.0, 0.0]]
    found = expect_differing(tries)
    for k in (2, 4):
        subsets = [[len(set(one)) > 1 for one in itertools.combinations(values, k)] for values in tries]
        assert found[k] == pytest.approx(fmean(fmean(each) for each in subsets))


def test_beyond_what_was_sampled_it_is_near_the_truth() -> None:
    draw = random.Random(3)
    chances = [draw.betavariate(0.5, 1.5) for _ in range(4000)]
    found = expect_differing([[float(draw.random() < p) for _ in range(8)] for p in chances])
    for k in (16, 32):
        assert found[k] == pytest.approx(fmean(1 - p**k - (1 - p) ** k for p in chances), abs=0.03)
    assert expect_differing([[0.0] * 4] * 9)[64] == 0.0


@pytest.mark.parametrize(
    ("sizes", "cut", "needed"),
    [
        (range(1, 201), [False] * 200, 199),
        ([*range(1, 101), *[100] * 100], [*[False] * 100, *[True] * 100], None),
        ([10] * 5 + [20] * 200, [*[True] * 5, *[False] * 200], 20),
    ],
)
def test_a_budget_that_suffices_is_read_from_those_that_ended_by_themselves(
    sizes: range | list[int], cut: list[bool], needed: int | None
) -> None:
    assert find_needed(list(sizes), cut) == needed


def test_a_forecast_is_an_evaluation_of_the_groups_that_training_begins_with(tmp_path: Path) -> None:
    import rlf

    found = make(tmp_path)
    assert (found.num_groups, found.num_generations, found.num_counted) == (8, 4, 32)
    run = rlf.run(SEARCH, overrides=[*SMALL, "train.steps=2"], runs_folder=tmp_path)
    with open_reader(tmp_path) as reader:
        first = {item.task_id for item in reader.trajectories(run.id)}
        played = [item.task_id for item in reader.trajectories(found.run_id)]
    assert set(played) == first and len(played) == 32
    assert found.success is not None and found.signal is Signal.SOME and not found.causes
    assert found.learns > 0.8 and "learns: held-out success rises" in "".join(show_forecast(found).lines)
    assert make(tmp_path).step_time is None  # of another plan: the run had two steps
    again = make(tmp_path, "train.steps=2")
    assert again.step_time is not None
    assert [step for step, _ in again.came_true["success"]] == [1, 2]
    page = show_forecast(again).page()
    assert page.count("<svg") == 5 and len(show_forecast(again).charts[0].lines) == 2
    assert "<b>f</b> forecast, with 80 % intervals" in page and "<b>r</b> run" in page  # of the letters at their ends
    assert page.count("<h1") == page.count("forecast of search") - 1 == 1  # the title of the page, and its heading


def test_what_cuts_trajectories_is_named_with_what_would_suffice(tmp_path: Path) -> None:
    found = make(tmp_path, "rollout.max_turns=1", groups=16)
    (budget,) = found.budgets
    assert found.learns < 0.5 and found.causes[0].kind is CauseKind.OUT_OF_TURNS
    assert budget.key == "rollout.max_turns" and budget.cut > 0.1 and budget.needed is None
    assert any(line.startswith("rollout.max_turns:") for line in found.advice)


@pytest.mark.parametrize(
    ("rate", "start", "kind"),
    [
        (3e-4, 0.2, None),
        (1e-9, 0.2, Obstacle.LEARNING_RATE_LOW),
        (0.1, 0.2, Obstacle.LEARNING_RATE_HIGH),
        (3e-4, 0.97, Obstacle.SOLVED),
    ],
)
def test_a_rate_that_teaches_nothing_is_named_and_a_good_one_is_not(
    rate: float, start: float, kind: Obstacle | None
) -> None:
    train = check_spec([SEARCH], [f"train.learning_rate={rate}"]).plan.spec.train
    curve = Curve(start, 1.0, 3500 * rate)
    found, learns = find_obstacle(curve, train), expect_learning(curve, Signal.SOME, train, 256, 0.1)
    assert (None if found is None else found.kind) is kind
    assert learns > 0.8 if kind is None else learns < 0.3
    assert expect_learning(curve, Signal.NO_DIFFERENCE, train, 256, 0.1) < 0.05


def test_success_follows_the_replicators_curve_and_a_kind_that_none_solved_stays() -> None:
    curve = Curve(start=0.2, reach=0.8, rise=math.log(3))
    assert curve.at(0) == pytest.approx(0.2)
    assert curve.at(1) == pytest.approx(0.4)  # odds of .2 / .8 are 1 / 3, and three times as high after it: 1 / 2
    assert curve.at(100) == pytest.approx(0.8) and curve.done(1) == pytest.approx(1 / 3)


def test_a_spec_that_teaches_nothing_has_its_cause(tmp_path: Path) -> None:
    found = make(tmp_path, "data.train.answer=kind", groups=16)
    assert found.signal is Signal.NO_DIFFERENCE
    assert [cause.kind for cause in found.causes] == [CauseKind.ANSWER_COLUMN]
    assert any("data.train.answer" in line for line in found.advice)


def test_of_a_run_that_first_imitates_it_cannot_say_what_it_learns_afterwards(tmp_path: Path) -> None:
    found = forecast(
        [ROOT / "specs" / "cold_start.yaml"],
        ["train.prompts_per_step=2", "rollout.num_generations=2", "~data.eval", "~eval"],
        num_groups=2,
        runs_folder=tmp_path,
        command=["rlf"],
        show=lambda shown: None,
    )
    assert not found.causes and found.advice[0].startswith("data.demonstrations: 100 steps imitate before any")


def test_the_command_prints_figures_with_intervals_and_json(tmp_path: Path) -> None:
    def rlf(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(each) for each in arguments])

    overrides = [*SMALL, "--groups", "4", "--runs", str(tmp_path / "runs")]
    shown = rlf("forecast", SEARCH, *overrides)
    assert shown.exit_code == 0 and "A step of 4 groups" in shown.stdout and "80 % interval" in shown.stdout
    data = json.loads(rlf("forecast", SEARCH, *overrides, "--json").stdout.splitlines()[-1])["data"]
    assert data["num_groups"] == 4 and len(data["success"]) == 3
    refused = rlf("forecast", "latest")
    assert refused.exit_code == 2 and "latest: no such file" in refused.stderr


def test_groups_that_were_not_played_are_no_forecast(tmp_path: Path) -> None:
    with pytest.raises(RlfError, match=r"127\.0\.0\.1:9"):
        forecast(
            [SEARCH],
            SMALL,
            num_groups=2,
            endpoint=EndpointSpec(url="http://127.0.0.1:9/v1", model="m"),
            runs_folder=tmp_path,
            command=["rlf"],
            show=lambda shown: None,
        )


@pytest.mark.parametrize(("status", "exit_code"), [(RunStatus.INTERRUPTED, 130), (RunStatus.FAILED, 1)])
def test_a_forecast_that_ends_early_says_why_with_the_exit_code_of_its_end(
    status: RunStatus, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "try_targets", lambda *_, **__: EvaluationResults((), status, {}, "stopped by Ctrl-C"))
    with pytest.raises(RunError, match="not played to their end: stopped by Ctrl-C") as end:
        forecast([SEARCH], SMALL, num_groups=2, runs_folder=tmp_path, command=["rlf"], show=lambda shown: None)
    assert end.value.exit_code == exit_code


@pytest.mark.parametrize("share_lost", [0.02, 0.05, 0.12])
def test_as_many_questions_as_are_named_show_five_points_with_the_power_of_the_exact_test(share_lost: float) -> None:
    num = find_questions(share_lost)
    assert mcnemar_power(num, 0.05 + share_lost, share_lost) == pytest.approx(
        0.8, abs=0.05
    )  # the exact test is conservative
    assert find_questions(share_lost + 0.05) > num


@pytest.mark.parametrize(
    ("asked", "found"),
    [("8xH100", (8, 80)), ("h200", (1, 141)), ("2x24GB", (2, 24)), ("16xl4", (16, 24)), ("4x22.5gb", (4, 22.5))],
)
def test_gpus_are_named_by_number_and_card_or_size(asked: str, found: tuple[int, float]) -> None:
    assert parse_gpus(asked) == (found[0], int(found[1] * 1e9))


@pytest.mark.parametrize("asked", ["8xH10", "x8", "H100x8", "", "8x80", "80GiB", "8x.GB", "8x1.2.3GB"])
def test_other_gpus_are_refused_with_the_known_ones(asked: str) -> None:
    with pytest.raises(RlfError, match=r"--gpus: got .*8xH100.*H200"):
        parse_gpus(asked)


def test_too_few_gpus_and_gpus_too_small_do_not_fit(tmp_path: Path) -> None:
    spec = ROOT / "specs" / "search_openrlhf.yaml"
    found = {asked: expect_gpus([spec], [], asked, tmp_path) for asked in ("1xH200", "8x0.2GB", "2xH200")}
    assert [one.fits for one in found.values()] == [False, False, True]
    assert "the spec asks for 2 GPUs" in gpu_words(found["1xH200"])
    assert "cannot say before a run" in gpu_words(found["2xH200"])


@pytest.mark.parametrize(
    ("curve", "step"),
    [
        ([(0, 0.2), (10, 0.5), (20, 0.6)], 20),
        ([(0, 0.2), (10, 0.57), (20, 0.6)], 10),
        ([(0, 0.2), (10, 0.6), (20, 0.3)], 10),
        ([(0, 0.2), (20, 0.23)], None),
        ([(0, 0.9)], None),
    ],
)
def test_a_run_has_learned_where_it_has_nine_tenths_of_its_gain(curve: list[tuple[int, float]], step: int) -> None:
    assert find_step(curve) == step


def test_steps_are_expected_from_like_runs_and_from_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = check_spec([SEARCH], []).plan
    assert expect_steps(plan, tmp_path) is None
    assert "cannot say" in next(steps_words(None, 40, None))
    rises = {"a": [], "b": ["train.learning_rate=1e-4", "seed=3"], "c": ["train.steps=10"]}
    still, other = {"d": ["seed=4"]}, {"e": ["rollout.num_generations=4"]}
    with open_lineage(tmp_path, create=True) as store:
        for place, (run, changes) in enumerate({**rises, **still, **other}.items()):
            own = json.loads(plan_to_json(check_spec([SEARCH], changes).plan))
            start_run(store, run_record(run, plan=own, folder=str(tmp_path / run)))
            with Recorder(store, run) as recorder:
                for step in (0, 10, 20, 30):
                    success = 0.3 if run in still else 0.9 if step >= 10 * (place + 1) else 0.2
                    recorder(EvaluationFinished(step, "sampled", {"success": success}, []))
                recorder(RunFinished(RunStatus.FINISHED, 30))
    found = expect_steps(plan, tmp_path)
    monkeypatch.setenv("RLF_DB", f"sqlite:///{tmp_path}/rlf.db")
    assert expect_steps(plan, tmp_path / "other") == found
    monkeypatch.setenv("RLF_DB", str(tmp_path / "none.db"))
    assert expect_steps(plan, tmp_path) is None
    assert found is not None and (found.low, found.median, found.high) == (10, 20, 30)
    assert (sorted(found.run_ids), found.num_still) == (["a", "b", "c"], 1)
    assert next(steps_words(found, 10, 60.0)).startswith(
        "steps to expect: 20 (20:00), from 10 to 30, until 3 of 4 runs"
    )


def test_a_filter_that_drops_nearly_every_group_is_named(tmp_path: Path) -> None:
    found = make(tmp_path, "train.dynamic_filtering={low: 0.8, high: 0.9}", groups=16)
    assert found.signal is Signal.NO_GROUPS and found.learns < 0.05
    assert [cause.kind for cause in found.causes] == [CauseKind.FILTERED]
    assert "keeps none of 16 groups" in found.causes[0].seen
    kept = make(tmp_path, "train.dynamic_filtering={low: 0.1, high: 0.9}", groups=16)
    assert kept.signal is Signal.SOME and not kept.causes
