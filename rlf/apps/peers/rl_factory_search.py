"""`rule: rl_factory_search`: the reward of RL-Factory's search environment."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from rlf.rewards.answers import same
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, shown
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

_TAG = re.compile(r"</?answer>")


class RlFactorySearch(Rule):
    """Right: 1 + T / 2; wrong: T; no answer: -f + T / 2; with T = f or -f by form, - f for more than `max_calls` calls.

    The form is right if `<answer>` and `</answer>` take turns in what was sampled. In a chat format without these tags,
    where the original would find every form wrong, it is right if an answer was given and the last turn parsed whole.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={"gold": "Paris", "answer": "Paris", "turns": [{"text": "<answer>Paris</answer>"}]},
        best=1.05,
        malformed=-0.15,
    )

    rule: Literal["rl_factory_search"] = "rl_factory_search"
    normalize: Normalization = Normalization.SQUAD
    format_score: float = Field(default=0.1, ge=0, le=1)
    """f."""
    max_calls: int = Field(default=2, ge=0)
    """Tool calls without a deduction."""

    @property
    def bounds(self) -> tuple[float, float]:
        """From -2 f, wrong in wrong form after too many calls, to 1 + f / 2."""
        return (-2 * self.format_score, 1 + self.format_score / 2)

    def judge(self, trajectory: Trajectory) -> Verdict:
        form = self.format_score if _in_form(trajectory) else -self.format_score
        if len(trajectory.calls) > self.max_calls:
            form -= self.format_score
        if trajectory.answer is None:
            return Verdict(-self.format_score + form / 2, f"no answer, T = {form:g}")
        answers = golds(trajectory.task.answer)
        if any(same(trajectory.answer, gold, self.normalize) for gold in answers):
            return Verdict(1 + form / 2, f"right, T = {form:g}")
        return Verdict(form, f"got {trajectory.answer[:80]!r}; expected {shown(answers)}; T = {form:g}")


def _in_form(trajectory: Trajectory) -> bool:
    tags = [tag for turn in trajectory.turns for tag in _TAG.findall(turn.text)]
    if tags:
        return tags == ["<answer>", "</answer>"] * (len(tags) // 2)
    last = trajectory.turns[-1:]
    return bool((trajectory.answer or "").strip()) and not any(turn.failures for turn in last)
