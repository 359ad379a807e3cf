"""`rule: tool_format`: the share of tool calls that could be taken as they were written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import Sample, Verdict
from rlf.types import CallRecord, Outcome, ParseFailure, Trajectory

_MALFORMED = frozenset({Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN_TOOL})


class ToolFormat(Rule):
    """Well-formed calls / (calls + parse failures); 0 if nothing was called.

    A call is well formed if it names a declared tool and its arguments satisfy inputSchema; what the tool then says
    does not matter. With `stage: turn` the same of each turn's calls and failures.
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(
        gold={"turns": [{"calls": [{"name": "search", "arguments": {"query": "Ann"}}]}, {"text": "Ann"}]}
    )

    rule: Literal["tool_format"] = "tool_format"

    def judge(self, trajectory: Trajectory) -> Verdict:
        good, tried = _count_formed(trajectory.calls, trajectory.failures)
        if tried == 0:
            return Verdict(0.0, "no tool was called")
        return Verdict(good / tried, f"{good} of {tried} calls are well formed")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        counts = [_count_formed(turn.calls, turn.failures) for turn in trajectory.turns]
        values = [good / tried if tried else None for good, tried in counts]
        return Verdict(None, turn_values=tuple(values))


def _count_formed(calls: Sequence[CallRecord], failures: Sequence[ParseFailure]) -> tuple[int, int]:
    good = sum(record.result.outcome not in _MALFORMED for record in calls)
    return good, len(calls) + len(failures)
