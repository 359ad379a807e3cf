"""The verdict on a run is what its evaluations show, or that no step held a signal."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rlf.lineage.records import LeftOut, LoggedEvent, Run, TrainingStep
from rlf.reports.report import shown_events
from rlf.reports.summary import EvaluationChange
from rlf.reports.verdict import RunVerdict, VerdictKind, compares_groups, judge_record, judge_run
from rlf.types import RunStatus

from .synthetic import run_record
from .test_summary import change, tried

READER: Any = SimpleNamespace(store=None)
RUN = Run(run_record(), RunStatus.FINISHED, process_gone=False, last_step=2, finished=0.0, error=None)
DEAD = {"reward/mean": 0.0, "reward/std": 0.0, "groups/dead_share": 1.0, "success": 0.0}
FORM_ONLY = {"reward/mean": 0.1, "reward/std": 0.1, "groups/dead_share": 0.0, "success": 0.0}
ALIVE = {"reward/mean": 0.5, "reward/std": 0.5, "groups/dead_share": 0.2, "success": 0.5}


def changed(num_before: int, num_after: int, num: int = 40) -> list[EvaluationChange]:
    before, after = ([tried(f"t{k}", float(k < right)) for k in range(num)] for right in (num_before, num_after))
    return [change(before, after)]


def verdict(changes: list[EvaluationChange], *metrics: dict[str, float], by_group: bool = True) -> RunVerdict:
    steps = [TrainingStep(number, values, 0.0) for number, values in enumerate(metrics, 1)]
    return judge_run(steps, changes, by_group=by_group)


@pytest.mark.parametrize(
    ("before", "after", "metrics", "kind"),
    [
        (10, 30, ALIVE, VerdictKind.LEARNED),
        (30, 10, ALIVE, VerdictKind.WORSE),
        (10, 11, ALIVE, VerdictKind.NO_CHANGE),
        (0, 0, DEAD, VerdictKind.NO_SIGNAL),
        (0, 0, FORM_ONLY, VerdictKind.NO_SIGNAL),
        (10, 11, {"unscorable": 8.0}, VerdictKind.NO_SIGNAL),
        (10, 30, DEAD, VerdictKind.LEARNED),
    ],
)
def test_a_shown_change_decides_and_then_the_signal(
    before: int, after: int, metrics: dict[str, float], kind: VerdictKind
) -> None:
    assert verdict(changed(before, after), metrics, metrics).kind is kind


def test_a_verdict_has_the_sentence_of_the_comparison() -> None:
    assert verdict(changed(10, 30), ALIVE).line.startswith(
        "verdict: learned: sampled: success rose by 50.0 points (95 % CI "
    )


def test_steps_without_signal_are_counted_where_nothing_is_shown() -> None:
    assert verdict(changed(10, 11), ALIVE, DEAD, DEAD).reason.endswith("; 2 of 3 steps had no signal")


def test_nothing_is_claimed_of_a_run_that_is_running_and_less_of_one_that_ended_early() -> None:
    (found,) = changed(10, 30)
    running = verdict([replace(found, num_looks=None)], ALIVE)
    assert running.kind is VerdictKind.RUNNING
    assert running.reason == "sampled: no claim yet, the run is running (+50.0 points so far, n = 40)"
    (found,) = changed(10, 17)  # 7 gained, none lost: p = 0.0156
    assert verdict([found], ALIVE).kind is VerdictKind.LEARNED
    ended = verdict([replace(found, num_looks=3)], ALIVE)
    assert ended.kind is VerdictKind.NO_CHANGE and "p = 0.19 at 3 looks of a run that did not finish" in ended.reason


def test_one_evaluation_measures_no_change() -> None:
    assert verdict([], ALIVE).kind is VerdictKind.NOT_MEASURED


def test_groups_count_only_where_the_estimator_compares_them() -> None:
    single = ALIVE | {"groups/dead_share": 1.0}
    assert verdict(changed(10, 11), single, by_group=True).kind is VerdictKind.NO_SIGNAL
    assert verdict(changed(10, 11), single, by_group=False).kind is VerdictKind.NO_CHANGE
    assert [compares_groups({"train": {"algorithm": {"kind": kind}}}) for kind in ("grpo", "gae")] == [True, False]


def test_a_verdict_ends_with_what_was_left_out_and_which_kinds_it_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    by_kind: dict[str | None, tuple[int, int]] = {"hard": (88, 640), "easy": (8, 640), "odd": (0, 4)}
    left_out = LeftOut(by_kind, {"reward term 'good'": 6, "tool 'search'": 90})
    steps = [TrainingStep(1, ALIVE | {"left_out/length": 0.25, "unscorable": 3.0}, 0.0), TrainingStep(2, ALIVE, 0.0)]
    before = [tried(f"t{k}", 0.0, kind="hard" if k < 4 else "easy") for k in range(20)]
    after = [tried(f"t{k}", None if k < 3 else 0.0, kind="hard" if k < 4 else "easy") for k in range(20)]
    monkeypatch.setattr("rlf.lineage.calls.read_left_out", lambda store, run_id: left_out)
    reason = judge_record(READER, RUN, steps, [change(before, after)], ()).reason
    assert reason.endswith(
        "; training left out 96 of 1,284 rollouts (tool 'search' 90, reward term 'good' 6): hard 88 of 640, easy 8 of "
        "640; steps left out 12.5 % of their rollouts for their length, in the mean; 3 of 20 questions have no value "
        "in both evaluations: hard 3 of 4"
    )


def test_a_verdict_names_the_terms_that_rewards_were_summed_without_where_the_run_warned_of_them() -> None:
    steps = [
        TrainingStep(n, ALIVE | {"rewards/good/unscorable": 8.0, "rewards/odd/unscorable": 1.0}, 0.0) for n in (1, 2)
    ]
    warned = LoggedEvent(0.0, "warning", "", {"cause": "reward term 'good'", "missing": 8, "asked": 16})
    reason = judge_record(READER, RUN, steps, changed(10, 11), (warned,)).reason
    assert reason.endswith("; reward term 'good' had no value for 16 trajectories of training")


def test_a_warning_stays_beside_the_result_however_many_notices_follow_it() -> None:
    start = [LoggedEvent(0.0, "info", f"loading {n}", {"stage": "loading"}) for n in range(9)]
    events = [LoggedEvent(0.0, "warning", "no vLLM", {}), *start, *(LoggedEvent(0.0, "info", str(n), {}) for n in "12")]
    shown = [event.text for event in shown_events(events)]
    assert (len(shown), shown[0], shown[-3:]) == (8, "no vLLM", ["loading 8", "1", "2"])


def test_a_verdict_on_a_run_that_left_nothing_out_has_the_change_alone() -> None:
    assert judge_record(READER, RUN, [TrainingStep(1, ALIVE, 0.0)], changed(10, 11), ()) == verdict(
        changed(10, 11), ALIVE
    )
