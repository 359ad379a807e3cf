"""What rooms and bisect reward: whether the tool showed the treasure that was asked for, and credit turn by turn."""

from __future__ import annotations

from rlf.types import CallRecord, Trajectory

__all__ = ["credit_turns", "reached", "right_doors"]


def reached(trajectory: Trajectory) -> float:
    """1 if a result says `is_goal` and is the task's answer, else 0; a reward function.

    Another vault or box than the question's shows a treasure too: a policy that knows one would open that one alone.
    """
    results = (record.result for record in trajectory.calls if isinstance(record.result.structured, dict))
    return float(
        any(result.structured.get("is_goal") is True and result.text == trajectory.task.answer for result in results)
    )


def credit_turns(trajectory: Trajectory, *, subject: str, key: str) -> list[float | None]:
    """What the results of each turn have under `key`, the least of them; None for a turn without any.

    A call is worth 0 where its argument `subject` is not the name that the question begins with, as its second word.
    """
    asked = "".join(trajectory.task.messages[-1].content.split()[1:2])
    credits_by_turn = ([_credit(record, asked, subject, key) for record in turn.calls] for turn in trajectory.turns)
    return [min((value for value in values if value is not None), default=None) for values in credits_by_turn]


def right_doors(trajectory: Trajectory) -> list[float | None]:
    """1 or 0 for each turn with a call that was answered, None for any other; a reward function for `stage: turn`.

    A door of another vault than the question's is wrong.
    """
    return credit_turns(trajectory, subject="vault", key="is_right")


def _credit(record: CallRecord, asked: str, subject: str, key: str) -> float | None:
    result = record.result.structured
    if not isinstance(result, dict) or key not in result:
        return None
    return float(result[key]) if record.call.arguments[subject] == asked else 0.0
