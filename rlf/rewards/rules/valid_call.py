"""`rule: valid_call`: calls that could be read, fitted their schema and were answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import Sample, Verdict
from rlf.types import CallRecord, Outcome, ParseFailure, Trajectory


class ValidCall(Rule):
    """Calls with outcome `ok` / (calls + parse failures); 0 if nothing was called.

    `tool_format` and `tool_success` separate the two. With `stage: turn` the same of each turn's calls and failures:
    the tool execution reward of MT-GRPO (arXiv:2505.11821).
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(
        gold={"turns": [{"calls": [{"name": "search", "result": "Ann"}]}, {"text": "Ann"}]}
    )

    rule: Literal["valid_call"] = "valid_call"

    def judge(self, trajectory: Trajectory) -> Verdict:
        good, tried = _count_valid(trajectory.calls, trajectory.failures)
        return Verdict(good / tried, f"{good} of {tried} calls are valid") if tried else Verdict(0.0, "no call")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        counts = [_count_valid(turn.calls, turn.failures) for turn in trajectory.turns]
        return Verdict(None, turn_values=tuple(good / tried if tried else None for good, tried in counts))


def _count_valid(calls: Sequence[CallRecord], failures: Sequence[ParseFailure]) -> tuple[int, int]:
    return sum(record.result.outcome is Outcome.OK for record in calls), len(calls) + len(failures)
