"""`rule: tool_format`: the share of tool calls that could be taken as they were written."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule, share_of, shares_by_turn
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Outcome, Trajectory, Turn

_MALFORMED = frozenset({Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN_TOOL})


class ToolFormat(Rule):
    """Well-formed calls / (calls + parse failures); 0 if nothing was called.

    A call is well formed if it names a declared tool and its arguments satisfy inputSchema; what the tool then says
    does not matter. With `stage: turn` the same of each turn's calls and failures.
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={"turns": [{"calls": [{"name": "search", "arguments": {"query": "Ann"}}]}, {"text": "Ann"}]}
    )

    rule: Literal["tool_format"] = "tool_format"

    def judge(self, trajectory: Trajectory) -> Verdict:
        return share_of(self._count(trajectory), "are well formed")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        return shares_by_turn(map(self._count, trajectory.turns))

    def _count(self, part: Trajectory | Turn) -> tuple[int, int]:
        good = sum(record.result.outcome not in _MALFORMED for record in part.calls)
        return good, len(part.calls) + len(part.failures)
