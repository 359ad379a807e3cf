"""Credit turn by turn: which of a trajectory's doors were right, as the tool's structured results say."""

from __future__ import annotations

from rlf.types import CallRecord, Trajectory

__all__ = ["right_doors"]


def right_doors(trajectory: Trajectory) -> list[float | None]:
    """1 or 0 for each turn with a call that was answered, None for any other; a reward function for `stage: turn`.

    A door of another vault than the question's is wrong.
    """
    question = trajectory.task.messages[-1].content
    credits_by_turn = ([_credit(record, question) for record in turn.calls] for turn in trajectory.turns)
    return [min((value for value in values if value is not None), default=None) for values in credits_by_turn]


def _credit(record: CallRecord, question: str) -> float | None:
    result = record.result.structured
    if not isinstance(result, dict) or "is_right" not in result:
        return None
    return float(result["is_right"] and question.startswith(f"Vault {record.call.arguments['vault']} has "))
