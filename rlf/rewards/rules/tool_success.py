"""`rule: tool_success`: the share of tool calls that the tool answered."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule, share_of, shares_by_turn
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Outcome, Trajectory, Turn


class ToolSuccess(Rule):
    """Calls with outcome `ok` / calls; 0 if nothing was called.

    With `stage: turn` the same of each turn's calls. What could not be read as a call is `tool_format`'s.
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"turns": [{"calls": [{"name": "search", "result": "Ann"}]}]})

    rule: Literal["tool_success"] = "tool_success"
    tools: tuple[str, ...] | None = None
    """Names of the tools that count; None: all."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        return share_of(self._count(trajectory), "were answered")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        return shares_by_turn(map(self._count, trajectory.turns))

    def _count(self, part: Trajectory | Turn) -> tuple[int, int]:
        counted = [record for record in part.calls if self.tools is None or record.call.name in self.tools]
        return sum(record.result.outcome is Outcome.OK for record in counted), len(counted)
