"""Values of a judge's prompt: a task and the trajectories that are judged, as plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core.files import read_image_file
from rlf.rewards.answers import golds
from rlf.rewards.judging.fence import Authored
from rlf.rewards.judging.settings import Criterion
from rlf.types import CallRecord, Image, Task, Trajectory

# A sampled turn keeps its stop token, which could end a message in the judge's own template too.
_TURN_END = re.compile(r"(?:<\|[\w-]+\|>|</s>|<eos>|<end_of_turn>)\s*$")


def task_values(task: Task, criteria: Sequence[Criterion]) -> dict[str, Any]:
    """`question`, `gold` (the first), `golds`, `columns` and `criteria`."""
    answers = list(golds(task.answer))
    return {
        "question": task.question,
        "gold": answers[0] if answers else None,
        "golds": answers,
        "columns": dict(task.columns),
        "criteria": [{"name": Authored(c.name), "text": Authored(c.text), "weight": c.weight} for c in criteria],
    }


def candidate_values(trajectory: Trajectory) -> dict[str, Any]:
    """`answer`, `transcript` and `calls`."""
    calls = [
        {"name": record.call.name, "arguments": dict(record.call.arguments), **_show_result(record)}
        for record in trajectory.calls
    ]
    return {"answer": trajectory.answer or "", "transcript": transcript(trajectory), "calls": calls}


def gold_values(gold: str) -> dict[str, Any]:
    """A gold answer in the place of a candidate."""
    return {"answer": gold, "transcript": _dump_message({"role": "assistant", "content": gold}), "calls": []}


def transcript(trajectory: Trajectory) -> str:
    """The conversation, one JSON object a line, so that no text can look like the next message."""
    lines = [{"role": message.role, "content": message.content} for message in trajectory.task.messages]
    for turn in trajectory.turns:
        lines.append({"role": "assistant", "content": plain(turn.text)})
        lines += [{"role": "tool", "name": record.call.name, **_show_result(record)} for record in turn.calls]
    return "\n".join(map(_dump_message, lines))


def plain(text: str) -> str:
    """A turn's text without the special tokens that end it."""
    while (ended := _TURN_END.sub("", text)) != text:
        text = ended
    return text


def images_of(trajectory: Trajectory) -> list[Image]:
    """The images of the task and among the results, in order."""
    asked = [Image(*read_image_file(reference)) for reference in trajectory.task.images]
    return asked + [image for record in trajectory.calls for image in record.result.images]


def _show_result(record: CallRecord) -> dict[str, str]:
    return {"outcome": record.result.outcome.value, "result": record.result.text}


def _dump_message(message: Mapping[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False, default=str)
