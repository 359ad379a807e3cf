"""Before and after on held-out questions, read from the lineage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlf.apps.look.tables import render_overviews, report_view, shown_columns
from rlf.lineage.reader import Reader
from rlf.lineage.records import Evaluation, TrajectorySummary
from rlf.reports.overview import read_overviews
from rlf.reports.report import read_report
from rlf.reports.statistics import wilson_interval
from rlf.reports.success import interval_of, kinds_of, success_words
from rlf.reports.summary import (
    EvaluationChange,
    EvaluationTries,
    Summary,
    flips,
    gained_pair,
    kind_interval,
    read_changes,
    read_summary,
    summary_view,
)
from rlf.types import StopReason

from .rendering import rendered
from .synthetic import run_record

RUN = run_record().id


def tried(
    task_id: str, success: float | None, *, sample: int = 0, turns: int = 1, kind: str = "single"
) -> TrajectorySummary:
    return TrajectorySummary(
        step=0,
        phase="sampled",
        k=0,
        trajectory_id=task_id,
        task_id=task_id,
        sample_index=sample,
        kind=kind,
        stop=StopReason.ANSWERED,
        error=None,
        answer=None,
        gold=None,
        reward=success,
        success=success,
        advantage=None,
        num_tokens=0,
        num_sampled=0,
        num_turns=turns,
        num_calls=0,
        duration_s=0.0,
    )


def change(before: list[TrajectorySummary], after: list[TrajectorySummary]) -> EvaluationChange:
    trials = [EvaluationTries(Evaluation(0, "sampled", {}, 0.0), tuple(tries)) for tries in (before, after)]
    return EvaluationChange("sampled", *trials)


def test_flips_pair_the_same_question() -> None:
    before = [tried("a", 0.0), tried("b", 0.0), tried("c", 1.0), tried("only before", 1.0)]
    after = [tried("c", 0.0), tried("b", 1.0), tried("a", 1.0)]
    assert flips(change(before, after)) == (2, 1)


def test_further_samples_of_a_question_do_not_count_as_further_questions() -> None:
    before = [tried("a", 0.0), tried("a", 1.0, sample=1)]
    after = [tried("a", 1.0), tried("a", 1.0, sample=1)]
    assert flips(change(before, after)) == (1, 0)


def test_an_unscorable_try_is_left_out_of_the_pairs() -> None:
    assert flips(change([tried("a", None), tried("b", 0.0)], [tried("a", 1.0), tried("b", 1.0)])) == (1, 0)


def test_graded_success_has_no_flips() -> None:
    assert flips(change([tried("a", 0.4)], [tried("a", 1.0)])) is None
    assert flips(EvaluationChange("sampled", change([], []).before, None)) is None


def test_the_example_is_the_gained_question_with_most_turns() -> None:
    before = [tried("a", 0.0), tried("b", 0.0), tried("c", 1.0, turns=9)]
    after = [tried("a", 1.0, turns=2), tried("b", 1.0, turns=3), tried("c", 1.0, turns=9)]
    pair = gained_pair([change(before, after)])
    assert pair is not None
    assert pair.after.task_id == "b"
    assert gained_pair([change(before, before)]) is None


def test_a_kind_has_an_interval_when_its_questions_were_tried_once() -> None:
    once = change([tried("a", 0.0), tried("b", 1.0)], []).before
    assert kind_interval(once, "single") == wilson_interval(1, 2)
    assert kind_interval(once, "two_hop") is None
    assert kind_interval(change([tried("a", 0.0), tried("a", 1.0, sample=1)], []).before, "single") is None


def test_the_interval_is_no_kind() -> None:
    metrics = {"success": 0.61, "success/low": 0.549, "success/high": 0.668, "success/two_hop": 0.5}
    assert kinds_of(metrics) == {"two_hop": 0.5}
    assert interval_of(metrics) == (0.549, 0.668)
    assert success_words(metrics) == "61.0 % (54.9–66.8 %)"
    assert success_words({"success": 0.61}) == "61.0 %"


def test_changes_are_read_from_first_to_last_evaluation_sampled_first(reader: Reader) -> None:
    found = read_changes(reader, RUN)
    assert [item.mode for item in found] == ["sampled", "greedy"]
    sampled = found[0]
    assert sampled.after is not None
    assert (sampled.before.evaluation.step, sampled.after.evaluation.step) == (0, 12)
    assert len(sampled.before.tries) == len(sampled.after.tries) == 30


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_tells_before_after_and_one_question_twice(reader: Reader, width: int) -> None:
    text = rendered(summary_view(read_summary(reader, RUN)), width)
    assert "before (step 0)" in text
    assert "after (step 12)" in text
    said = " ".join(text.split())
    assert "sampled, n = 30 3.3 % (0.6–16.7 %) 93.3 % (78.7–98.2 %) +90.0 points" in said
    assert said.startswith("sampled: success rose by 90.0 points (97.5 % CI ")
    assert "n = 30, 27 gained, 0 lost, p < 0.0001 by Holm over 2 modes)" in said
    assert text.index("Zuller<|im_end|>") < text.index("Fenpus<|im_end|>")
    assert f"rlf runs show {RUN} --phase sampled --step 12 --trajectory 0" in text
    for kind in ("parallel", "single", "two_hop"):
        assert f"\u2003{kind} " in text


def test_the_commands_of_the_example_show_what_was_shown(reader: Reader) -> None:
    example = read_summary(reader, RUN).example
    assert example is not None
    assert (example.before.scored.success, example.after.scored.success) == (0.0, 1.0)
    assert example.before.summary.task_id == example.after.summary.task_id


def test_one_evaluation_alone_has_no_after(reader: Reader) -> None:
    found = tuple(replace(item, after=None) for item in read_changes(reader, RUN))
    text = rendered(summary_view(Summary(RUN, found, None)))
    assert "3.3 % (0.6–16.7 %)  –" in " ".join(text.split("   "))
    assert "success rose" not in text and "no change is shown" not in text


def test_a_run_without_evaluation_says_so() -> None:
    assert rendered(summary_view(Summary(RUN, (), None))) == "no evaluation yet"


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_tells_origin_course_tools_and_evaluations(reader: Reader, width: int) -> None:
    text = rendered(report_view(read_report(reader, RUN)), width)
    assert "finished at step 12" in text
    assert "rlf run specs/synthetic.yaml" in text
    assert "the group of one question is dead" in text
    assert "checkpoint  step 12" in text
    assert "ok 143 · tool_error 24" in text
    assert "held-out success" in text


def test_a_report_begins_with_its_result_and_ends_with_what_it_was_made_from(reader: Reader) -> None:
    text = rendered(report_view(read_report(reader, RUN)), 120)
    lines = text.splitlines()
    assert lines[1].startswith("finished at step 12")
    assert lines[2].startswith("verdict: learned: sampled: success rose by 90.0 points")
    left_out = "Holm over 2 modes); training left out 12 of 24 rollouts (the sampler 12)"
    assert [line.split(":")[0] for line in lines[3:5]] == [left_out, "greedy"]
    order = ["held-out success", "checkpoint", "outcomes", "one held-out question", "command", "made from"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert lines[-1].endswith(f"0 files: rlf runs show {RUN} --lineage")


def test_the_example_shows_the_system_text_and_the_tools_that_the_policy_saw(reader: Reader) -> None:
    text = rendered(summary_view(read_summary(reader, RUN), opening=lambda _: "Tools: search, calculator"))
    assert text.count("system      ┊ Tools: search, calculator") == 2


def test_an_overview_has_one_line_per_run(reader: Reader) -> None:
    overviews = read_overviews(reader)
    lines = rendered(render_overviews(overviews, dict.fromkeys(shown_columns(overviews, None)))).splitlines()
    assert len(lines) == 2
    assert RUN in lines[1]
    assert "finished" in lines[1]
    assert "93.3 %" in lines[1]


def test_an_overview_names_evaluations_where_there_are_some(reader: Reader) -> None:
    overviews = read_overviews(reader)
    assert "engine" not in shown_columns(overviews, None)
    overviews.append(replace(overviews[0], engine="evaluation"))
    lines = rendered(render_overviews(overviews, dict.fromkeys(shown_columns(overviews, None))), 120).splitlines()
    assert "engine" in lines[0] and "evaluation" in lines[2] and "evaluation" not in lines[1]
