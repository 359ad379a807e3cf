"""Conversations of other forms as this app's rows: OpenAI's and TRL's, ShareGPT's, Hermes', verl's.

What a form says beside text is kept: calls in tags or in `tool_calls`, thinking in tags, tools in a system message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlf.apps.demos.rows import decode_field

_ROLES = {
    **{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "model": "assistant"},
    **{"system": "system", "function_call": "calls", "tool_call": "calls"},
    **{"tool": "tool", "observation": "tool", "function": "tool", "tool_response": "tool", "function_response": "tool"},
}
"""Words of other forms for roles; `calls` is an assistant's message that holds nothing but calls."""
_CALL = re.compile(r"\s*<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)
_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)


def convert_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row of any of these forms in this app's own. Raises ValueError, in words, for one that is of none."""
    row = {key: values[key] for key in ("id", "kind") if values.get(key) is not None}
    before, after = _list(values.get("prompt")), values.get("completion", values.get("response"))
    messages = _list(values.get("messages")) or _list(values.get("conversations")) or _list(values.get("conversation"))
    if messages is None and before is not None and after is not None:
        messages = [*before, *(_list(after) or [{"role": "assistant", "content": after}])]
    if messages is None and isinstance(values.get("prompt"), str) and isinstance(after, str):
        messages = [{"role": "user", "content": values["prompt"]}, {"role": "assistant", "content": after}]
    if messages is None:
        raise ValueError(f"it has none of messages, conversations, prompt with completion (keys: {', '.join(values)})")
    found = list(_merge_results(_convert(message) for message in messages))
    if isinstance(values.get("system"), str) and values["system"].strip() and found[0]["role"] != "system":
        found.insert(0, {"role": "system", "content": values["system"]})
    tools = decode_field(values.get("tools")) or _tools_of_system(found)
    return row | {"messages": found} | ({"tools": tools} if tools else {})


def _list(value: Any) -> list[Mapping[str, Any]] | None:
    value = decode_field(value)
    is_list = isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
    return value if is_list else None


def _convert(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message in OpenAI's form; calls and thinking in tags are taken out of its text."""
    word = message.get("role", message.get("from"))
    role = "system" if word == "developer" else _ROLES.get(str(word))
    if role is None:
        raise ValueError(f"a message has the role {word!r}")
    content = message.get("content", message.get("value"))
    if role == "calls":
        calls = decode_field(content)
        return {"role": "assistant", "content": "", "tool_calls": calls if isinstance(calls, list) else [calls]}
    if role == "tool":
        text = content if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
        results = _RESULT.findall(text) if isinstance(text, str) else []
        return {**_keep(message, "tool_call_id"), "role": "tool", "content": results or text}
    if role == "user" and isinstance(content, str) and _RESULT.search(content) and not _RESULT.sub("", content).strip():
        return {"role": "tool", "content": _RESULT.findall(content)}
    if role != "assistant":
        return (
            {**message, "role": role, "content": content} if "role" in message else {"role": role, "content": content}
        )
    return _convert_assistant(message, content)


def _convert_assistant(message: Mapping[str, Any], content: Any) -> dict[str, Any]:
    kept = _keep(message, "tool_calls", "reasoning_content", "reasoning", "thinking")
    calls = [*(decode_field(kept.pop("tool_calls", None)) or ())]
    if isinstance(message.get("function_call"), Mapping):
        calls.append(message["function_call"])
    if isinstance(content, str):
        if (thought := _THINK.match(content)) is not None:
            kept.setdefault("reasoning_content", thought[1].strip())
            content = content[thought.end() :]
        calls += [_read_call(text) for text in _CALL.findall(content)]
        content = _CALL.sub("", content).strip() if _CALL.search(content) else content
    return {**kept, "role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _keep(message: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: message[key] for key in keys if message.get(key)}


def _read_call(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"a call in tags is not JSON: {text[:60]!r}") from error


def _merge_results(messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each result as a message of its own, where several stood in one."""
    for message in messages:
        texts = message["content"]
        if message["role"] == "tool" and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            yield from ({**message, "content": text} for text in texts)
        else:
            yield message


def _tools_of_system(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Tools that a system message lists in tags, which the chat format writes itself: the message is taken out."""
    if not messages or messages[0]["role"] != "system" or not isinstance(messages[0]["content"], str):
        return []
    listed = _TOOLS.search(messages[0]["content"])
    if listed is None:
        return []
    text = listed[1]
    found = decode_field(text)
    if isinstance(found, str):
        found = [decode_field(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, Mapping):
        found = [found]
    if not all(isinstance(tool, Mapping) for tool in found):
        raise ValueError("the tools in its system message are not JSON")
    if isinstance(messages, list):
        del messages[0]
    return list(found)
