"""From rows to tasks: which column is the prompt, the answer, the kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlf.core import Fault, Place, SpecError, hash_json, nearest
from rlf.data.rows import Row, fail, shown_name
from rlf.data.source import read_rows
from rlf.types import Message, Task

MAX_FAULTS = 10
"""Faulty rows that are told one by one."""

_ROLES = ("system", "user", "assistant")


def load_tasks(
    path: str,
    *,
    config: str | None = None,
    split: str = "train",
    prompt: str = "prompt",
    answer: str | None = "answer",
    kind: str | None = None,
    system: str | None = None,
    limit: int | None = None,
) -> list[Task]:
    """The tasks of a dataset, in its order.

    Args:
        path: `builtin:NAME`, a .jsonl, .json, .csv or .parquet file, or a Hugging Face dataset id.
        config: configuration of a Hugging Face dataset.
        split: split of a Hugging Face dataset.
        prompt: column with the question, or with a list of {role, content} messages.
        answer: column with the gold answer or answers; None when there is none.
        kind: column with the kind of question.
        system: system message put before every prompt.
        limit: rows taken from the start; None takes all.

    Raises:
        SpecError: the file, a column or a row is missing or wrong; every faulty row is counted.
    """
    rows = read_rows(path, config, split, limit)
    if not rows:
        raise fail(
            Place(shown_name(path)), "", "there are no rows; expected at least one. Check the file and its split."
        )
    _check_columns(rows, {"prompt": prompt, "answer": answer, "kind": kind})
    faults: list[Fault] = []
    tasks = [_task(number, row, (prompt, answer, kind, system), faults) for number, row in enumerate(rows)]
    faults += _repeated_ids(rows, tasks)
    if faults:
        raise SpecError(_capped(faults, len(rows)))
    return tasks


def dataset_hash(tasks: Sequence[Task]) -> str:
    """sha256 over everything that a run can see of the tasks, and their order."""
    return hash_json(
        [[task.id, _messages_json(task), _json(task.answer), task.kind, _json(task.columns)] for task in tasks]
    )


def _check_columns(rows: Sequence[Row], columns: Mapping[str, str | None]) -> None:
    known = list(dict.fromkeys(column for row in rows for column in row.values))
    mends = {"answer": ", or write `answer: null` when no reward term needs it"}
    faults = [
        Fault(
            Place(rows[0].place.file),
            role,
            f"no column {column!r}{nearest(column, known)} (columns: {', '.join(known)}). "
            f"Name the column with the {role}{mends.get(role, '')}.",
        )
        for role, column in columns.items()
        if column is not None and column not in known
    ]
    if faults:
        raise SpecError(faults)


def _task(number: int, row: Row, columns: tuple[str, str | None, str | None, str | None], faults: list[Fault]) -> Task:
    prompt, answer, kind, system = columns
    gold = row.values.get(answer) if answer is not None else None
    try:
        messages = _messages(row.values.get(prompt), system)
    except ValueError as error:
        faults.append(Fault(row.place, prompt, str(error)))
        messages = ()
    if answer is not None and gold in (None, "", []):
        faults.append(
            Fault(row.place, answer, "the row has no answer; every row needs one. Fill it in or drop the row.")
        )
    named = row.values.get(kind) if kind is not None else None
    return Task(
        id=_id(number, row.values),
        messages=messages,
        answer=gold,
        kind=None if named is None else str(named),
        columns=row.values,
    )


def _messages(value: Any, system: str | None) -> tuple[Message, ...]:
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise ValueError(f"got {_short(value)}; expected text or a list of messages. Write a question.")
    messages = tuple(_message(item) for item in value)
    if messages[-1].role != "user":
        raise ValueError(f"the last message is the {messages[-1].role}'s; the model answers a user. End with a user's.")
    if system is None:
        return messages
    if messages[0].role == "system":
        raise ValueError("the row has a system message and the spec gives another. Keep one of them.")
    return (Message("system", system), *messages)


def _message(item: Any) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, Mapping) else (None, None)
    if role not in _ROLES:
        raise ValueError(
            f"got the role {_short(role)}; expected {', '.join(_ROLES)}. Write {{role, content}} messages."
        )
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"got the content {_short(content)}; expected text. Write what the {role} says.")
    return Message(role, content)


def _id(number: int, values: Mapping[str, Any]) -> str:
    if values.get("id") not in (None, ""):
        return str(values["id"])
    return f"{number:06d}-{hash_json(_json(values))[:8]}"


def _repeated_ids(rows: Sequence[Row], tasks: Sequence[Task]) -> list[Fault]:
    first: dict[str, Row] = {}
    faults = []
    for row, task in zip(rows, tasks, strict=True):
        if task.id in first:
            message = f"the id {task.id!r} is also that of {first[task.id].place}; ids are unique. Change one."
            faults.append(Fault(row.place, "id", message))
        first.setdefault(task.id, row)
    return faults


def _capped(faults: Sequence[Fault], num_rows: int) -> list[Fault]:
    shown = sorted(faults)[:MAX_FAULTS]
    if len(faults) > MAX_FAULTS:
        message = f"{len(faults) - MAX_FAULTS} more faults in {num_rows} rows are not shown. Mend these first."
        shown.append(Fault(Place(shown[-1].place.file, shown[-1].place.line, shown[-1].place.column), "~", message))
    return shown


def _messages_json(task: Task) -> list[list[str]]:
    return [[message.role, message.content] for message in task.messages]


def _json(value: Any) -> Any:
    """A value as canonical JSON can hold it: what JSON lacks (dates, decimals, NaN) as text."""
    if isinstance(value, Mapping):
        return {str(key): _json(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_json(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
