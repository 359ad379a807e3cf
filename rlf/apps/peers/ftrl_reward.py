"""`rule: ftrl`: the reward of FTRL: sub-questions solved against calls made."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds, holds, same_text
from rlf.rewards.term import KnownSample, Verdict
from rlf.rewards.values import argument_text, finding, finding_of, names, read_golds, value_key
from rlf.types import CallRecord, Trajectory, Turn

EMPTY, MALFORMED = -0.5, -0.3


class Variant(StrEnum):
    """The worth of calls: q sub-questions solved by p calls."""

    F1 = "f1"
    """2 q / (p + 1), the paper's, made for single turns: over a trajectory it runs to 2."""
    SOLVE_F1 = "solve_f1"
    """2 q / (p + n) for n sub-questions in all, from 0 to 1: for trajectories, where nothing else is paid."""
    PRECISION = "precision"
    """q / p."""
    COMPLETION = "completion"
    """q."""
    PRODUCT = "product"
    """q^2 / p."""


class Match(StrEnum):
    """When a text gives an answer."""

    EXACT = "exact"
    """It is the answer once both are normalised."""
    WORDS = "words"
    """It holds the answer's words one after the other."""
    VALUE = "value"
    """It is the answer, or JSON that holds it as one value of its type: 1 is neither "1" nor in 2013."""
    SUBSTRING = "substring"
    """It holds the answer, case and commas aside: "1" is in "2013"."""


class Ftrl(Rule):
    """With p calls that solve q sub-questions 2 q / (p + 1), or another `variant`.

    Without a call, t sub-questions being left: 1 / (t + 1) for a right answer, -0.5 for nothing, -0.3 where something
    failed to parse, else 0. A call that came to `ok` solves the first unsolved sub-question of its tool whose answer
    its result gives and its arguments do not hold.

    FTRL trains on single generations, so its reward is that of `stage: turn`, where q counts what the turn solves and
    t what is left before it; `stage: outcome` takes all calls of the trajectory together. FTRL's released code departs
    from its paper, and this rule from the code: there 0.5 is given where everything was solved already and no call is
    made, a bad call beside a good one is forgiven (here it counts as a call), and answers match by substring (here by
    choice).

    Of whole trajectories `variant: solve_f1` is the measure: with n sub-questions 2 q / (p + n), 0 without a call. The
    paper's formula pays a trajectory that stops after its first right call as much as a solved task of one call.
    """

    needs_answer: ClassVar[bool] = True
    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={
            "gold": "3 km",
            "columns": {"unsolved_set": {"length": ["3 km"]}},
            "turns": [{"calls": [{"name": "length", "result": "3 km"}]}],
        },
        malformed=MALFORMED,
    )

    rule: Literal["ftrl"] = "ftrl"
    variant: Variant = Variant.F1
    match: Match = Match.EXACT
    column: str = "unsolved_set"
    """Column with the answers of the sub-questions by tool, {tool: [answer, ...]}, as a mapping or as JSON."""

    @property
    def bounds(self) -> tuple[float, float]:
        """From nothing to as much as any number of calls can solve."""
        most = {Variant.F1: 2.0, Variant.PRECISION: 1.0, Variant.SOLVE_F1: 1.0}
        least = 0.0 if self.variant is Variant.SOLVE_F1 else EMPTY
        return (least, most.get(self.variant, float("inf")))

    def judge(self, trajectory: Trajectory) -> Verdict:
        """All turns as one."""
        unsolved = read_golds(trajectory.task.columns.get(self.column))
        if unsolved is None:
            return Verdict(None, f"the row's {self.column!r} is not a mapping of tools to lists of answers")
        num_left = sum(map(len, unsolved.values()))
        texts = [turn.text for turn in trajectory.turns]
        value, reason = self._score_turns(trajectory, trajectory.turns, unsolved, num_left, "".join(texts))
        return Verdict(value, reason)

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        """Turn by turn; what a turn solves is solved for the later ones."""
        unsolved = read_golds(trajectory.task.columns.get(self.column))
        if unsolved is None:
            return Verdict(None, f"the row's {self.column!r} is not a mapping of tools to lists of answers")
        values = []
        for turn in trajectory.turns:
            num_left = sum(map(len, unsolved.values()))
            values.append(self._score_turns(trajectory, [turn], unsolved, num_left, turn.text)[0])
        return Verdict(None, turn_values=tuple(values))

    def _score_turns(
        self, trajectory: Trajectory, turns: Sequence[Turn], unsolved: dict[str, list[Any]], num_left: int, text: str
    ) -> tuple[float, str]:
        """The reward of some turns; takes what they solve out of `unsolved`."""
        calls = [record for turn in turns for record in turn.calls]
        num_failures = sum(len(turn.failures) for turn in turns)
        if calls or self.variant is Variant.SOLVE_F1:
            p, q = len(calls) + num_failures, self._num_solved(calls, unsolved)
            return _reward_of_counts(self.variant, p, q, num_left), f"{p} calls solve {q} of {num_left} sub-questions"
        last = bool(turns) and turns[-1] is trajectory.turns[-1]
        answer = trajectory.answer if last or not turns else None
        if not text.strip() and not (answer or "").strip():
            return EMPTY, "nothing was sampled"
        if num_failures:
            return MALFORMED, "no call could be parsed"
        if answer is not None and any(self._gives_answer(answer, gold) for gold in golds(trajectory.task.answer)):
            return 1 / (num_left + 1), f"right without a call, {num_left} sub-questions left"
        return 0.0, "neither a call nor the answer"

    def _num_solved(self, calls: Sequence[CallRecord], unsolved: dict[str, list[Any]]) -> int:
        num_solved = 0
        for record in calls:
            answers = unsolved.get(record.call.name, [])
            solved = next((each for each in answers if self._is_solved_by(record, each)), None)
            if solved is not None:
                answers.remove(solved)
                num_solved += 1
        return num_solved

    def _is_solved_by(self, record: CallRecord, gold: Any) -> bool:
        if self.match is Match.VALUE:
            found, key = finding_of(record), value_key(gold)
            return found is not None and key in found.found and key not in found.given
        text, answer = finding(record), str(gold)
        if text is None or not self._gives_answer(text, answer):
            return False
        if self.match is Match.SUBSTRING:
            return not self._gives_answer(argument_text(record), answer)
        return not names(record, answer)

    def _gives_answer(self, text: str, answer: str) -> bool:
        match self.match:
            case Match.EXACT | Match.VALUE:
                return same_text(text, answer)
            case Match.WORDS:
                return holds(text, answer)
        plain = answer.lower().replace(",", "").strip()
        return plain != "" and plain in text.lower().replace(",", "")


def _reward_of_counts(variant: Variant, p: int, q: int, n: int) -> float:
    match variant:
        case Variant.SOLVE_F1:
            return 2 * q / (p + n) if p + n else 0.0
        case Variant.F1:
            return 2 * q / (p + 1)
        case Variant.PRECISION:
            return q / p
        case Variant.COMPLETION:
            return float(q)
    return q * q / p
