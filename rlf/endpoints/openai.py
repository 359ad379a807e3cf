"""The OpenAI protocol as values: bodies of requests, and answers read with suspicion.

A server that answers 200 may still have failed: an error as a body, a body cut off, a completion without content.
Each is an EndpointFailure; a completion that is given back always says something.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlf.core.images import decode_base64, read_image_header
from rlf.core.redact import clean
from rlf.core.text import clean_value
from rlf.endpoints.spec import EndpointFailure, Usage, unusable
from rlf.types import Image, Outcome

_MAX_WORDS = 300
_THINK, _END_THINK = "<think>", "</think>"


class NoAnswer(StrEnum):
    """Why a model that was asked gave no answer. Each is counted in the usage of the call, by this name."""

    TRUNCATED = "truncated_answers"
    """The token limit cut it before it wrote anything but thinking."""
    FILTERED = "filtered_answers"
    """The server's content filter withheld it."""
    REFUSED = "refused_answers"
    """The model declined to answer."""
    EMPTY = "empty_answers"
    """It ended by itself and was empty."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One sampled token."""

    token: str
    logprob: float
    """Natural log."""
    top: Mapping[str, float]
    """The likeliest tokens at this place with their log-probabilities, as many as were asked for."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that the model asks for."""

    id: str
    name: str
    arguments: str
    """JSON text as the model wrote it; may be anything."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer: text, calls, or both; never neither."""

    text: str
    calls: tuple[RequestedCall, ...]
    finish_reason: str
    """`stop`, `length`, `tool_calls`, ... in the server's words."""
    logprobs: tuple[TokenLogprob, ...]
    """One per sampled token; empty unless asked for and supported."""
    usage: Usage
    reasoning: str = ""
    """What a reasoning model thought: in a field of its own, or between `<think>` and `</think>`."""

    @property
    def is_truncated(self) -> bool:
        """Whether the token limit cut it."""
        return self.finish_reason == "length"

    def message(self) -> dict[str, Any]:
        """The assistant's message, to be put before the next request's."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.calls
            ]
        return message


@dataclass(frozen=True, slots=True)
class Images:
    """Images that a model made."""

    images: tuple[Image, ...]
    usage: Usage


def image_part(image: Image) -> dict[str, Any]:
    """An image as a part of a message's `content`."""
    data = base64.b64encode(image.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.mime_type};base64,{data}"}}


def text_part(text: str) -> dict[str, Any]:
    """A text as a part of a message's `content`."""
    return {"type": "text", "text": text}


def json_schema_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A `response_format` that holds the answer to a JSON Schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": True}}


def read_answer(data: bytes) -> dict[str, Any]:
    """The mapping of an answer. Raises EndpointFailure for anything else."""
    words = data[:_MAX_WORDS].decode("utf-8", "replace")
    try:
        answer: Any = clean_value(json.loads(data))
    except (ValueError, RecursionError) as fault:
        raise unusable(f"{len(data)} bytes that are not JSON: {words}") from fault
    if not isinstance(answer, dict):
        raise unusable(f"a JSON {type(answer).__name__}: {words}")
    return answer


def refuse_error(answer: Mapping[str, Any]) -> None:
    """Raises EndpointFailure where an answer reports an error, which is no nonsense: it has no status."""
    error = answer.get("error")
    if error or answer.get("object") == "error":
        words = error.get("message") if isinstance(error, dict) else error or answer.get("message")
        raise EndpointFailure(Outcome.SERVICE_ERROR, f"the endpoint answered with an error: {str(words)[:_MAX_WORDS]}")


def read_chat(answer: Mapping[str, Any], usage: Usage) -> Completion:
    """The first choice of `/chat/completions`. Raises EndpointFailure where it says nothing."""
    choice = _first_choice(answer)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise unusable(f"a choice without a message: {json.dumps(choice)[:_MAX_WORDS]}")
    logprobs = choice.get("logprobs") or {}
    thinking, text = split_thinking(_content_text(message.get("content")))
    completion = Completion(
        text=text,
        calls=tuple(_read_requested_call(call) for call in message.get("tool_calls") or ()),
        finish_reason=str(choice.get("finish_reason") or ""),
        logprobs=tuple(_read_token(item) for item in logprobs.get("content") or ()),
        usage=usage,
        reasoning=str(message.get("reasoning_content") or message.get("reasoning") or thinking),
    )
    return _that_says_something(completion, message.get("refusal"))


def split_thinking(text: str) -> tuple[str, str]:
    """The thinking and the answer in a message, where the server leaves `<think>` in it.

    A `</think>` that nothing opened ends thinking too: the model's template has opened it. What was never closed is all
    thought.
    """
    before, opened, rest = text.partition(_THINK)
    if opened and not before.strip():
        thinking, _, answer = rest.partition(_END_THINK)
        return thinking.strip(), answer.lstrip("\n")
    thinking, closed, answer = text.partition(_END_THINK)
    if closed and _THINK not in thinking:
        return thinking.strip(), answer.lstrip("\n")
    return "", text


def read_completion(answer: Mapping[str, Any], usage: Usage) -> Completion:
    """The first choice of `/completions`. Raises EndpointFailure where it says nothing."""
    choice = _first_choice(answer)
    finish = str(choice.get("finish_reason") or "")
    return _that_says_something(Completion(_content_text(choice.get("text")), (), finish, (), usage), None)


def read_images(answer: Mapping[str, Any], usage: Usage) -> tuple[list[Image | str], Usage]:
    """The images of `/images/generations`: files, or addresses where they lie. Raises EndpointFailure for none."""
    items = answer.get("data")
    if not isinstance(items, list) or not items:
        raise unusable("no image")
    return list(map(_read_image, items)), usage


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise unusable(f"no choices: {json.dumps(answer)[:_MAX_WORDS]}")
    choice: Mapping[str, Any] = choices[0]
    message, logprobs = choice.get("message"), choice.get("logprobs") or {}
    if not isinstance(logprobs, dict):
        raise unusable(f"logprobs that are a JSON {type(logprobs).__name__}")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    for name, value in {"tool_calls": calls, **logprobs}.items():
        if name in _LISTS and value and not isinstance(value, list):
            raise unusable(f"{name} that are a JSON {type(value).__name__}")
    return choice


_LISTS = frozenset({"tool_calls", "content"})
"""Parts of a choice, and of its logprobs, that are lists."""


def _that_says_something(completion: Completion, refusal: Any) -> Completion:
    """The completion. Raises EndpointFailure where it says nothing, or where what it says was withheld."""
    finish = completion.finish_reason
    reason, words = NoAnswer.EMPTY, "the model's answer is empty"
    if finish == "content_filter":
        reason, words = NoAnswer.FILTERED, "the server's content filter blocked the model's answer"
    elif refusal:
        reason, words = NoAnswer.REFUSED, f"the model refused: {str(refusal)[:_MAX_WORDS]}"
    elif completion.text.strip() or completion.calls:
        return completion
    elif finish == "length":
        thought = " while it was thinking" if completion.reasoning else ""
        reason, words = NoAnswer.TRUNCATED, f"the model's token limit cut its answer{thought}, before it wrote anything"
    raise EndpointFailure(Outcome.TOOL_ERROR, f"{words} (finish_reason: {finish or 'none given'})", unit=reason.value)


def _content_text(content: Any) -> str:
    """Text of a message: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _read_requested_call(call: Any) -> RequestedCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise unusable("a tool call without a function")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return RequestedCall(str(call.get("id") or ""), str(function.get("name") or ""), text)


def _read_token(item: Any) -> TokenLogprob:
    try:
        top = {str(other["token"]): float(other["logprob"]) for other in item.get("top_logprobs") or ()}
        return TokenLogprob(str(item["token"]), float(item["logprob"]), top)
    except (TypeError, KeyError, ValueError, AttributeError) as fault:
        raise unusable(f"logprobs that cannot be read ({type(fault).__name__})") from fault


def _read_image(item: Any) -> Image | str:
    """A file, or the address where one lies."""
    encoded, url = (item.get("b64_json"), item.get("url")) if isinstance(item, dict) else (None, None)
    if not isinstance(encoded, str) and isinstance(url, str):
        if not url.startswith("data:"):
            return url
        encoded = url.partition(",")[2]
    if not isinstance(encoded, str):
        raise unusable("an image that is neither base64 (`b64_json`) nor an address (`url`)")
    try:
        return image_of(decode_base64(encoded))
    except ValueError as fault:
        raise unusable("an image whose base64 is broken") from fault


def image_of(data: bytes) -> Image:
    """A file as an image. Raises EndpointFailure for anything else."""
    header = read_image_header(data)
    if header is None:
        raise unusable(f"{len(data)} bytes that are not a PNG, JPEG, GIF or WebP image")
    return Image(data, header.mime_type)


EVENTS = "text/event-stream"
"""The content type of a stream."""
ASKED = {"stream": True, "stream_options": {"include_usage": True}}
"""Keys of a request for a stream."""


class StreamedChat:
    """A chat completion that comes as server-sent events: shown while it comes, and put together to a whole answer."""

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
