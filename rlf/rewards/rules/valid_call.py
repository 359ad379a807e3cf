"""`rule: valid_call`: calls that could be read, fitted their schema and were answered."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule, share_of, shares_by_turn
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Outcome, Trajectory, Turn


class ValidCall(Rule):
    """Calls with outcome `ok` / (calls + parse failures); 0 if nothing was called.

    `tool_format` and `tool_success` separate the two. With `stage: turn` the same of each turn's calls and failures:
    the tool execution reward of MT-GRPO (arXiv:2505.11821).
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={"turns": [{"calls": [{"name": "search", "result": "Ann"}]}, {"text": "Ann"}]}
    )

    rule: Literal["valid_call"] = "valid_call"

    def judge(self, trajectory: Trajectory) -> Verdict:
        return share_of(self._count(trajectory), "are valid")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        return shares_by_turn(map(self._count, trajectory.turns))

    def _count(self, part: Trajectory | Turn) -> tuple[int, int]:
        good = sum(record.result.outcome is Outcome.OK for record in part.calls)
        return good, len(part.calls) + len(part.failures)
