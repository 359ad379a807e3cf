"""From a row to the messages that the model is asked: system prompt, examples, the question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.core import Fault, Place, SpecError
from rlf.data.columns import cell
from rlf.data.rows import Row, shown_name
from rlf.data.source import read_rows
from rlf.data.template import Template, TemplateFault
from rlf.types import Message

_ROLES = ("system", "user", "assistant")

Examples = str | Sequence[Mapping[str, Any]]
"""Solved questions, or a data file with them."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How the questions of a dataset are asked."""

    prompt: str
    """Column with the question or messages; not looked at where there is a template."""
    template: Template | None
    system: Template | None
    examples: tuple[Message, ...]

    def messages(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """The messages of a row. Raises ValueError with what is wrong with it."""
        value = cell(values, self.prompt) if self.template is None else self.template.render(values)
        messages = _make_messages(value)
        if self.system is not None:
            if messages[0].role == "system":
                raise ValueError("both the row and the spec have a system message. Keep one of them.")
            messages = (_make_message({"role": "system", "content": self.system.render(values)}), *messages)
        first = 1 if messages[0].role == "system" else 0
        return (*messages[:first], *self.examples, *messages[first:])


def prompting(
    path: str, rows: Sequence[Row], *, prompt: str, template: str | None, system: str | None, examples: Examples
) -> Prompting:
    """Parses the templates and compares their names with the columns. Raises SpecError with all that is wrong."""
    faults: list[Fault] = []
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    question = _make_template("template", template, path, columns, faults)
    role = _make_template("system", system, path, columns, faults)
    if faults:
        raise SpecError(faults)
    return Prompting(prompt, question, role, _make_examples(path, examples, question))


def _make_template(key: str, source: str | None, path: str, columns: list[str], faults: list[Fault]) -> Template | None:
    if source is None:
        return None
    try:
        template = Template(source)
    except TemplateFault as fault:
        faults.append(Fault(Place(shown_name(path)), key, str(fault)))
        return None
    if unknown := template.unknown_names(columns):
        faults.append(Fault(Place(shown_name(path)), key, unknown))
    return template


def _make_examples(path: str, examples: Examples, template: Template | None) -> tuple[Message, ...]:
    """Each as a question of the user's and an answer of the assistant's."""
    if isinstance(examples, str):
        rows = read_rows(examples, None, "train", None)
    else:
        rows = [Row(Place(shown_name(path)), example) for example in examples]
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


def _make_example(values: Mapping[str, Any], template: Template | None) -> tuple[Message, Message]:
    question = values["prompt"] if "prompt" in values else template.render(values) if template else None
    texts = {"prompt": question, "answer": values.get("answer")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"the {key} is {_shorten_value(text)}; examples are text. Write {{prompt: ..., answer: ...}}."
            )
    return Message("user", str(texts["prompt"])), Message("assistant", str(texts["answer"]))


def _make_messages(value: Any) -> tuple[Message, ...]:
    if isinstance(value, str):
        value = _decode_messages(value) or [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise ValueError(f"got {_shorten_value(value)}; expected text or a list of messages. Write a question.")
    messages = tuple(_make_message(item) for item in value)
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
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_messages = isinstance(value, list) and all(isinstance(item, dict) and "role" in item for item in value)
    return value if is_messages else None


def _make_message(item: Any) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, Mapping) else (None, None)
    if role not in _ROLES:
        raise ValueError(
            f"got the role {_shorten_value(role)}; expected {', '.join(_ROLES)}. Write {{role, content}} messages."
        )
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"got the content {_shorten_value(content)}; expected text. Write what the {role} says.")
    return Message(role, content)


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
