"""`rule: tool_success`: the share of tool calls that the tool answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import Sample, Verdict
from rlf.types import CallRecord, Outcome, Trajectory


class ToolSuccess(Rule):
    """Calls with outcome `ok` / calls; 0 if nothing was called.

    With `stage: turn` the same of each turn's calls. What could not be read as a call is `tool_format`'s.
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(gold={"turns": [{"calls": [{"name": "search", "result": "Ann"}]}]})

    rule: Literal["tool_success"] = "tool_success"
    tools: tuple[str, ...] | None = None
    """Names of the tools that count; None: all."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        good, tried = self._count_successes(trajectory.calls)
        return Verdict(good / tried, f"{good} of {tried} calls were answered") if tried else Verdict(0.0, "no call")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        counts = [self._count_successes(turn.calls) for turn in trajectory.turns]
        values = [good / tried if tried else None for good, tried in counts]
        return Verdict(None, turn_values=tuple(values))

    def _count_successes(self, calls: Sequence[CallRecord]) -> tuple[int, int]:
        counted = [record for record in calls if self.tools is None or record.call.name in self.tools]
        return sum(record.result.outcome is Outcome.OK for record in counted), len(counted)
