"""The OpenAI protocol as values: bodies of requests, and answers read with suspicion.

A server that answers 200 may still have failed: an error as a body, a body cut off, a completion without content.
Each is an EndpointFailure; a completion that is given back always says something.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlf.endpoints.failure import EndpointFailure, unusable
from rlf.types import Image, Outcome

_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class Usage:
    """What requests used up."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost_usd + other.cost_usd,
        )

    def by_unit(self) -> dict[str, float]:
        """As `ToolOutput.usage` has it; a cost of nothing is left out."""
        usage: dict[str, float] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
        }
        return {unit: value for unit, value in usage.items() if unit != "cost_usd" or value}


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
    """What a model said: text, calls, or both; never neither."""

    text: str
    calls: tuple[RequestedCall, ...]
    finish_reason: str
    """`stop`, `length`, `tool_calls`, ... in the server's words."""
    logprobs: tuple[TokenLogprob, ...]
    """One per sampled token; empty unless asked for and supported."""
    usage: Usage
    reasoning: str = ""
    """What a reasoning model thought, where the server tells it apart."""

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
class Pictures:
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
    """The mapping of an answer. Raises EndpointFailure where it is none, or speaks of an error."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise unusable(
            f"{len(data)} bytes that are not JSON: {data[:_MAX_WORDS].decode('utf-8', 'replace')}"
        ) from fault
    if not isinstance(answer, dict):
        raise unusable(f"a JSON {type(answer).__name__}")
    error = answer.get("error")
    if error or answer.get("object") == "error":
        words = error.get("message") if isinstance(error, dict) else error or answer.get("message")
        raise unusable(f"an error: {str(words)[:_MAX_WORDS]}")
    return answer


def read_chat(answer: Mapping[str, Any], usage: Usage) -> Completion:
    """The first choice of `/chat/completions`. Raises EndpointFailure where it says nothing."""
    choice = _first_choice(answer)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise unusable("a choice without a message")
    logprobs = choice.get("logprobs") or {}
    completion = Completion(
        text=_content(message.get("content")),
        calls=tuple(_call(call) for call in message.get("tool_calls") or ()),
        finish_reason=str(choice.get("finish_reason") or ""),
        logprobs=tuple(_token(item) for item in logprobs.get("content") or ()),
        usage=usage,
        reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
    )
    return _that_says_something(completion, message.get("refusal"))


def read_completion(answer: Mapping[str, Any], usage: Usage) -> Completion:
    """The first choice of `/completions`. Raises EndpointFailure where it says nothing."""
    choice = _first_choice(answer)
    logprobs = choice.get("logprobs") or {}
    tokens, values = logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
    tops = logprobs.get("top_logprobs") or [{}] * len(tokens)
    found = tuple(TokenLogprob(*item) for item in zip(tokens, values, tops, strict=False))
    finish = str(choice.get("finish_reason") or "")
    return _that_says_something(Completion(_content(choice.get("text")), (), finish, found, usage), None)


def read_images(answer: Mapping[str, Any], usage: Usage) -> Pictures:
    """The pictures of `/images/generations`, which were asked for as base64. Raises EndpointFailure for none."""
    items = answer.get("data")
    if not isinstance(items, list) or not items:
        raise unusable("no image")
    return Pictures(tuple(_image(item) for item in items), usage)


def mime_type_of(data: bytes) -> str | None:
    """The MIME type of a PNG, JPEG, GIF or WebP file by its first bytes; None for anything else."""
    for start, mime_type in _SIGNATURES.items():
        if data.startswith(start):
            return mime_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def count_tokens(answer: Mapping[str, Any]) -> tuple[int, int]:
    """Prompt and completion tokens that an answer says were used; 0 where it does not."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return 0, 0
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens"))
    return _count(prompt), _count(completion)


def count_images(answer: Mapping[str, Any]) -> int:
    """Pictures that an answer holds."""
    items = answer.get("data")
    return len(items) if isinstance(items, list) else 0


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise unusable("no choices")
    _check_lists(choices[0])
    return choices[0]


def _check_lists(choice: Mapping[str, Any]) -> None:
    """Raises EndpointFailure for a choice in which something else stands where a list should."""
    message, logprobs = choice.get("message"), choice.get("logprobs") or {}
    if not isinstance(logprobs, dict):
        raise unusable(f"logprobs that are a JSON {type(logprobs).__name__}")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    for name, value in {"tool_calls": calls, **logprobs}.items():
        if name in _LISTS and value and not isinstance(value, list):
            raise unusable(f"{name} that are a JSON {type(value).__name__}")


_LISTS = frozenset({"tool_calls", "content", "tokens", "token_logprobs", "top_logprobs"})
"""Parts of a choice, and of its logprobs, that are lists."""


def _that_says_something(completion: Completion, refusal: Any) -> Completion:
    if completion.text.strip() or completion.calls:
        return completion
    said = f"refused: {str(refusal)[:_MAX_WORDS]}" if refusal else "said nothing"
    text = f"the model {said} (finish_reason: {completion.finish_reason or 'none given'})"
    raise EndpointFailure(Outcome.TOOL_ERROR, text)


def _content(content: Any) -> str:
    """Text of a message: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _call(call: Any) -> RequestedCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise unusable("a tool call without a function")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return RequestedCall(str(call.get("id") or ""), str(function.get("name") or ""), text)


def _token(item: Any) -> TokenLogprob:
    try:
        top = {str(other["token"]): float(other["logprob"]) for other in item.get("top_logprobs") or ()}
        return TokenLogprob(str(item["token"]), float(item["logprob"]), top)
    except (TypeError, KeyError, ValueError, AttributeError) as fault:
        raise unusable(f"logprobs that cannot be read ({type(fault).__name__})") from fault


def _image(item: Any) -> Image:
    encoded = item.get("b64_json") if isinstance(item, dict) else None
    if not isinstance(encoded, str):
        raise unusable("an image that is not base64 (`b64_json`)")
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError as fault:
        raise unusable("an image whose base64 is broken") from fault
    mime_type = mime_type_of(data)
    if mime_type is None:
        raise unusable(f"{len(data)} bytes that are no PNG, JPEG, GIF or WebP image")
    return Image(data, mime_type)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
