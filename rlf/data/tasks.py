"""From rows to tasks: which column is the prompt, the answer, the kind, the tools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rlf.core import Fault, Place, SpecError, hash_bytes, hash_json
from rlf.core.image_file import read_image_file
from rlf.data.columns import cell, missing_column
from rlf.data.images import with_images
from rlf.data.prompts import Examples, Prompting, prompting
from rlf.data.rows import Row, fail, shown_name
from rlf.data.source import read_rows
from rlf.data.toolset import tools_of_row
from rlf.types import Message, Task

MAX_FAULTS = 10
"""Faulty rows that are reported one by one."""

T = TypeVar("T")


def load_tasks(
    path: str,
    *,
    config: str | None = None,
    split: str = "train",
    prompt: str = "prompt",
    template: str | None = None,
    answer: str | None = "answer",
    kind: str | None = None,
    id: str | None = None,  # noqa: A002  # the key of the spec
    tools: str | None = None,
    images: str | None = None,
    system: str | None = None,
    examples: Examples = (),
    limit: int | None = None,
    declared: Sequence[str] | None = None,
) -> list[Task]:
    """The tasks of a dataset, in its order. A column may be dotted: `extra_info.index`.

    Args:
        path: `builtin:NAME`, a .jsonl, .json, .csv, .parquet or .mix.yaml file, or a Hugging Face dataset id.
        config: configuration of a Hugging Face dataset.
        split: split of a Hugging Face dataset.
        prompt: column with the question, or with a list of {role, content} messages.
        template: Jinja2 text, or a file with it, that makes the question from the row's columns instead.
        answer: column with the gold answer or answers; None when there is none.
        kind: column with the kind of question.
        id: column that names the task; None takes `id` where there is one.
        tools: column with the names of the tools that the row's trajectories may use; None allows all.
        images: column with the row's images, one for each `<image>` of the prompt; None: prompts are text.
        system: system message put before every prompt; Jinja2 like `template`.
        examples: solved questions put before every prompt, {prompt, answer} each, or a data file with them.
        limit: rows taken from the start; None takes all.
        declared: names of the spec's tools; None takes any name.

    Raises:
        SpecError: the file, a column or a row is missing or wrong; every faulty row is counted.
    """
    rows = read_rows(path, config, split, limit, images and images.partition(".")[0])
    if not rows:
        raise fail(
            Place(shown_name(path)), "", "there are no rows; expected at least one. Check the file and its split."
        )
    asked = None if template is not None else prompt
    named = {"prompt": asked, "answer": answer, "kind": kind, "id": id, "tools": tools, "images": images}
    _check_bytes(rows, named)
    _check_row_columns(rows, named)
    asking = prompting(path, rows, prompt=prompt, template=template, system=system, examples=examples)
    faults: list[Fault] = []
    maker = _Maker(
        asking, "template" if template else prompt, Path(path).parent, answer, kind, id, tools, images, declared, faults
    )
    tasks = [maker.task(number, row) for number, row in enumerate(rows)]
    faults += _repeated_ids(rows, tasks, id or "id")
    faults += _undeclared_tools(rows, maker)
    if faults:
        raise SpecError(_cap_faults(faults, len(rows)))
    return tasks


def dataset_hash(tasks: Sequence[Task]) -> str:
    """sha256 over everything that a run can see of the tasks, and their order."""
    return hash_json(
        [
            [
                task.id,
                _messages_json(task),
                _to_plain_json(task.answer),
                task.kind,
                _to_plain_json(task.columns),
                _to_plain_json(task.tools),
            ]
            for task in tasks
        ]
    )


def _check_bytes(rows: Sequence[Row], columns: Mapping[str, str | None]) -> None:
    """Refuses a column of bytes that a key reads; others were left out."""
    for column in filter(None, columns.values()):
        for row in rows:
            why = row.left_out.get(column) or row.left_out.get(column.partition(".")[0])
            if why is not None and column not in row.values:
                raise fail(row.place, column, why)


def _check_row_columns(rows: Sequence[Row], columns: Mapping[str, str | None]) -> None:
    fixes = {"answer": ", or write `answer: null` when no reward term needs it"}
    faults = [
        Fault(Place(rows[0].place.file), role, f"{missing} Name the column with the {role}{fixes.get(role, '')}.")
        for role, column in columns.items()
        if column is not None and (missing := missing_column(rows, column)) is not None
    ]
    if faults:
        raise SpecError(faults)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes tasks of rows and gathers what is wrong with them."""

    prompting: Prompting
    prompt: str
    """What a fault of the question is about."""
    folder: Path
    """Where images lie that are named relatively."""
    answer: str | None
    kind: str | None
    id: str | None
    tools: str | None
    images: str | None
    declared: Sequence[str] | None
    faults: list[Fault]
    undeclared: Counter[str] = field(default_factory=Counter)
    """Rows that describe a tool that the spec does not declare, by its name."""

    def task(self, number: int, row: Row) -> Task:
        messages = self._try_column(self.prompt, row, lambda: self.prompting.messages(row.values)) or ()
        named = self._read_cell(self.kind, row)
        listed = self._read_cell(self.tools, row)
        return Task(
            id=self._read_id(number, row),
            messages=self._with_images(messages, row),
            answer=self._read_gold(row),
            kind=None if named is None else str(named),
            columns=row.values if self.images is None else _drop_column(row.values, self.images),
            tools=self._read_tools(listed, row),
        )

    def _with_images(self, messages: tuple[Message, ...], row: Row) -> tuple[Message, ...]:
        if self.images is None:
            return messages
        references = self._read_cell(self.images, row)
        return self._try_column(self.images, row, lambda: with_images(messages, references, self.folder)) or messages

    def _read_tools(self, listed: Any, row: Row) -> tuple[str, ...] | None:
        if listed is None:
            return None
        return self._try_column(self.tools or "", row, lambda: tools_of_row(listed, self.declared, self.undeclared))

    def _read_gold(self, row: Row) -> Any:
        known = len(self.faults)
        gold = self._read_cell(self.answer, row)
        if self.answer is not None and gold in (None, "", []) and len(self.faults) == known:
            message = "the row has no answer; every row needs one. Fill it in or drop the row."
            self.faults.append(Fault(row.place, self.answer, message))
        return gold

    def _read_id(self, number: int, row: Row) -> str:
        value = self._read_cell(self.id or "id", row)
        if value not in (None, ""):
            return str(value)
        if self.id is not None:
            message = "the row has no id; every row needs a unique one. Fill it in, or name another column."
            self.faults.append(Fault(row.place, self.id, message))
        values = row.values if self.images is None else _drop_column(row.values, self.images)
        return f"{number:06d}-{hash_json(_to_plain_json(values))[:8]}"

    def _read_cell(self, column: str | None, row: Row) -> Any:
        if column is None or column in row.values:
            return None if column is None else row.values[column]
        return self._try_column(column, row, lambda: cell(row.values, column))

    def _try_column(self, column: str, row: Row, make: Callable[[], T]) -> T | None:
        """What a function makes of the row; None, and a fault, where it cannot."""
        try:
            return make()
        except ValueError as error:
            self.faults.append(Fault(row.place, column, str(error)))
            return None


def _undeclared_tools(rows: Sequence[Row], maker: _Maker) -> list[Fault]:
    """One fault for all rows that describe tools that the spec does not declare: nobody would answer their calls."""
    if not maker.undeclared:
        return []
    named = ", ".join(f"{name!r} in {number}" for name, number in maker.undeclared.most_common(MAX_FAULTS))
    more = f" and {len(maker.undeclared) - MAX_FAULTS} more" if len(maker.undeclared) > MAX_FAULTS else ""
    message = (
        f"{len(rows)} rows describe tools that the spec does not declare: {named}{more}. Declare them under `tools`, "
        "import them with `rlf tools import`, or take them out of the column."
    )
    return [Fault(Place(rows[0].place.file), "tools", message)]


def _repeated_ids(rows: Sequence[Row], tasks: Sequence[Task], column: str) -> list[Fault]:
    first: dict[str, Row] = {}
    faults = []
    for row, task in zip(rows, tasks, strict=True):
        if task.id in first:
            message = f"the id {task.id!r} is also that of {first[task.id].place}; ids must be unique. Change one."
            faults.append(Fault(row.place, column, message))
        first.setdefault(task.id, row)
    return faults


def _cap_faults(faults: Sequence[Fault], num_rows: int) -> list[Fault]:
    shown = sorted(faults)[:MAX_FAULTS]
    if len(faults) > MAX_FAULTS:
        message = f"{len(faults) - MAX_FAULTS} more faults in {num_rows} rows are not shown. Fix these first."
        shown.append(Fault(Place(shown[-1].place.file, shown[-1].place.line, shown[-1].place.column), "~", message))
    return shown


def _messages_json(task: Task) -> list[list[str]]:
    return [[message.role, message.content, *map(_image_hash, message.images)] for message in task.messages]


def _image_hash(reference: str) -> str:
    return hash_bytes(read_image_file(reference).data)


def _drop_column(values: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """A row without its images, which reward terms find in the task's messages."""
    return {name: value for name, value in values.items() if name != column}


def _to_plain_json(value: Any) -> Any:
    """A value of a task as canonical JSON can hold it: what JSON lacks as text."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain_json(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain_json(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
