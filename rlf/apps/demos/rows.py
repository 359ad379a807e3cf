"""Demonstrations: conversations in OpenAI's form, one a row, with the tools that they call.

A row has `messages`, or `prompt` and `completion` as TRL has them; then `tools`, `id` and `kind`. What stands before
the first assistant's message, or in `prompt`, is the task; what follows are turns. `rlf demos` writes such files, from
other forms too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlf.core import Fault, Place, SpecError
from rlf.core.identity import hash_json
from rlf.core.text import show_value
from rlf.data.files import fail, shown_name
from rlf.data.source import read_rows
from rlf.data.tasks import MAX_FAULTS, read_message
from rlf.types import Task, ToolCall, ToolDescription

_THINKING = ("reasoning_content", "reasoning", "thinking")
_KNOWN = {"role", "content", "tool_calls", *_THINKING}


@dataclass(frozen=True, slots=True)
class DemonstratedTurn:
    """What one turn says, and what answers it."""

    content: str
    """The answer; of a turn that calls, the text beside its calls."""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()
    """One for each call; none where the conversation ends with the calls."""
    reply: str | None = None
    """The user's next message after an answer; None: there is none."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A task solved."""

    task: Task
    turns: tuple[DemonstratedTurn, ...]
    tools: tuple[ToolDescription, ...] | None = None
    """What the row says that the model is shown; None: it does not say."""


def load_demonstrations(
    path: str, limit: int | None = None, *, declared: Sequence[str] | None = None, describes_tools: bool = False
) -> list[Demonstration]:
    """The demonstrations of a file, in its order.

    Args:
        declared: names of the tools that a policy will have; None: any.
        describes_tools: whether a row may describe others, as the rows of some worlds do.

    Raises:
        SpecError: a row is none; each faulty row is named.
    """
    rows = read_rows(path, None, "train", limit)
    if not rows:
        raise fail(Place(shown_name(path)), "", "there are no rows; expected at least one. Check the file.")
    found, faults, seen = list[Demonstration](), list[Fault](), dict[str, Place]()
    for row in rows:
        try:
            one = read_demonstration(row.values)
            _check_tools(one, declared, describes_tools)
            if one.task.id in seen:
                raise ValueError(f"the id {one.task.id!r} is also that of {seen[one.task.id]}. Change one.")
        except ValueError as error:
            faults.append(Fault(row.place, "", str(error)))
            continue
        seen[one.task.id] = row.place
        found.append(one)
    if faults:
        more = f" ({len(faults) - MAX_FAULTS} more faulty rows are not shown)"
        last = faults[:MAX_FAULTS][-1]
        cut = Fault(last.place, last.path, last.message + more) if len(faults) > MAX_FAULTS else last
        raise SpecError([*faults[: MAX_FAULTS - 1], cut] if len(faults) >= MAX_FAULTS else faults)
    return found


def load_solutions(path: str) -> dict[str, str]:
    """The demonstrations of a file in plain words, by the id of the task and by its question. Raises SpecError."""
    found: dict[str, str] = {}
    for one in load_demonstrations(path):
        lines = list[str]()
        for turn in one.turns:
            lines += [f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in turn.calls]
            lines += [*turn.results, turn.content]
        found |= dict.fromkeys((one.task.id, one.task.question), "Solution:\n" + "\n".join(filter(None, lines)))
    return found


def _check_tools(one: Demonstration, declared: Sequence[str] | None, describes_tools: bool) -> None:
    known = [*(declared or ()), *(tool.name for tool in one.tools or () if declared is None or describes_tools)]
    called = dict.fromkeys(call.name for turn in one.turns for call in turn.calls)
    unknown = [name for name in called if name not in known]
    if unknown and (declared is not None or one.tools is not None):
        raise ValueError(
            f"it calls {unknown[0]!r}, which the policy will not have (tools: {', '.join(known) or 'none'}). Declare "
            "it under `tools`, or leave the row out."
        )


def read_demonstration(values: Mapping[str, Any]) -> Demonstration:
    """A row in the form of this module. Raises ValueError, in words, for one that is not."""
    prompt, completion = values.get("prompt"), values.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list) and values.get("messages") is None:
        before, after = prompt, completion
    else:
        messages = decode_field(values.get("messages"))
        if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
            raise ValueError(
                f"got {show_value(messages)} as `messages`; expected a list of {{role, content}}. Other forms are "
                "converted by `rlf demos --file`."
            )
        first = next((at for at, one in enumerate(messages) if one.get("role") == "assistant"), len(messages))
        before, after = messages[:first], messages[first:]
    if not before or not after:
        raise ValueError("expected a prompt and then an assistant's message. Leave the row out.")
    plain = ({**one, "role": "system"} if one.get("role") == "developer" else one for one in before)
    prompt_messages = tuple(map(read_message, plain))
    tools = _read_tools(decode_field(values.get("tools")))
    kind, given = values.get("kind"), values.get("id")
    turns = tuple(_read_turns(after))
    id_ = str(given) if given not in (None, "") else hash_json([before, after])[:16]
    return Demonstration(Task(id_, prompt_messages, kind=None if kind is None else str(kind)), turns, tools)


def _read_turns(messages: Sequence[Mapping[str, Any]]) -> list[DemonstratedTurn]:
    turns, at = list[DemonstratedTurn](), 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if message.get("role") != "assistant":
            raise ValueError(f"a message of {message.get('role')!r} stands where the assistant's is expected.")
        if other := next((key for key, value in message.items() if key not in _KNOWN and value), None):
            raise ValueError(f"an assistant's message has {other!r}, which is not trained on. Take the key out.")
        calls = _read_calls(decode_field(message.get("tool_calls")) or ())
        answers = []
        while at < len(messages) and messages[at].get("role") == "tool":
            answers.append(messages[at])
            at += 1
        results = _match_results([call_id for call_id, _ in calls], answers, is_last=at == len(messages))
        reply = None
        if not calls and at < len(messages) and messages[at].get("role") == "user":
            reply, at = read_message(messages[at]).content, at + 1
        content = _read_text(message.get("content"))
        thinking = next((_read_text(message[key]) for key in _THINKING if message.get(key)), "")
        if not calls and not content:
            raise ValueError("an assistant's message neither calls a tool nor says anything.")
        turns.append(DemonstratedTurn(content, thinking.strip(), tuple(call for _, call in calls), results, reply))
    if turns[-1].reply is not None:
        raise ValueError("the conversation ends with the user's message; expected the assistant's.")
    return turns


def _read_calls(values: Sequence[Any]) -> list[tuple[str, ToolCall]]:
    """Calls with their ids; arguments are an object, or JSON as text."""
    calls = []
    for value in values:
        function = value.get("function", value) if isinstance(value, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"got the call {show_value(value)}; expected {{function: {{name, arguments}}}}.")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError as error:
                raise ValueError(f"the arguments of the call of {function['name']!r} are not JSON: {error}.") from error
        if not isinstance(arguments or {}, Mapping):
            raise ValueError(
                f"the arguments of the call of {function['name']!r} are {show_value(arguments)}, no object."
            )
        calls.append((str(value.get("id") or ""), ToolCall(function["name"], dict(arguments or {}))))
    return calls


def _match_results(ids: Sequence[str], answers: Sequence[Mapping[str, Any]], *, is_last: bool) -> tuple[str, ...]:
    """The results in the order of the calls: by their ids where all have one, else in their own."""
    if len(answers) != len(ids) and not (is_last and not answers):
        raise ValueError(f"{len(ids)} calls have {len(answers)} results; expected one each.")
    by_id = {str(answer.get("tool_call_id") or ""): answer for answer in answers}
    if len(by_id) == len(answers) and set(by_id) == set(ids):
        answers = [by_id[id_] for id_ in ids]
    return tuple(_read_text(answer.get("content")) for answer in answers)


def _read_tools(values: Any) -> tuple[ToolDescription, ...] | None:
    if not values:
        return None
    tools = []
    for value in values if isinstance(values, list) else [values]:
        function = value.get("function", value) if isinstance(value, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(
                f"got the tool {show_value(value)}; expected {{function: {{name, description, parameters}}}}."
            )
        schema = function.get("parameters") or function.get("inputSchema") or {"type": "object", "properties": {}}
        tools.append(ToolDescription(function["name"], str(function.get("description") or ""), schema))
    return tuple(tools)


def _read_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if None in parts:
            raise ValueError(f"got the content {show_value(content)}; expected text.")
        return "".join(map(str, parts))
    if not isinstance(content, str):
        raise ValueError(f"got the content {show_value(content)}; expected text.")
    return content


def decode_field(value: Any) -> Any:
    """A value that some files hold as JSON in a text."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def write_demonstration(one: Demonstration, origin: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The row of a demonstration, which `read_demonstration` reads back."""
    before = [{"role": message.role, "content": message.content} for message in one.task.messages]
    after = list[dict[str, Any]]()
    for number, turn in enumerate(one.turns):
        message: dict[str, Any] = {"role": "assistant", "content": turn.content}
        if turn.thinking:
            message["reasoning_content"] = turn.thinking
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{at}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
                }
                for at, call in enumerate(turn.calls)
            ]
        after.append(message)
        for at, text in enumerate(turn.results):
            after.append(
                {"role": "tool", "tool_call_id": f"call_{number}_{at}", "name": turn.calls[at].name, "content": text}
            )
        if turn.reply is not None:
            after.append({"role": "user", "content": turn.reply})
    row: dict[str, Any] = {"id": one.task.id}
    if one.task.kind is not None:
        row["kind"] = one.task.kind
    # An assistant's message of the prompt is an example and no turn: only the form of two lists says so.
    has_examples = any(message.role == "assistant" for message in one.task.messages)
    row |= {"prompt": before, "completion": after} if has_examples else {"messages": [*before, *after]}
    if one.tools is not None:
        row["tools"] = [tool.as_openai() for tool in one.tools]
    return row | ({"origin": dict(origin)} if origin else {})
