"""`rule: no_repeat`: no call is made twice."""

from __future__ import annotations

import json
from typing import ClassVar, Literal

from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory


class NoRepeat(Rule):
    """Calls that are not the repetition of an earlier one / calls; 1 without a call if there is an answer, else 0.

    Two calls are the same if tool and arguments are, whatever the order of the keys. With `stage: turn` the same of
    each turn's calls, all earlier turns in mind.
    """

    judges_turns: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(
        gold={"turns": [{"calls": [{"name": "search", "arguments": {"q": each}}]} for each in "ab"]}
    )

    rule: Literal["no_repeat"] = "no_repeat"

    def judge(self, trajectory: Trajectory) -> Verdict:
        news = [new for turn in _list_new_calls(trajectory) for new in turn]
        if not news:
            answered = bool((trajectory.answer or "").strip())
            return Verdict(float(answered), "no call" if answered else "nothing was called or answered")
        return Verdict(sum(news) / len(news), f"{len(news) - sum(news)} of {len(news)} calls repeat an earlier one")

    def judge_turns(self, trajectory: Trajectory) -> Verdict:
        values = [sum(news) / len(news) if news else None for news in _list_new_calls(trajectory)]
        return Verdict(None, turn_values=tuple(values))


def _list_new_calls(trajectory: Trajectory) -> list[list[bool]]:
    """Of every call of every turn, whether it is the first of its kind."""
    seen: set[str] = set()
    turns = []
    for turn in trajectory.turns:
        news = []
        for record in turn.calls:
            key = json.dumps([record.call.name, record.call.arguments], sort_keys=True, default=repr)
            news.append(key not in seen)
            seen.add(key)
        turns.append(news)
    return turns
