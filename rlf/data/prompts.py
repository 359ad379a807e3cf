"""From a row to the messages that the model is asked: system prompt, examples, the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.core import Fault, Place, SpecError
from rlf.core.json_values import NoJsonValue, read_json
from rlf.data.columns import cell
from rlf.data.rows import Row, read_values, shown_name
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
) -> Template | None:
    if source is None:
        return None
    try:
        template = Template(source)
    except TemplateFault as fault:
        faults.append(Fault(Place(shown_name(path)), key, str(fault)))
        return None
    place = Place(shown_name(path))
    if of_bytes := sorted(template.names & left_out.keys()):
        faults.append(Fault(place, key, f"the template names {of_bytes[0]!r}: {left_out[of_bytes[0]]}"))
    elif unknown := template.unknown_names(columns):
        faults.append(Fault(place, key, unknown))
    return template


def _make_examples(path: str, examples: Examples, template: Template | None) -> tuple[Message, ...]:
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
            f"got the role {_shorten_value(role)}; expected {', '.join(_ROLES)}. Write {{role, content}} messages."
        )
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"got the content {_shorten_value(content)}; expected text. Write what the {role} says.")
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
    words = "a prompt shows the role and the content alone"
    return f"a message of {role} has {key!r}; {words}. Take the key out, or write what it says into the content."


def _join_parts(parts: Sequence[Any]) -> str:
    """The text of a content in parts of text, as OpenAI's API takes it."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ValueError(
                f"got the part {_shorten_value(part)}; expected parts of text. Write {{type: text, text: ...}}; images "
                "stand in a column of their own, named by `images`."
            )
        if other := next((key for key in part if key not in ("type", "text") and not _says_nothing(part[key])), None):
            raise ValueError(f"a part of text has {other!r}; a prompt shows its text alone. Take the key out.")
        texts.append(text)
    return "".join(texts)


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
