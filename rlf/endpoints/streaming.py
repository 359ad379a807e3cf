"""A chat completion that comes as server-sent events: shown while it comes, and put together to a whole answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rlf.core.text import clean, clean_value
from rlf.endpoints.failure import unusable

EVENTS = "text/event-stream"
"""The content type of a stream."""
ASKED = {"stream": True, "stream_options": {"include_usage": True}}
"""Keys of a request for a stream."""


class StreamedChat:
    """The first choice of one."""

    def __init__(self, watch: Callable[[str], None]) -> None:
        """Takes what watches: it is called with the text so far."""
        self._watch = watch
        self._left = b""
        self._answer: dict[str, Any] = {}
        """Keys beside the choices: `usage`, an `error`."""
        self._text = self._reasoning = ""
        self._calls: dict[int, dict[str, str]] = {}
        self._finish: str | None = None

    def feed(self, data: bytes) -> None:
        """Takes more of the body, as it comes."""
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take_event(line[5:].strip())

    def answer(self) -> dict[str, Any]:
        """The whole, in the form of an answer that is not streamed. Raises EndpointFailure where it was cut off."""
        if self._finish is None and "error" not in self._answer:
            raise unusable("a stream that ends before its answer does")
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for _, call in sorted(self._calls.items())
        ]
        message = {"content": self._text, "reasoning_content": self._reasoning, "tool_calls": calls}
        answer: dict[str, Any] = clean_value(
            {**self._answer, "choices": [{"message": message, "finish_reason": self._finish}]}
        )
        return answer  # halves of one character may come in two events

    def _take_event(self, data: bytes) -> None:
        try:
            event = {} if data == b"[DONE]" else json.loads(data)
        except (ValueError, RecursionError) as fault:
            raise unusable("an event that is not JSON") from fault
        if not isinstance(event, dict):
            raise unusable(f"an event that is a JSON {type(event).__name__}")
        self._answer |= {key: event[key] for key in ("usage", "error") if event.get(key)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict) and not choice.get("index"):
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta")
            self._add_delta(delta if isinstance(delta, dict) else {})

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        self._reasoning += _text_or_empty(delta.get("reasoning_content") or delta.get("reasoning"))
        for part in delta.get("tool_calls") or ():
            if isinstance(part, dict):
                self._grow_call(part)
        if text := _text_or_empty(delta.get("content")):
            self._text += text
            self._watch(clean(self._text))

    def _grow_call(self, part: Mapping[str, Any]) -> None:
        at, function = part.get("index"), part.get("function")
        named = function if isinstance(function, dict) else {}
        place = at if isinstance(at, int) else len(self._calls)
        call = self._calls.setdefault(place, {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or _text_or_empty(part.get("id"))
        call["name"] = call["name"] or _text_or_empty(named.get("name"))
        call["arguments"] += _text_or_empty(named.get("arguments"))


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
