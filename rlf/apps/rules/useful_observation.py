"""`rule: useful_observation`: turns whose calls bring to light what the answer needs."""

from __future__ import annotations

from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds, holds
from rlf.rewards.term import KnownSample, Verdict
from rlf.rewards.values import shows
from rlf.types import Trajectory


class UsefulObservation(Rule):
    """Turns with a result that holds a piece of evidence that no earlier result held / turns with a call; 0 without.

    A piece is in a result if its words stand there one after the other, both normalised as those of `exact_match`.
    What the question or the call's own arguments hold is no evidence, nor what an earlier call named before a result
    held it, and a call that failed has none. Without `column` the evidence is the gold: whatever answers.
    With `stage: turn` 1 or 0 for each turn with a call: the search result reward of MT-GRPO (arXiv:2505.11821).
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={"gold": "Lyon", "turns": [{"calls": [{"name": "a", "result": "In Lyon."}]}]}
    )

    rule: Literal["useful_observation"] = "useful_observation"
    column: str | None = None
    """Column with a piece of evidence or a list of them; None: the gold answers."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        by_turn = self.judge_turns(trajectory)
        if by_turn.turn_values is None:
            return by_turn
        useful = [value for value in by_turn.turn_values if value is not None]
        if not useful:
            return Verdict(0.0, "no call")
        return Verdict(sum(useful) / len(useful), f"{sum(useful):g} of {len(useful)} turns with a call are useful")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        task = trajectory.task
        pieces = golds(task.answer if self.column is None else task.columns.get(self.column))
        if not pieces:
            where = "gold answer" if self.column is None else f"evidence in column {self.column!r}"
            return Verdict(None, f"task {task.id} has no {where}")
        asked = " ".join(message.content for message in task.messages)
        left = {piece for piece in pieces if not holds(asked, piece)}
        values: list[float | None] = []
        for turn in trajectory.turns:
            found = {piece for piece in left for record in turn.calls if shows(trajectory, record, piece)}
            values.append(float(bool(found)) if turn.calls else None)
            left -= found
        return Verdict(None, turn_values=tuple(values))
