"""A step that holds nothing to learn from is diagnosed by what was seen in its trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlf.rollout.collect import dead_share, rollout_metrics
from rlf.rollout.diagnosis import diagnose, find_causes
from rlf.rollout.rollout import NOT_RUN
from rlf.rollout.signal import CauseKind, DiagnosisSetting, Signal, evaluation_signal, step_signal
from rlf.types import (
    CallRecord,
    FailureClass,
    Message,
    Outcome,
    ParseFailure,
    Score,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

SETTING = DiagnosisSetting(("search",), by_group=True, gold_column="answer")
ROW = {"question": "Where is Bitbal?", "answer": "Fenpus", "kind": "two_hop"}
FAILURE = ParseFailure(FailureClass.WRONG_TAG, "no tag", "[search()]", 0, structural=False)


def item(
    number: int,
    *,
    reward: float | None = 0.0,
    success: float | None = 0.0,
    result: ToolResult | None = None,
    failure: ParseFailure | None = None,
    gold: object = "Fenpus",
    answer: str | None = "unknown",
    stop: StopReason = StopReason.ANSWERED,
    reason: str = "got 'unknown'",
) -> Scored:
    """Rollout `number`, of groups of four."""
    task = Task(f"t{number // 4}", (Message("user", ROW["question"]),), gold, columns=ROW)
    calls = () if result is None else (CallRecord(ToolCall("search", {"query": "Bitbal"}), result),)
    turn = Turn(2, 4, 4, f"turn {number}", calls=calls, failures=() if failure is None else (failure,))
    mask, logprobs = [False, False, True, True], [0.0] * 4
    whole = Trajectory(f"{number}", task, number % 4, [1, 2, 3, 4], mask, logprobs, (turn,), stop, answer)
    return Scored(whole, (Score("exact_match", success, 1.0, reason),), reward, success)


def items(**values: object) -> list[Scored]:
    return [item(number, **values) for number in range(8)]  # type: ignore[arg-type]


def kinds(scored: Sequence[Scored], setting: DiagnosisSetting = SETTING) -> list[CauseKind]:
    return [cause.kind for cause in find_causes(scored, Signal.NO_DIFFERENCE, setting)]


def signal(scored: Sequence[Scored], *, by_group: bool = True) -> Signal:
    return step_signal(rollout_metrics(scored) | {"groups/dead_share": dead_share(scored)}, by_group=by_group)


def ok(text: str) -> ToolResult:
    return ToolResult(Outcome.OK, text)


def test_a_signal_is_rewards_that_differ_where_they_are_compared() -> None:
    by_task = [replace(one, reward=float(k // 4), success=float(k // 4)) for k, one in enumerate(items())]
    assert signal(items()) is Signal.NO_DIFFERENCE
    assert (signal(by_task), signal(by_task, by_group=False)) == (Signal.NO_DIFFERENCE, Signal.SOME)
    assert signal([replace(one, reward=k / 8) for k, one in enumerate(items())]) is Signal.NO_SUCCESS
    assert signal(items(reward=None, success=None)) is Signal.NOT_SCORED


def test_a_group_of_one_rollout_is_no_lack_of_signal_where_groups_are_not_compared() -> None:
    alone = [replace(one, reward=float(k % 2), success=float(k % 2)) for k, one in enumerate(items())]
    tasks = [
        replace(o, trajectory=replace(o.trajectory, task=replace(o.trajectory.task, id=o.trajectory.id))) for o in alone
    ]
    assert dead_share(tasks) == 1.0
    assert signal(tasks, by_group=False) is Signal.SOME


def test_an_evaluation_in_which_one_question_succeeds_has_a_signal() -> None:
    assert evaluation_signal(items()) is Signal.NO_DIFFERENCE
    assert evaluation_signal([*items(), item(8, reward=1.0, success=1.0)]) is Signal.SOME


@pytest.mark.parametrize(
    ("scored", "first"),
    [
        (items(), CauseKind.NEVER_CALLED),
        (items(failure=FAILURE), CauseKind.NEVER_PARSED),
        (items(stop=StopReason.LENGTH, answer=None), CauseKind.TRUNCATED),
        (items(stop=StopReason.MAX_TURNS, answer=None, result=ok("nothing")), CauseKind.OUT_OF_TURNS),
        (items(result=ToolResult(Outcome.TOOL_ERROR, "error: no index")), CauseKind.TOOLS_FAIL),
        (items(result=ok("Bitbal lives in Fenpus."), gold="two_hop"), CauseKind.ANSWER_COLUMN),
        (items(result=ok("nothing"), answer="Fenpus", gold=" "), CauseKind.ANSWER_COLUMN),
        (items(result=ok("Bitbal lives in Fenpus."), answer="It is Fenpus"), CauseKind.COMPARISON),
        (items(result=ok("Bitbal lives in Fenpus.")), CauseKind.TOO_HARD),
        (
            [item(8, stop=StopReason.LENGTH, answer=None), *items(result=ok("Bitbal lives in Fenpus."))],
            CauseKind.TRUNCATED,
        ),
        (items(reward=1.0, success=1.0, result=ok("Fenpus")), CauseKind.CONSTANT_REWARD),
        (items(reward=None, success=None, reason="the judge is down"), CauseKind.NOT_SCORED),
    ],
)
def test_the_likely_cause_is_what_was_seen(scored: list[Scored], first: CauseKind) -> None:
    assert kinds(scored)[0] is first


def test_one_call_of_many_trajectories_that_gave_nothing_is_not_why_they_fail() -> None:
    failed = ToolResult(Outcome.UNKNOWN_TOOL, "error: no tool")
    scored = [item(number, result=failed if number == 0 else None) for number in range(16)]
    assert CauseKind.TOOLS_FAIL not in kinds(scored)
    assert CauseKind.TOOLS_FAIL in kinds([item(number, result=failed if number < 2 else None) for number in range(16)])


def test_calls_beyond_the_limit_name_the_limit() -> None:
    scored = items(result=ToolResult(Outcome.LIMIT_REACHED, "No tool calls are left."))
    assert next(find_causes(scored, Signal.NO_DIFFERENCE, SETTING)).advice == "Write more for `rollout.max_tool_calls`."


def test_calls_of_a_last_turn_that_were_not_run_accuse_no_tool() -> None:
    scored = items(stop=StopReason.MAX_TURNS, answer=None, result=NOT_RUN)
    assert kinds(scored) == [CauseKind.OUT_OF_TURNS]
    figures = diagnose(scored, Signal.NO_DIFFERENCE, SETTING).figures
    assert "8 calls of last turns were not run" in figures and "gave a result" not in figures


def test_trajectories_without_a_reward_show_no_cause_but_that() -> None:
    broken = [item(number, reward=None, success=None, reason="the judge is down") for number in range(8)]
    right = [item(number, reward=1.0, success=1.0, result=ok("Fenpus")) for number in range(8, 16)]
    assert kinds([*broken, *right]) == [CauseKind.NOT_SCORED]
    cut_off = [item(n, reward=None, success=None, stop=StopReason.LENGTH, answer=None) for n in range(8)]
    assert kinds(cut_off)[:2] == [CauseKind.TRUNCATED, CauseKind.NOT_SCORED]


def test_a_tool_that_fails_comes_before_what_has_no_reward_by_it_and_hides_no_calls() -> None:
    down = {"reward": None, "success": None, "result": ToolResult(Outcome.UNREACHABLE, "error: no connection")}
    called, silent = items(**down), [item(number) for number in range(8, 40)]
    assert kinds(called) == [CauseKind.TOOLS_FAIL, CauseKind.NOT_SCORED]
    assert kinds([*called, *silent]) == [CauseKind.TOOLS_FAIL]  # not that no trajectory tried to call a tool
    golds = {"reward": None, "success": None, "reason": "its gold: error: no connection"}  # which the tool computes
    seldom = [item(number, **(down if number < 2 else golds)) for number in range(8)]
    assert kinds(seldom) == [CauseKind.TOOLS_FAIL, CauseKind.NOT_SCORED]
    judged = [item(number, **(down if number < 2 else {"reward": None, "success": None})) for number in range(8)]
    assert kinds(judged) == [CauseKind.NOT_SCORED, CauseKind.TOOLS_FAIL]


def test_golds_and_rewards_are_no_cause_once_there_was_a_signal() -> None:
    hard, constant = items(result=ok("Bitbal lives in Fenpus.")), items(reward=1.0, success=1.0, result=ok("Fenpus"))
    for scored in (hard, constant):
        assert list(find_causes(scored, Signal.NO_DIFFERENCE, SETTING))
        assert not list(find_causes(scored, Signal.NO_DIFFERENCE, SETTING, had_signal=True))


def cut(number: int, text: str) -> Scored:
    one = item(number, stop=StopReason.LENGTH, answer=None)
    return replace(one, trajectory=replace(one.trajectory, turns=(Turn(2, 4, 4, text),)))


def test_turns_cut_in_a_ramble_do_not_explain_that_the_others_call_nothing() -> None:
    scored = [cut(n, "la la la") if n < 3 else item(n) for n in range(8)]
    assert kinds(scored) == [CauseKind.NEVER_CALLED, CauseKind.TRUNCATED]


def test_turns_cut_in_the_midst_of_a_call_explain_that_none_is_called() -> None:
    scored = [cut(n, '{"name": "search", "argu') if n < 3 else item(n) for n in range(8)]
    assert kinds(scored) == [CauseKind.TRUNCATED]


def test_a_turn_that_was_cut_is_not_counted_as_one_that_could_not_be_parsed() -> None:
    failure = ParseFailure(FailureClass.TRUNCATED, "cut", "<tool_call>", 0, structural=False)
    figures = diagnose(items(failure=failure, stop=StopReason.LENGTH), Signal.NO_DIFFERENCE, SETTING).figures
    assert ("could not be parsed" in figures, "8 were cut" in figures) == (False, True)


def test_success_in_part_is_not_counted_as_success() -> None:
    figures = diagnose(items(reward=0.5, success=0.5, result=ok("x")), Signal.NO_DIFFERENCE, SETTING).figures
    assert figures.startswith(
        "mean success of 8 trajectories 50.0 %, 8 of 8 tool calls gave a result; every reward is 0.5"
    )


def test_a_wrong_answer_column_names_the_column_that_is_meant() -> None:
    scored = items(result=ok("Bitbal lives in Fenpus."), gold="two_hop")
    (cause,) = find_causes(scored, Signal.NO_DIFFERENCE, replace(SETTING, gold_column="kind"))
    assert cause.advice == "Probably meant: `data.train.answer: answer`, not kind."


def test_rollouts_that_are_copies_are_named() -> None:
    same = [replace(o, trajectory=replace(o.trajectory, turns=(Turn(2, 4, 4, "same"),))) for o in items()]
    assert CauseKind.SAME_ROLLOUTS in kinds(same, replace(SETTING, tools=()))


def test_a_diagnosis_has_figures_and_a_trajectory_that_shows_the_cause() -> None:
    scored = [item(0), *(item(n, failure=FAILURE) for n in range(1, 8))]
    found = diagnose(scored, Signal.NO_DIFFERENCE, SETTING)
    start = "0 of 8 trajectories succeeded, no tool was called, 7 wrote something that could not be parsed; "
    few = "8 trajectories are too few to say that there is nothing to learn from"
    assert found.figures == f"{start}every reward is 0: {few}"
    assert found.k == 1
    assert found.example == (
        'asked "Where is Bitbal?"; wrote "turn 1"; answered "unknown"; gold "Fenpus"; reward 0, stopped: answered'
    )


def test_rewards_that_differ_without_a_success_name_the_terms_that_differ() -> None:
    shaped = [
        replace(one, reward=k % 2 / 10, scores=(*one.scores, Score("well_formed", float(k % 2), 0.1)))
        for k, one in enumerate(items())
    ]
    assert diagnose(shaped, Signal.NO_SUCCESS, SETTING).figures.endswith(
        "rewards differ by 'well_formed' only: 8 trajectories are too few to say that there is nothing to learn "
        "success from"
    )


@pytest.mark.parametrize(
    ("num", "num_before", "had_signal", "words"),
    [
        (8, 0, False, "8 trajectories are too few to say that there is nothing to learn from"),
        (8, 51, False, "59 trajectories are too few to say that there is nothing to learn from"),
        (8, 52, False, "every reward is 0: nothing to learn from"),
        (60, 0, False, "every reward is 0: nothing to learn from"),
        (8, 0, True, "every reward is 0: this step teaches nothing"),
        (80, 800, True, "every reward is 0: this step teaches nothing"),
    ],
)
def test_that_there_is_nothing_to_learn_from_is_said_of_many_trajectories_alone(
    num: int, num_before: int, had_signal: bool, words: str
) -> None:
    scored = [item(n) for n in range(num)]
    found = diagnose(scored, Signal.NO_DIFFERENCE, SETTING, num_before=num_before, had_signal=had_signal)
    assert found.figures.endswith(words)


def test_tasks_that_are_always_or_never_solved_are_not_a_reward_that_is_constant() -> None:
    scored = [item(n, reward=float(n // 4), success=float(n // 4), result=ok("Fenpus"), reason="") for n in range(8)]
    (cause,) = find_causes(scored, Signal.NO_DIFFERENCE, SETTING)
    assert cause.seen.startswith("rewards differ between tasks, never between the rollouts of one (those of the first")


def test_the_reason_of_wrong_answers_is_that_of_an_answer() -> None:
    cut_off = [item(n, answer=None, result=ok("Bitbal lives in Fenpus."), reason="no answer") for n in range(5)]
    (cause,) = find_causes([*cut_off, *items(result=ok("Bitbal lives in Fenpus."))[5:]], Signal.NO_DIFFERENCE, SETTING)
    assert cause.seen == """3 of 8 gave an answer and none is right, e.g. "got 'unknown'\""""


def test_only_trajectories_with_a_reward_are_counted_as_succeeded_as_in_the_steps_metrics() -> None:
    scored = [*items(reward=None, success=1.0), *items(success=0.0)]
    words = diagnose(scored, Signal.NO_SUCCESS, SETTING).figures
    assert words.startswith("0 of 8 trajectories succeeded, ") and "8 could not be scored" in words
    assert rollout_metrics(scored)["success"] == 0.0
    unscored = diagnose(items(reward=None, success=1.0), Signal.NOT_SCORED, SETTING).figures
    assert "succeeded" not in unscored and "8 could not be scored" in unscored
