"""Arms, what differs, contrasts and verdicts, on recorded runs and on worked numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rlf.apps.compare.arms import Arm, ArmMember, DifferenceCause, arm_differences, named_by_difference, read_arms
from rlf.apps.compare.comparison import compare_arms, flip_matrix, read_examples
from rlf.apps.compare.outcomes import Basis, contrasts, outcome
from rlf.apps.compare.views import HEADER, comparison_page, comparison_view, csv_text, markdown, sheets
from rlf.core.errors import RlfError
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import (
    EVALUATION,
    SWEEP,
    AcceptedChange,
    Evaluation,
    FileRecord,
    ParentKind,
    Run,
    StepTotals,
    TrainingStep,
)
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import accept_changes
from rlf.reports.pages.chart import ArmCurve, draw, main_curves
from rlf.reports.report import read_report
from rlf.types import EvaluationFinished, RunStatus

from ...reports.rendering import rendered
from ...reports.synthetic import events, run_record
from ...reports.test_judges import EVALUATIONS, STEPS
from ...reports.test_summary import tried

RATES = (3e-4, 3e-5)


def contrast(left: Arm, right: Arm, mode: str) -> Any:
    return contrasts([left, right], mode)[0]


def recorded(seed: int, rate: float) -> Any:
    spec = {"name": "synthetic", "seed": seed, "train": {"learning_rate": rate}}
    record = run_record(f"20260102-0304{seed:02d}-{'fast' if rate == RATES[0] else 'slow'}")
    return replace(
        record,
        seed=seed,
        plan={"spec": spec},
        plan_hash=f"{seed}{rate}",
        parent_id="20260102-030400-swee",
        parent_kind=ParentKind.SWEEP,
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A sweep of two rates and three seeds; the slow rate does not learn."""
    members = [
        {"overrides": [f"train.learning_rate={rate}", f"seed={seed}"], "plan_hash": f"{seed}{rate}"}
        for rate in RATES
        for seed in range(3)
    ]
    sweep = replace(run_record("20260102-030400-swee"), engine=SWEEP, plan={"members": members})
    with open_store(tmp_path_factory.mktemp("sweep") / "rlf.db") as store:
        start_run(store, sweep)
        for rate in RATES:
            for seed in range(3):
                record = recorded(seed, rate)
                start_run(store, record)
                with Recorder(store, record.id) as recorder:
                    for event in events(num_steps=12 if rate == RATES[0] else 4, seed=10 * seed + (rate == RATES[0])):
                        recorder(event)
        yield Reader(store)


def member(successes: dict[str, float | None], *, status: RunStatus = RunStatus.FINISHED, **record: Any) -> ArmMember:
    """A run that was evaluated once, after step 4, with one try at each question."""
    tries = [replace(tried(task, success), step=4) for task, success in successes.items()]
    counted = [value for value in successes.values() if value is not None]
    run = Run(replace(run_record(), **record), status, False, 4, 1.0, None)
    evaluations = [Evaluation(0, "sampled", {"success": 0.0}, 0.0)]
    evaluations.append(Evaluation(4, "sampled", {"success": sum(counted) / len(counted)}, 0.0))
    steps = [TrainingStep(step, {"time/step_s": 2.0, "reward/mean": float(step)}, 0.0) for step in (1, 2, 3, 4)]
    totals = [StepTotals(step, 8, 100, 50, 10) for step in (1, 2, 3, 4)]
    return ArmMember(run, steps, evaluations, totals, (), {("sampled", 4): tries})


def arm(letter: str, *members: ArmMember) -> Arm:
    return Arm(letter, "synthetic", members)


def questions(num_right: int, num_wrong: int) -> dict[str, float | None]:
    return {f"q{number:03d}": float(number < num_right) for number in range(num_right + num_wrong)}


def test_a_sweep_is_an_arm_for_each_setting_with_its_seeds(swept: Reader) -> None:
    arms = read_arms(swept, ["20260102-030400-swee"])
    assert [(arm.letter, arm.label) for arm in arms] == [
        ("A", "train.learning_rate=0.0003"),
        ("B", "train.learning_rate=3e-05"),
    ]
    assert [[member.run.record.seed for member in arm.members] for arm in arms] == [[0, 1, 2], [0, 1, 2]]


def test_more_arms_than_letters_are_named_and_shown(tmp_path: Path) -> None:
    records = [recorded(seed, RATES[0]) for seed in range(28)]
    with open_store(tmp_path / "rlf.db") as store:
        start_run(store, run_record("20260102-030400-swee"))
        for record in records:
            start_run(store, record)
        arms = read_arms(Reader(store), [record.id for record in records])
    assert [arm.letter for arm in arms[25:]] == ["Z", "AA", "AB"]
    assert "\nAB  seed=27  " in rendered(comparison_view(compare_arms(arms)), width=600)


def test_commas_join_the_seeds_of_an_arm(swept: Reader) -> None:
    arms = read_arms(swept, ["20260102-030400-fast,20260102-030401-fast", "20260102-030400-slow"])
    assert [len(arm.members) for arm in arms] == [2, 1]


SPEC = {
    "name": "one",
    "train": {"learning_rate": 0.1},
    "data": {"train": {"path": "/home/one/rows.jsonl"}},
    "rewards": [{"name": "right", "tests": [], "weight": 1.0}],
    "limits": {"max_usd": None},
}
ROWS = FileRecord("data", "/home/one/rows.jsonl", "a" * 64)


def lineage_of(folder: Path, *records: dict[str, Any]) -> Reader:
    """Runs A0, A1, ... of `SPEC`, each with a seed of its own and with these fields changed."""
    store = open_store(folder / "rlf.db")
    for number, changed in enumerate(records):
        spec = {**SPEC, "seed": changed.get("seed", number), **changed.pop("spec", {})}
        fields = {"seed": spec["seed"], "plan": {"spec": spec}, "plan_hash": str(number), "files": (ROWS,)}
        start_run(store, replace(run_record(f"A{number}"), **(fields | changed)))
    return Reader(store)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"spec": {"train": {"learning_rate": 0.2}}}, r"train.learning_rate \(0.1 against 0.2\)"),
        ({"spec": {"rewards": [{"name": "right", "weight": 0.5}]}}, r"rewards.right.weight \(1.0 against 0.5\)"),
        ({"spec": {"env": {"kind": "python"}}}, r"env.kind \(absent against \"python\"\)"),
        ({"files": (replace(ROWS, sha256="b" * 64),)}, r"the content of rows.jsonl"),
        ({"files": (ROWS, FileRecord("reward", "reward.py", "c" * 64))}, r"the content of reward.py"),
        ({"files": (ROWS, FileRecord("model", "model", "c" * 64))}, r"the content of model"),
        ({"seed": 0, "spec": {"train": {"learning_rate": 0.2}}}, "train.learning_rate"),
    ],
)
def test_runs_that_differ_in_more_than_the_seed_are_no_seeds_of_one_arm(
    tmp_path: Path, other: dict[str, Any], what: str
) -> None:
    reader = lineage_of(tmp_path, {}, other, {})
    with pytest.raises(RlfError, match=f"run A1: is no other seed of run A0; they differ in {what}.*a space between"):
        read_arms(reader, ["A0,A1", "A2"])
    assert len(read_arms(reader, ["A0", "A1", "A2"])) == 3
    reader.store.close()


def test_runs_are_seeds_although_names_and_places_differ(tmp_path: Path) -> None:
    moved = FileRecord("data", "/home/two/rows.jsonl", "a" * 64)
    spec = {"data": {"train": {"path": "/home/two/rows.jsonl"}}, "name": "two", "limits": {"max_usd": 3}}
    tests = {"rewards": [{"name": "right", "tests": [{"value": 1}], "weight": 1.0}]}
    reader = lineage_of(tmp_path, {}, {"spec": spec, "files": (moved,), "host": {"cpus": 4}}, {"spec": tests}, {})
    assert [arm.runs for arm in read_arms(reader, ["A0,A1,A2", "A3"])] == [("A0", "A1", "A2"), ("A3",)]
    reader.store.close()


def test_a_key_that_an_older_plan_lacks_and_how_results_are_read_make_no_other_setting(tmp_path: Path) -> None:
    newer = {"success": None, "data": {**SPEC["data"], "eval": {"path": "q.jsonl", "cluster": "document"}}}
    older = {"data": {**SPEC["data"], "eval": {"path": "q.jsonl"}}}
    unset = {"success": None, "data": {**SPEC["data"], "eval": {"path": "q.jsonl", "cluster": None}}}
    reader = lineage_of(tmp_path, {"spec": newer}, {"spec": older}, {"spec": unset})
    assert [arm.runs for arm in read_arms(reader, ["A0,A1,A2"])] == [("A0", "A1", "A2")]
    assert {item.what for item in arm_differences(read_arms(reader, ["A1", "A2"]))} == {"seed"}
    reader.store.close()


def test_an_input_that_was_replaced_on_the_way_is_no_other_seed(tmp_path: Path) -> None:
    reader = lineage_of(tmp_path, {}, {})
    change = AcceptedChange(3, "tool", "tools/search.py", "a" * 64, "b" * 64, None, 0.0)
    accept_changes(reader.store, "A1", [change], {})
    with pytest.raises(RlfError, match=r"they differ in the content of search\.py after step 3"):
        read_arms(reader, ["A0,A1"])
    reader.store.close()


def test_equal_runs_of_an_arm_count_once_and_are_named(tmp_path: Path) -> None:
    reader = lineage_of(tmp_path, {}, {"seed": 0}, {}, {}, {"seed": 0})
    arms = read_arms(reader, ["A0,A1,A4,A2", "A3"])
    assert [(arm.runs, arm.repeats) for arm in arms] == [(("A0", "A2"), ("A1", "A4")), (("A3",), ())]
    words = "Runs A1 and A4 have the plan and the seed of another run of A and do not count."
    assert (
        compare_arms(arms)
        .verdicts[0]
        .endswith(
            f"{words} " + "Run A0 of A is running at step 0. Run A2 of A is running "
            "at step 0. Run A3 of B is running at step 0."
        )
    )
    reader.store.close()


def test_seeds_that_other_code_made_are_joined_and_what_differs_is_said(tmp_path: Path) -> None:
    used = FileRecord("package", "shop-extra", "3.0")
    new = {"packages": {"numpy": "2.0"}, "files": (ROWS, used), "host": {"python": "3.12"}, "code_version": "0.2"}
    old = {"packages": {"numpy": "1.26"}, "files": (ROWS,), "host": {"python": "3.11"}, "code_version": "0.2"}
    reader = lineage_of(tmp_path, old, new, old, old)
    mixed, same = read_arms(reader, ["A0,A1", "A2,A3"])
    assert (mixed.runs, same.list_other_code()) == (("A0", "A1"), [])
    said = compare_arms([same, mixed]).verdicts[0]
    words = "Runs of A differ in numpy 1.26 and 2.0, python 3.11 and 3.12, shop-extra 3.0 and none."
    assert words in said and "Runs of B differ" not in said
    assert words in compare_arms([mixed]).verdicts[0]
    reader.store.close()


def test_evaluations_are_seeds_where_their_models_are_seeds_of_one_setting(tmp_path: Path) -> None:
    def evaluation(parent: str, model: str) -> dict[str, Any]:
        files = (ROWS, FileRecord("model", "model", model * 64))
        return {"seed": 0, "engine": EVALUATION, "parent_id": parent, "parent_kind": "evaluation", "files": files}

    other = {"spec": {"train": {"learning_rate": 0.2}}}
    made = [evaluation("A0", "d"), evaluation("A1", "e"), evaluation("A2", "f"), evaluation("A1", "e")]
    reader = lineage_of(tmp_path, {}, {}, other, *made)
    arms = read_arms(reader, ["A3,A4,A6", "A5"])
    assert [(arm.runs, arm.repeats) for arm in arms] == [(("A3", "A4"), ("A6",)), (("A5",), ())]
    with pytest.raises(RlfError, match=r"run A5: is no other seed of run A3; they differ in train\.learning_rate"):
        read_arms(reader, ["A3,A5", "A4"])
    reader.store.close()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["20260102-030400-fast", "20260102-030400-fast"], "named twice"),
        (["20260102-030400-fast,20260102-030400-swee", "20260102-030401-fast"], "an arm for each setting"),
        (["20260102-030400-fast", ","], "expected a run's id"),
    ],
)
def test_names_that_make_no_arms_are_reported(swept: Reader, names: list[str], words: str) -> None:
    with pytest.raises(RlfError, match=words):
        read_arms(swept, names)


def test_one_arm_is_its_runs_their_mean_and_its_interval() -> None:
    with pytest.raises(RlfError, match="got run 20260102-030405-abcd alone; expected two or more"):
        compare_arms([arm("A", member(questions(4, 6)))])
    found = compare_arms([arm("A", *(member(questions(right, 10 - right)) for right in (4, 5, 6)))])
    # s = 0.1, t(2; 0.975) = 4.3027: 0.5 -+ 4.3027 * 0.1 / sqrt(3)
    assert found.verdicts == ("Mean of 3 seeds, sampled: 50.0 % (25.2–74.8 %).",)
    assert (found.contrasts, found.power, found.differences) == ((), None, ())
    text, markup = markdown(found), comparison_page(found, ())
    assert all(
        f"| A | 0 | 20260102-030405-abcd | finished | 4 | 0.0 % | {rate} |" in text for rate in ("40.0 %", "60.0 %")
    )
    assert "Mean of 3 seeds" in markup and "<svg" in markup and "Mean of 3 seeds" in rendered(comparison_view(found))


def test_the_mean_of_seeds_is_of_the_questions_that_all_of_them_scored() -> None:
    # one seed lost its hard questions to an outage: of the 24 that it has, the others solve 22 and 23
    sides = [cut_off(64, right=22), cut_off(64, right=23), cut_off(24, right=23)]
    found = outcome(arm("A", *map(member, sides)), "sampled", 0.9).final
    assert found is not None and found.value == pytest.approx((22 + 23 + 23) / 72)


def test_only_what_differs_is_reported_and_seeds_of_many_runs_do_not_differ(swept: Reader) -> None:
    arms = read_arms(swept, ["20260102-030400-swee"])
    assert [(item.cause, item.what, item.values) for item in arm_differences(arms)] == [
        (DifferenceCause.PLAN, "train.learning_rate", ("0.0003", "3e-05"))
    ]
    single = read_arms(swept, ["20260102-030400-fast", "20260102-030401-fast"])
    assert [(item.what, item.values) for item in arm_differences(single)] == [("seed", ("0", "1"))]


def test_files_packages_code_and_machine_are_causes_and_tools_are_reported_by_name() -> None:
    file = FileRecord("tool", "tools/look.py", "a" * 64)
    tool = {"name": "look", "limits": {"timeout_s": 2}}
    left = member(questions(1, 1), plan={"spec": {"tools": [tool]}}, files=(file,), packages={"torch": "2.13.0"})
    changed = {
        "plan": {"spec": {"tools": [{"name": "more"}, tool | {"limits": {"timeout_s": 3}}]}},
        "files": (replace(file, sha256="b" * 64),),
        "packages": {"torch": "2.14.0"},
        "host": {"device": "cuda"},
        "code_version": "0.2.0",
    }
    found = arm_differences([arm("A", left), arm("B", member(questions(1, 1), **changed))])
    assert [(item.cause, item.what) for item in found] == [
        (DifferenceCause.PLAN, "tools.look.limits.timeout_s"),
        (DifferenceCause.FILE, "tools/look.py"),
        (DifferenceCause.CODE, "rlf"),
        (DifferenceCause.PACKAGE, "torch"),
        (DifferenceCause.MACHINE, "device"),
        (DifferenceCause.PLAN, "tools.more"),
    ]


def test_one_run_a_side_is_contrasted_question_by_question() -> None:
    # 40 questions: 10 right on both sides, 20 gained, 2 lost, 8 wrong on both: (20 - 2) / 40 = 0.45
    left = {f"q{n:03d}": float(n < 12) for n in range(40)}
    right = {f"q{n:03d}": float(2 <= n < 32) for n in range(40)}
    found = contrast(arm("A", member(left)), arm("B", member(right)), "sampled")
    assert found is not None
    assert (found.basis, found.num_questions, found.num_gained, found.num_lost) == (Basis.QUESTIONS, 40, 20, 2)
    assert found.difference == pytest.approx(0.45)
    assert found.p == pytest.approx(2 * (1 + 22 + 231) / 2**22)  # 2 (C(22,0) + C(22,1) + C(22,2)) / 2^22
    assert found.interval is not None and found.interval.low < 0.45 < found.interval.high


def test_several_seeds_on_both_sides_are_contrasted_over_runs_and_questions() -> None:
    left = arm("A", *(member(questions(right, 10 - right)) for right in (4, 5, 6)))
    right = arm("B", *(member(questions(right, 10 - right)) for right in (8, 9, 10)))
    found = contrast(left, right, "sampled")
    assert found is not None
    assert found.basis is Basis.SEEDS and found.difference == pytest.approx(0.4)
    # over the runs alone: means 0.5 and 0.9, both variances 0.01, t = 0.4 / sqrt(0.02 / 3) with 4 degrees: p = 0.008049
    assert 0.008049 < found.p < 0.05 and found.shown
    assert 0 < found.interval.low < 0.4 - 2.776445 * (0.02 / 3) ** 0.5


def test_different_questions_are_not_contrasted() -> None:
    left, right = questions(5, 5), {f"other{n}": 1.0 for n in range(10)}
    found = compare_arms([arm("A", member(left)), arm("B", member(right))])
    assert found.contrasts[0] is not None
    assert (found.contrasts[0].basis, found.contrasts[0].flips) == (Basis.UNPAIRED, ())
    assert found.verdicts[0].startswith("B cannot be called better or worse than A: no question was scored")
    assert found.contrasts[0].interval is found.contrasts[0].p is None


def cut_off(scored: int, *, right: int) -> dict[str, float | None]:
    """Sixty-four questions of which an outage left the first few; the easy ones come first."""
    return {f"q{n:03d}": float(n < right) if n < scored else None for n in range(64)}


def test_seeds_are_compared_on_the_questions_that_every_run_scored() -> None:
    # an outage left 24, 25 and 26 of 64 questions, all easy; on those 24 the sides differ by one or two answers
    healthy = [cut_off(64, right=right) for right in (22, 23, 23)]
    cut = [cut_off(scored, right=right) for scored, right in ((24, 23), (25, 24), (26, 24))]
    arms = [arm(name, *map(member, side)) for name, side in (("A", healthy), ("B", cut))]
    found = contrast(*arms, "sampled")
    # of 24: 22, 23 and 23 against 23, 24 and 24 right
    assert found.basis is Basis.SEEDS
    assert found.difference == pytest.approx((23 + 24 + 24) / 72 - (22 + 23 + 23) / 72)
    assert (found.num_questions, found.num_not_shared) == (24, 40)
    said = compare_arms(arms).verdicts[0]
    assert "better" not in said
    assert "40 further questions were not scored in all runs and do not count (some run of A lacks 0, of B 40)." in said
    (row,) = [row for row in sheets(compare_arms(arms)).results[0].rows if row[0] == "A and B on 24 shared"]
    assert [cell.split()[0] for cell in row[1:]] == ["94.4", "98.6"]


@pytest.mark.parametrize("num_runs", [1, 2])
def test_sides_that_share_no_question_are_called_neither_better_nor_worse(num_runs: int) -> None:
    easy = [{f"easy{n}": float(n > seed) for n in range(30)} for seed in range(num_runs)]
    hard = [{f"hard{n}": float(n < seed) for n in range(30)} for seed in range(num_runs)]
    arms = [arm("A", *map(member, hard)), arm("B", *map(member, easy))]
    found = compare_arms(arms)
    assert found.contrasts[0] is not None and found.contrasts[0].basis is Basis.UNPAIRED
    assert not found.contrasts[0].shown and found.power is None
    said = found.verdicts[0]
    assert said.startswith("B cannot be called better or worse than A: no question was scored in every run ")
    assert f"{'96.7' if num_runs == 1 else '95.0'} % of the questions of B came out right" in said
    assert " is better " not in said and rendered(comparison_view(found)) and comparison_page(found, ())


def test_an_unscorable_question_is_left_out_of_the_pairs() -> None:
    left = questions(2, 2)
    found = contrast(arm("A", member(left)), arm("B", member(left | {"q003": None})), "sampled")
    assert found is not None
    assert (found.num_questions, found.difference) == (3, 0.0)


def test_what_it_took_to_reach_a_threshold_is_added_up_to_that_evaluation() -> None:
    found = outcome(arm("A", member(questions(9, 1))), "sampled", threshold=0.9)
    assert found.reached is not None
    assert (found.reached.step, found.reached.tokens, found.reached.tool_calls, found.reached.wall_s) == (4, 400, 40, 8)
    assert outcome(arm("A", member(questions(8, 2))), "sampled", threshold=0.9).reached is None


def test_metrics_are_of_the_last_tenth_of_the_steps() -> None:
    assert outcome(arm("A", member(questions(1, 1))), "sampled", 0.9).metrics["reward/mean"] == 4.0


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (questions(32, 8), "B is better than A by 50.0 points (95 % CI "),
        (
            questions(12, 28),
            "B and A agree on each of 40 questions (95 % CI -9.0 to 9.0 points); nothing that the lineage",
        ),
        (questions(13, 27), "No difference between B and A is shown (+2.5 points, "),
        (questions(2, 38), "B is worse than A by 25.0 points (95 % CI "),
    ],
)
def test_the_verdict_says_what_can_be_said(right: dict[str, float | None], words: str) -> None:
    found = compare_arms([arm("A", member(questions(12, 28))), arm("B", member(right))])
    assert words in found.verdicts[0]
    assert "other seeds may give another result" in found.verdicts[0]


def verdict_of(left: list[dict[str, float | None]], right: list[dict[str, float | None]]) -> str:
    arms = [arm(name, *map(member, side)) for name, side in (("A", left), ("B", right))]
    return compare_arms(arms).verdicts[0]


def test_one_question_has_no_interval() -> None:
    assert verdict_of([{"q": 0.0}], [{"q": 1.0}]).startswith("B is above A by 100.0 points; one question is too few")
    assert verdict_of([{"q": 1.0}], [{"q": 1.0}]).startswith("B and A have the same result; one question is too few")


def test_seeds_that_all_came_out_alike_are_reported_question_by_question() -> None:
    said = verdict_of([questions(5, 15)] * 2, [questions(15, 5)] * 2)
    assert said.startswith("B is better than A by 50.0 points (95 % CI ")
    assert (
        ", n = 20, p = " in said and "With seeds that all gave the same result this holds for these models only" in said
    )


def test_questions_that_only_one_side_was_asked_do_not_count_and_are_reported() -> None:
    said = verdict_of([questions(5, 5)], [dict(list(questions(5, 5).items())[:6])])
    assert said.startswith("B and A agree on each of 6 questions (95 % CI -43.4 to 43.4 points);")
    assert "4 further questions were not scored in all runs and do not count (some run of A lacks 0, of B 4)." in said


def test_samples_that_differ_where_the_first_ones_agree_are_no_agreement() -> None:
    left, right = member(questions(2, 2)), member(questions(2, 2))
    further = [tried(f"q{n:03d}", float(n > 2), sample=1) for n in range(4)]
    right = replace(right, tries={("sampled", 4): (*right.tries["sampled", 4], *further)})
    assert (
        compare_arms([arm("A", left), arm("B", right)]).verdicts[0].startswith("No difference between B and A is shown")
    )


@pytest.mark.parametrize("right", [{"a": 2.0, "b": 0.25}, {"a": 1.0, "b": -0.5}])
def test_a_success_outside_0_and_1_is_not_clipped_and_not_compared(right: dict[str, float | None]) -> None:
    arms = [arm("A", member({"a": 1.0, "b": 0.5})), arm("B", member(right))]
    assert contrast(arms[0], arms[1], "sampled") is None
    found = compare_arms(arms)
    assert found.verdicts[0].startswith(
        "B cannot be compared with A: success must lie within 0 to 1, and run 20260102-030405-abcd has successes from "
    )
    assert rendered(comparison_view(found)) and markdown(found)


def test_the_verdict_names_what_differs_and_what_has_not_finished() -> None:
    left = member(questions(5, 35), plan={"spec": {"train": {"beta": 0.0}}})
    right = member(questions(35, 5), plan={"spec": {"train": {"beta": 0.1}}}, status=RunStatus.INTERRUPTED)
    verdict = compare_arms([arm("A", left), arm("B", right)]).verdicts[0]
    assert "they differ in the plan's train.beta only." in verdict
    assert verdict.endswith("Run 20260102-030405-abcd of B is interrupted at step 4.")


def evaluated(*steps: int, status: RunStatus = RunStatus.FINISHED) -> ArmMember:
    """A run that was evaluated after these steps, and solves all of eight questions once it is trained."""
    tries = {
        ("sampled", step): [replace(tried(task, float(step > 0)), step=step) for task in questions(8, 0)]
        for step in steps
    }
    evaluations = [Evaluation(step, "sampled", {"success": float(step > 0)}, 0.0) for step in steps]
    return replace(member(questions(8, 0), status=status), evaluations=evaluations, tries=tries)


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        # interrupted before it learnt anything: 100 points between an untrained and a trained model
        ((0,), (0, 4), "This is after step 0, the newest that both were evaluated at, which is before any training."),
        ((0, 4), (0, 4, 8), "This is after step 4, the newest that both were evaluated at."),
        ((0, 3), (0, 4), "This is after step 0, "),
        (
            (0,),
            (4,),
            "B cannot be compared with A: they share no evaluation after as many steps (0 against 4;",
        ),
    ],
)
def test_runs_are_compared_after_as_many_steps_of_training(
    left: tuple[int, ...], right: tuple[int, ...], said: str
) -> None:
    arms = [arm("A", evaluated(*left, status=RunStatus.INTERRUPTED)), arm("B", evaluated(*right))]
    found = compare_arms(arms)
    assert said in found.verdicts[0] and "better" not in found.verdicts[0]
    contrast = found.contrasts[0]
    assert contrast is None or (contrast.difference, contrast.step) == (0.0, max({*left} & {*right}))
    assert rendered(comparison_view(found)) and comparison_page(found, ()) and markdown(found)


def test_nothing_is_claimed_of_a_run_that_is_running() -> None:
    running = member(questions(40, 0), status=RunStatus.RUNNING)
    found = compare_arms([arm("A", member(questions(0, 40))), arm("B", running)])
    assert found.contrasts[0] is not None and found.contrasts[0].basis is Basis.RUNNING
    assert (found.contrasts[0].interval, found.contrasts[0].p, found.contrasts[0].shown) == (None, None, False)
    said = "Of B against A no claim is made yet: a run is running (+100.0 points so far, n = 40)"
    assert found.verdicts[0].startswith(said)
    assert rendered(comparison_view(found)) and comparison_page(found, ()) and markdown(found)


def test_a_run_that_ended_early_is_claimed_to_differ_by_what_holds_at_each_of_its_looks() -> None:
    sides = [questions(0, 40), questions(9, 31)]  # 9 gained of 40, none lost: p = 2 / 2^9 = 0.0039
    whole, ended = (
        compare_arms([arm("A", member(sides[0])), arm("B", member(sides[1], status=status))])
        for status in (RunStatus.FINISHED, RunStatus.FAILED)
    )
    contrasts = [found.contrasts[0] for found in (whole, ended)]
    assert contrasts[0] is not None and contrasts[1] is not None
    assert contrasts[0].p == pytest.approx(2**-8) and (contrasts[0].num_looks, contrasts[1].num_looks) == (0, 2)
    assert contrasts[1].p == pytest.approx(2 * 3 * 2**-8)  # at the second look, k (k + 1) times
    assert contrasts[1].interval is not None and contrasts[0].interval is not None
    assert contrasts[1].interval.low < contrasts[0].interval.low
    assert (
        "p = 0.023 at 2 looks" in ended.verdicts[0]
        and "which may have been ended for what it showed" in ended.verdicts[0]
    )


def test_questions_of_few_documents_count_as_these() -> None:
    # eight documents of ten questions: all of one are gained, or none
    left, right = questions(0, 80), questions(60, 20)
    clusters = {task: f"doc{place // 10}" for place, task in enumerate(left)}
    alone, together = (
        compare_arms([arm("A", member(left)), arm("B", replace(member(right), clusters=named))])
        for named in ({}, clusters)
    )
    contrasts = [found.contrasts[0] for found in (alone, together)]
    assert contrasts[0] is not None and contrasts[1] is not None
    assert contrasts[0].shown and contrasts[0].num_clusters is None
    assert not contrasts[1].shown and contrasts[1].num_clusters == 8
    assert ", 8 clusters, p = " in together.verdicts[0]
    final = together.outcomes[1].final
    assert final is not None and final.interval is not None and alone.outcomes[1].final is not None
    assert alone.outcomes[1].final.interval is not None and final.interval.low < alone.outcomes[1].final.interval.low


def test_a_column_of_clusters_is_recorded_with_the_questions_and_read_by_a_comparison(tmp_path: Path) -> None:
    with open_store(tmp_path / "rlf.db") as store:
        for name, column in (
            ("20260102-030405-aaaa", "document"),
            ("20260102-030405-bbbb", "document"),
            ("20260102-030405-cccc", None),
        ):
            spec = {"name": "synthetic", "seed": 0, "data": {"eval": {"path": "q.jsonl", "cluster": column}}}
            start_run(store, replace(run_record(name), plan={"spec": spec}, plan_hash=name))
            with Recorder(store, name) as recorder:
                for event in events(num_steps=4):
                    recorder(in_documents(event) if column else event)
        reader = Reader(store)
        arms = read_arms(reader, ["20260102-030405-aaaa", "20260102-030405-bbbb"])
        assert {*arms[0].members[0].clusters.values()} == {f"doc{number}" for number in range(5)}
        found = compare_arms(arms).contrasts[0]
        assert found is not None and found.num_clusters == 5 and found.num_questions == 30
        assert read_report(reader, "20260102-030405-aaaa").verdict.reason.count("5 clusters") == 1
        assert reader.clusters(reader.get_run("20260102-030405-cccc"), "sampled") == {}


def in_documents(event: Any) -> Any:
    """The event, its questions in five documents."""
    if not isinstance(event, EvaluationFinished):
        return event
    tried = [
        replace(one, trajectory=replace(one.trajectory, task=replace(one.trajectory.task, cluster=f"doc{place % 5}")))
        for place, one in enumerate(event.trajectories)
    ]
    return replace(event, trajectories=tried)


def test_last_evaluations_after_other_steps_are_compared_when_asked_for() -> None:
    verdict = compare_arms([arm("A", evaluated(0)), arm("B", evaluated(0, 4))], at_ends=True).verdicts[0]
    assert verdict.startswith("B is better than A by 100.0 points")
    assert "They were last evaluated after different numbers of steps: 0 against 4." in verdict


def test_arms_are_read_with_the_tries_of_the_step_that_they_share(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]))  # 12 steps and 4
    contrast = found.contrasts[0]
    assert contrast is not None and (contrast.step, contrast.num_questions) == (4, 30)
    assert {(flip.left.step, flip.right.step) for flip in contrast.flips} == {(4, 4)}
    assert sum(one.gained[1] for one in flip_matrix(found, ())) == contrast.num_gained


def test_nothing_is_said_of_runs_that_share_no_evaluation() -> None:
    bare = replace(member(questions(1, 1)), evaluations=(), tries={})
    found = compare_arms([arm("A", member(questions(1, 1))), arm("B", bare)])
    assert found.mode is None
    assert found.verdicts[0].startswith("B cannot be compared with A: they share no evaluation.")
    assert "held-out" not in " ".join(sheet.title for sheet in sheets(found).results)


def test_a_mode_that_is_not_shared_is_refused() -> None:
    with pytest.raises(RlfError, match="the runs share sampled"):
        compare_arms([arm("A", member(questions(1, 1))), arm("B", member(questions(1, 1)))], mode="greedy")


def test_every_form_of_the_report_holds_the_same_figures(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-swee"]))
    examples = read_examples(swept, found, 2)
    shown = rendered(comparison_view(found, examples, 1), width=160)
    assert found.verdicts[0] in " ".join(shown.split())
    figure = next(row for sheet in sheets(found).results for row in sheet.rows if row[0] == "at the end")[1]
    assert figure in shown and figure in markdown(found)
    made = comparison_page(found, examples)
    assert unescape(made).count(found.verdicts[0]) == 1 and figure in made
    assert made.count('<details class="flip"') == len(examples) == 2


def test_verdicts_come_first_and_what_the_arms_are_made_of_last(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]), at_ends=True)
    examples = read_examples(swept, found, 9)
    shown = rendered(comparison_view(found, examples, 1), width=160)
    for text in (" ".join(shown.split()), unescape(comparison_page(found, examples)), markdown(found)):
        order = [found.verdicts[0], "at the end", "sampled tokens", "what differs", "20260102-030400-slow"]
        places = [text.rindex(words) for words in order]
        assert places == sorted(places)


def test_figures_are_aligned_at_the_right(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]), at_ends=True)
    lines = rendered(comparison_view(found), width=160).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("training"))
    rows = lines[start + 1 : start + 6]
    assert len({len(row) for row in rows}) == 1  # the last column ends at one place
    assert '<td class="figure">' in comparison_page(found, ())
    assert "| ---: |" in markdown(found)


def test_arms_are_named_by_what_differs_between_them(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]), at_ends=True)
    assert [arm.label for arm in found.arms] == ["learning_rate=0.0003", "learning_rate=3e-05"]
    title = "A learning_rate=0.0003 against B learning_rate=3e-05"
    assert f"<title>{title}</title>" in comparison_page(found, ())
    assert rendered(comparison_view(found), width=160).startswith(title)
    seeds = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030401-fast"]))
    assert [arm.label for arm in seeds.arms] == ["seed=0", "seed=1"]


def test_names_hold_a_tool_that_one_arm_lacks_and_versions_only_where_keys_do_not_differ() -> None:
    spec = {"tools": [{"name": "look"}], "a": {"steps": 1}, "b": {"steps": 2}}
    changed = {"tools": [{"name": "look"}, {"name": "more", "cache": None}], "a": {"steps": 3}, "b": {"steps": 4}}
    left = member(questions(1, 1), plan={"spec": spec}, packages={"torch": "2.13.0"})
    right = member(questions(1, 1), plan={"spec": changed}, packages={"torch": "2.14.0"})
    found = named_by_difference([arm("A", left), arm("B", right)])
    assert [one.label for one in found] == [
        "a.steps=1 · b.steps=2 · no tool more",
        "a.steps=3 · b.steps=4 · tool more",
    ]
    same = named_by_difference([arm("A", left), arm("B", member(questions(1, 1), plan={"spec": spec}))])
    assert [one.label for one in same] == ["torch 2.13.0", "torch absent"]


def test_flips_are_a_matrix_by_question_and_kind_with_the_first_turn_that_differs(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]), at_ends=True)
    examples = read_examples(swept, found, 99)
    kinds = flip_matrix(found, examples)
    assert sum(len(one.rows) for one in kinds) == 30
    contrast = found.contrasts[0]
    assert contrast is not None
    assert sum(one.gained[1] for one in kinds) == contrast.num_gained
    assert sum(one.lost[1] for one in kinds) == contrast.num_lost == len(examples) - contrast.num_gained
    flipped = [row for one in kinds for row in one.rows if row.flipped]
    assert {row.turns[1] for row in flipped} == {1}  # the one side calls a tool in its first turn, the other answers
    assert {row.turns[1] for one in kinds for row in one.rows if not row.flipped} == {None}
    made = comparison_page(found, examples)
    assert made.count("●") + made.count("○") == 2 * 30 + 2  # and the legend
    assert f'href="#B-{flipped[0].task_id}"' in made and f'id="B-{flipped[0].task_id}"' in made
    shown = rendered(comparison_view(found, examples), width=160)
    assert "questions with different outcomes" in shown and f"turn 1: {kinds[0].first_turns[1][1]}" in shown


def test_the_page_shows_what_the_policies_saw_before_the_question(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030400-slow"]), at_ends=True)
    openings = dict.fromkeys("AB", lambda _: "Tools: search, calculator")
    examples = read_examples(swept, found, 1)
    assert "Tools: search, calculator" in comparison_page(found, examples, openings)
    assert rendered(comparison_view(found, examples, 1, openings), width=160).count("Tools: search, calculator") == 2


def test_curves_of_an_evaluation_have_a_band_over_questions_or_over_seeds(swept: Reader) -> None:
    arms = read_arms(swept, ["20260102-030400-fast,20260102-030401-fast", "20260102-030400-slow"])
    courses = [
        ArmCurve(arm.letter, [m.steps for m in arm.members], [m.evaluations for m in arm.members]) for arm in arms
    ]
    drawn = list(map(draw, main_curves(courses)))
    assert [one.title for one in drawn][:3] == ["held-out success, sampled", "held-out success, greedy", "reward"]
    assert all(line.band for line in drawn[0].lines)
    reward = drawn[2].lines
    assert reward[0].band and not reward[1].band


def test_the_page_is_one_file_and_keeps_what_a_model_wrote_as_text(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-swee"]))
    hostile = replace(found, verdicts=("</script><script>alert(1)</script>\x1b[31m",))
    made = comparison_page(hostile, read_examples(swept, found, 2))
    assert "<script>alert" not in made
    assert not re.findall(r"""(?:src|href)=["'](?!#)|url\(|@import|https?://""", made)


def test_csv_has_every_point_of_every_run(swept: Reader) -> None:
    found = compare_arms(read_arms(swept, ["20260102-030400-fast", "20260102-030401-fast"]))
    header, *rows = csv.reader(io.StringIO(csv_text(found.arms)))
    assert tuple(header) == HEADER
    counted = [row for row in rows if row[5] == "success"]
    assert len(counted) == 2 * (12 + 4 + 4)  # 12 steps and 4 evaluations in each of two modes
    assert {row[3] for row in counted} == {"train", "sampled", "greedy"}


def test_the_command_compares_and_writes_the_page(swept: Reader, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from rlf.cli.main import app

    folder = Path(swept.store.place).parent
    file = tmp_path / "report.html"
    names = ["20260102-030400-fast", "20260102-030400-slow"]
    figures = tmp_path / "new" / "figures"
    places = ["--runs", str(folder), "--html", str(file), "--figures", str(figures)]
    done = CliRunner().invoke(app, ["runs", "compare", *names, *places, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["data"]
    assert told["differences"][0]["what"] == "train.learning_rate"
    assert told["contrasts"][0]["num_gained"] + told["contrasts"][0]["num_lost"] == len(told["contrasts"][0]["flips"])
    assert file.read_text().startswith("<!doctype html>")
    drawn = ElementTree.parse(figures / "held-out-sampled.svg").getroot()
    assert {"A", "B", "held-out success, sampled"} <= {text.text for text in drawn.findall(".//{*}text")}
    assert (figures / "reward-mean.svg").is_file()


def test_metrics_of_terms_outcomes_and_stops_are_named_in_words() -> None:
    metrics = {
        "rewards/right/mean": 0.5,
        "rewards/judge/cost_usd": 0.1,
        "tools/outcome/tool_error": 2.0,
        "stop/max_turns": 0.25,
    }
    arms = [arm(letter, member(questions(2, 2))) for letter in "AB"]
    found = compare_arms(arms)
    outcomes = tuple(replace(item, metrics=metrics) for item in found.outcomes)
    labels = [
        row[0]
        for sheet in sheets(replace(found, outcomes=outcomes)).results
        if sheet.title == "training"
        for row in sheet.rows
    ]
    assert labels == [
        "reward right, mean",
        "reward judge, cost, US dollars",
        "calls that ended as tool error",
        "trajectories that stopped for max turns",
    ]


def test_arms_are_compared_by_what_their_judges_took_in_the_mean_run() -> None:
    judged = replace(member(questions(2, 2)), steps=STEPS, evaluations=EVALUATIONS)
    cheaper = replace(judged, evaluations=[])
    found = compare_arms([arm("A", judged, cheaper), arm("B", member(questions(2, 2)))])
    (sheet,) = [sheet for sheet in sheets(found).results if sheet.title == "judges"]
    assert sheet.rows == (("good: tokens", "900", "–"), ("good: cost", "$1.750", "–"))
