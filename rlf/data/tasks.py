"""From rows to tasks: which column is the prompt, the answer, the kind, the tools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlf.core import Fault, Place, SpecError, hash_bytes, hash_json, nearest
from rlf.core.plain_json import NoJsonValue, read_json
from rlf.core.text import list_some, show_value
from rlf.data.files import Row, cell, fail, missing_column, read_values, shown_name
from rlf.data.source import read_rows
from rlf.types import Message, Task

if TYPE_CHECKING:
    from rlf.data.templates import ColumnTemplate

# From a row to the messages that the model is asked: system prompt, examples, the question.

_ROLES = ("system", "user", "assistant")

Examples = str | Sequence[Mapping[str, Any]]
"""Solved questions, or a data file with them."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How the questions of a dataset are asked."""

    prompt: str
    """Column with the question or messages; not looked at where there is a template."""
    template: ColumnTemplate | None
    system: ColumnTemplate | None
    examples: tuple[Message, ...]

    def messages(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """The messages of a row. Raises ValueError with what is wrong with it."""
        value = cell(values, self.prompt) if self.template is None else self.template.render(values)
        messages = _make_messages(value)
        if self.system is not None:
            if messages[0].role == "system":
                raise ValueError("both the row and the spec have a system message. Keep one of them.")
            messages = (read_message({"role": "system", "content": self.system.render(values)}), *messages)
        first = 1 if messages[0].role == "system" else 0
        return (*messages[:first], *self.examples, *messages[first:])


def prompting(
    path: str, rows: Sequence[Row], *, prompt: str, template: str | None, system: str | None, examples: Examples
) -> Prompting:
    """Parses the templates and compares their names with the columns. Raises SpecError with all that is wrong."""
    faults: list[Fault] = []
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    left_out = {column: why for row in rows for column, why in row.left_out.items()}
    question = _make_template("template", template, path, columns, left_out, faults)
    role = _make_template("system", system, path, columns, left_out, faults)
    if faults:
        raise SpecError(faults)
    return Prompting(prompt, question, role, _make_examples(path, examples, question))


def _make_template(
    key: str, source: str | None, path: str, columns: list[str], left_out: Mapping[str, str], faults: list[Fault]
) -> ColumnTemplate | None:
    if source is None:
        return None
    from rlf.data.templates import ColumnTemplate, ColumnTemplateFault

    try:
        template = ColumnTemplate(source)
    except ColumnTemplateFault as fault:
        faults.append(Fault(Place(shown_name(path)), key, str(fault)))
        return None
    place = Place(shown_name(path))
    if of_bytes := sorted(template.names & left_out.keys()):
        faults.append(Fault(place, key, f"the template names {of_bytes[0]!r}: {left_out[of_bytes[0]]}"))
    elif unknown := template.unknown_names(columns) or template.single_braces(columns):
        faults.append(Fault(place, key, unknown))
    return template


def _make_examples(path: str, examples: Examples, template: ColumnTemplate | None) -> tuple[Message, ...]:
    """Each as a question of the user's and an answer of the assistant's."""
    if isinstance(examples, str):
        rows = read_rows(examples, None, "train", None)
    else:
        rows = [read_values(Row(Place(shown_name(path)), example)) for example in examples]
    faults: list[Fault] = []
    messages: list[Message] = []
    for number, row in enumerate(rows, start=1):
        try:
            messages += _make_example(row.values, template)
        except ValueError as fault:
            faults.append(Fault(row.place, "examples", f"example {number}: {fault}"))
    if faults:
        raise SpecError(faults)
    return tuple(messages)


def _make_example(values: Mapping[str, Any], template: ColumnTemplate | None) -> tuple[Message, Message]:
    question = values["prompt"] if "prompt" in values else template.render(values) if template else None
    texts = {"prompt": question, "answer": values.get("answer")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"the {key} is {show_value(text)}; examples are text. Write {{prompt: ..., answer: ...}}.")
    return Message("user", str(texts["prompt"])), Message("assistant", str(texts["answer"]))


def _make_messages(value: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        value = _decode_messages(value) or [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise ValueError(f"got {show_value(value)}; expected text or a list of messages. Write a question.")
    messages = tuple(read_message(item) for item in value)
    if messages[-1].role != "user":
        raise ValueError(
            f"the last message is of role {messages[-1].role}; expected user. End with the user's question."
        )
    return messages


def _decode_messages(text: str) -> list[Any] | None:
    """The messages in a text that is a JSON list of them; None for any other text, which is a question."""
    if not text.lstrip().startswith("["):
        return None
    try:
        value = read_json(text)
    except NoJsonValue:
        if '"role"' in text:  # of messages, and not a question that looks like JSON
            raise
        return None
    except ValueError:
        return None
    is_messages = isinstance(value, list) and all(isinstance(item, dict) and "role" in item for item in value)
    return value if is_messages else None


def read_message(item: Any) -> Message:
    """A message of a prompt, whose content is text or a list of text parts.

    Raises:
        ValueError: it is none, or has a key that a prompt cannot show: nothing of a message is left out in silence.
    """
    role, content = (item.get("role"), item.get("content")) if isinstance(item, Mapping) else (None, None)
    if isinstance(item, Mapping):
        for key, value in item.items():
            if key not in ("role", "content") and not _says_nothing(value):
                raise ValueError(_explain_key(str(key), str(role)))
    if isinstance(content, list | tuple):
        content = _join_parts(content)
    if role not in _ROLES:
        raise ValueError(
            f"got the role {show_value(role)}; expected {', '.join(_ROLES)}. Write {{role, content}} messages."
        )
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"got the content {show_value(content)}; expected text. Write what the {role} says.")
    return Message(role, content)


def _says_nothing(value: Any) -> bool:
    """Whether the value of a key says nothing, as tables have it whose messages share their columns."""
    if isinstance(value, Mapping):
        return all(map(_says_nothing, value.values()))
    return value in (None, "", [], ())


_CALLS = ("tool_calls", "function_call", "tool_call_id")


def _explain_key(key: str, role: str) -> str:
    if key in _CALLS:
        words = "earlier calls and their results are not part of a prompt. Begin the conversation after them"
        return f"a message of {role} has {key!r}; {words}, or write in its content what they came to."
    if key in ("reasoning_content", "reasoning", "thinking"):
        words = "prompts show no earlier thinking"
        return f"a message of {role} has {key!r}; {words}. Take it out, or write it into the content."
    if key in ("from", "value"):
        return (
            f"a message has {key!r}, as in ShareGPT. Write `role: user` for `from: human`, and `content` for `value`."
        )
    words = "a prompt shows the role and the content alone"
    return f"a message of {role} has {key!r}; {words}. Take the key out, or write what it says into the content."


def _join_parts(parts: Sequence[Any]) -> str:
    """The text of a content in parts of text, as OpenAI's API takes it."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ValueError(
                f"got the part {show_value(part)}; expected parts of text. Write {{type: text, text: ...}}; images "
                "stand in a column of their own, named by `images`."
            )
        if other := next((key for key in part if key not in ("type", "text") and not _says_nothing(part[key])), None):
            raise ValueError(f"a part of text has {other!r}; a prompt shows its text alone. Take the key out.")
        texts.append(text)
    return "".join(texts)


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
    cluster: str | None = None,
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
        cluster: column with what questions have in common.
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
    columns = {"answer": answer, "kind": kind, "cluster": cluster, "id": id, "tools": tools, "images": images}
    named = {"prompt": None if template is not None else prompt, **columns}
    _check_bytes(rows, named)
    _check_row_columns(rows, named)
    asking = prompting(path, rows, prompt=prompt, template=template, system=system, examples=examples)
    maker = _Maker(asking, "template" if template else prompt, Path(path).parent, declared, **columns)
    tasks = [maker.task(number, row) for number, row in enumerate(rows)]
    faults = [*maker.faults, *_repeated_ids(rows, tasks, id or "id"), *_undeclared_tools(rows, maker)]
    if faults:
        shown = sorted(faults)[:MAX_FAULTS]
        if len(faults) > MAX_FAULTS:
            message = f"{len(faults) - MAX_FAULTS} more faults in {len(rows)} rows are not shown. Fix these first."
            shown.append(Fault(Place(shown[-1].place.file, shown[-1].place.line, shown[-1].place.column), "~", message))
        raise SpecError(shown)
    return tasks


def dataset_hash(tasks: Sequence[Task]) -> str:
    """sha256 over everything that a run can see of the tasks, and their order."""
    return hash_json(
        [
            [
                task.id,
                [[each.role, each.content, *map(_hash_image, each.images)] for each in task.messages],
                _to_plain_json(task.answer),
                task.kind,
                _to_plain_json(task.columns),
                _to_plain_json(task.tools),
            ]
            for task in tasks
        ]
    )


def _hash_image(reference: str) -> str:
    from rlf.core.images import read_image_file

    return hash_bytes(read_image_file(reference).data)


def _check_bytes(rows: Sequence[Row], columns: Mapping[str, str | None]) -> None:
    """Refuses a column of bytes that a key reads; others were left out."""
    for column in filter(None, columns.values()):
        for row in rows:
            why = row.left_out.get(column) or row.left_out.get(column.partition(".")[0])
            if why is not None and column not in row.values:
                raise fail(row.place, column, why)


def _check_row_columns(rows: Sequence[Row], columns: Mapping[str, str | None]) -> None:
    named = ((role, column) for role, column in columns.items() if column is not None)
    lacking = [(*each, words) for each in named if (words := missing_column(rows, each[1])) is not None]
    if lacking:
        from rlf.core.mistakes import advise_column

        file, names = rows[0].place.file, list(rows[0].values)
        raise SpecError(
            Fault(Place(file), r, words + advise_column(r, column, () if nearest(column, names) else names, file))
            for r, column, words in lacking
        )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes tasks of rows and gathers what is wrong with them."""

    prompting: Prompting
    prompt: str
    """What a fault of the question is about."""
    folder: Path
    """Where images lie that are named relatively."""
    declared: Sequence[str] | None
    answer: str | None
    kind: str | None
    cluster: str | None
    id: str | None
    tools: str | None
    images: str | None
    faults: list[Fault] = field(default_factory=list, init=False)
    undeclared: Counter[str] = field(default_factory=Counter, init=False)
    """Rows that describe a tool that the spec does not declare, by its name."""

    def task(self, number: int, row: Row) -> Task:
        messages = self._try_column(self.prompt, row, lambda: self.prompting.messages(row.values)) or ()
        listed = self._read_cell(self.tools, row)
        known = len(self.faults)
        gold = self._read_cell(self.answer, row)
        if self.answer is not None and gold in (None, "", []) and len(self.faults) == known:
            message = "the row has no answer; every row needs one. Fill it in or drop the row."
            self.faults.append(Fault(row.place, self.answer, message))
        return Task(
            id=self._read_id(number, row),
            messages=self._with_images(messages, row),
            answer=gold,
            kind=self._read_name(self.kind, row),
            columns=row.values if self.images is None else _drop_column(row.values, self.images),
            tools=self._read_tools(listed, row),
            cluster=self._read_name(self.cluster, row) or None,
        )

    def _read_name(self, column: str | None, row: Row) -> str | None:
        named = self._read_cell(column, row)
        return None if named is None else str(named)

    def _with_images(self, messages: tuple[Message, ...], row: Row) -> tuple[Message, ...]:
        if self.images is None:
            return messages
        from rlf.data.images import with_images

        references = self._read_cell(self.images, row)
        return self._try_column(self.images, row, lambda: with_images(messages, references, self.folder)) or messages

    def _read_tools(self, listed: Any, row: Row) -> tuple[str, ...] | None:
        if listed is None:
            return None
        from rlf.data.images import tools_of_row

        return self._try_column(self.tools or "", row, lambda: tools_of_row(listed, self.declared, self.undeclared))

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
    named = [f"{name!r} in {number}" for name, number in maker.undeclared.most_common()]
    message = (
        f"{len(rows)} rows describe tools that the spec does not declare: {list_some(named, MAX_FAULTS)}. Declare them "
        "under `tools`, import them with `rlf tools import`, or take them out of the column."
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
