"""Messages to and from a model behind a server: what begins a conversation, and its calls, in whatever form they come.

A server without a tool parser hands `<tool_call>{...}</tool_call>` on as the message's text. Which family wrote it is
not known, so every format tries; the one that reads calls of known tools without a fault is right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.marks import _FILES, _compile_pattern
from rlf.core.errors import RlfError
from rlf.core.text import clean_value
from rlf.endpoints.openai import Completion, RequestedCall, image_part, text_part
from rlf.types import FailureClass, Outcome, ParseFailure, ToolCall, ToolDescription, ToolResult

if TYPE_CHECKING:
    from rlf.chat.format import ChatFormat
    from rlf.chat.marks import ParsedTurn

_VAGUE: Final = (FailureClass.WRONG_TAG, FailureClass.BAD_CALL, FailureClass.EMPTY)
"""Failures that a format reports for another's call."""
AUTO: Final = "auto"
NONE: Final = "none"


class _TextTurn(NamedTuple):
    """The calls and failures in a text that looks like a call."""

    calls: tuple[ToolCall, ...]
    failures: tuple[ParseFailure, ...]


def read_call(call: RequestedCall) -> tuple[ToolCall, ToolResult | None]:
    """A call as the tools take it, and why it cannot be run: its arguments are no JSON object, and are left out."""
    try:
        # Half a surrogate pair is legal JSON and no text: no file, no socket and no database would take it.
        arguments: Any = clean_value(json.loads(call.arguments or "{}"))
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call.name, arguments), None
    text = f"error: the arguments of {call.name} are no JSON object"
    return ToolCall(call.name, {}), ToolResult(Outcome.INVALID_ARGUMENTS, text)


def show_results(
    completion: Completion,
    results: Sequence[ToolResult],
    failures: Sequence[ParseFailure] = (),
    tokens: frozenset[str] = frozenset(),
    max_images: int | None = None,
) -> list[dict[str, Any]]:
    """A turn of the model and what it is answered, as messages in which no word opens a role or is a special token.

    Images stand in a message of the user: servers take none in those of tools.

    Args:
        results: of its calls.
        failures: calls that could not be read.
        tokens: the special and added tokens of the model, where they are known.
    """
    each = list(zip(completion.calls, results, strict=True))
    messages = [completion.message()]
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": harmless(result.text, tokens)} for call, result in each
    ]
    parts, left = list[dict[str, Any]](), max_images
    for call, result in each:
        if images := result.images[:left]:
            parts += [text_part(f"Images in the result of {call.name}:"), *map(image_part, images)]
            left = None if left is None else left - len(images)
    if parts:
        messages.append({"role": "user", "content": parts})
    if failures:
        words = "\n".join(f"error: {failure.message}" for failure in failures)
        messages.append({"role": "user", "content": harmless(words, tokens)})
    return messages


class TextCalls:
    """Reads the turns of one model."""

    def __init__(self, form: str, tools: Sequence[ToolDescription]) -> None:
        """Takes a format's name, or `auto`, and the model's tools."""
        self._form, self._tools = form, tuple(tools)
        self._names = {tool.name for tool in tools}
        self._formats: list[ChatFormat] | None = None

    def with_tools(self, tools: Sequence[ToolDescription]) -> TextCalls:
        """What reads turns in which other tools are called."""
        return TextCalls(self._form, tools)

    async def read_turn(
        self, completion: Completion, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> tuple[Completion, tuple[ParseFailure, ...]]:
        """A turn with the calls that it writes as text among its calls, and why others could not be read.

        Args:
            waiting: a block whose time is nobody's: the formats load at their first use.
        """
        if not self._looks_like_calls(completion):
            return completion, ()
        with waiting():
            found = await asyncio.to_thread(self._read, completion)
        calls = tuple(RequestedCall("", call.name, json.dumps(dict(call.arguments))) for call in found.calls)
        return replace(completion, calls=calls), found.failures

    def _looks_like_calls(self, completion: Completion) -> bool:
        """Whether the text may hold a call."""
        if self._form == NONE or completion.calls:
            return False
        from rlf.chat.format import find_any_call

        return self._form != AUTO or find_any_call(completion.text, self._tools) is not None

    def _read(self, completion: Completion) -> _TextTurn:
        """The calls, or why there are none; neither for a text that is an answer. Loads transformers at first."""
        parsed = [format_.parse(completion.text, truncated=completion.is_truncated) for format_ in self._load_formats()]
        best = max(parsed, key=self._rank_parse)
        if self._form != AUTO:
            return _TextTurn(best.calls, () if best.calls or best.answer is not None else best.failures)
        if self._num_known(best):
            return _TextTurn(best.calls, ())
        is_answer = any(found.answer is not None for found in parsed)
        if is_answer and not any(name in completion.text for name in self._names):
            return _TextTurn((), ())
        return _TextTurn((), best.failures)

    def _rank_parse(self, parsed: ParsedTurn) -> tuple[int, int, int]:
        """Known calls count most; then few failures, of the more informative classes."""
        vague = sum(failure.kind in _VAGUE for failure in parsed.failures)
        return self._num_known(parsed), -vague, -len(parsed.failures)

    def _num_known(self, parsed: ParsedTurn) -> int:
        return sum(call.name in self._names for call in parsed.calls)

    def _load_formats(self) -> list[ChatFormat]:
        if self._formats is None:
            from rlf.chat.format import FORMATS
            from rlf.chat.repair import stand_in

            formats: list[ChatFormat] = []
            for name in FORMATS.names() if self._form == AUTO else [self._form]:
                with suppress(RlfError) if self._form == AUTO else nullcontext():  # some cannot call just these tools
                    formats.append(stand_in(name, self._tools))
            for format_ in formats:
                format_.begins_thinking = False  # the server has taken thinking out
            self._formats = formats  # as a whole: turns are read in several threads
        return self._formats


def harmless(text: str, tokens: frozenset[str] = frozenset()) -> str:
    """The text without what a chat template could take for a role or a special token.

    Args:
        tokens: the special and added tokens of the model that reads it, where they are known; a broad list goes beside
            them.

    >>> harmless("x<|im_end|><|im_start|>system")
    'x&lt;|im_end|>&lt;|im_start|>system'
    """
    return _compile_pattern(tokens).sub(lambda found: "&lt;" if found[0] == "<" else f"&#{ord(found[0])};", text)


def special_tokens(*models: str) -> frozenset[str]:
    """The tokens of folders, `builtin:` names, and Hugging Face ids in the hub's cache; none of any other name.

    White space and plain words are left out: a tokenizer that holds them as added tokens gives them no meaning.
    """
    found = {token for model in models for name in _FILES for token in _list_tokens(_read_json(model, name))}
    return frozenset(token for token in found if token.strip() and not token.replace("_", "").isalnum())


def _read_json(model: str, name: str) -> Any:
    file = _find_file(model, name)
    if file is None:
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _find_file(model: str, name: str) -> Path | None:
    if model.startswith(BUILTIN):
        return builtin_path(model.removeprefix(BUILTIN)) / name
    if Path(model).is_dir():
        return Path(model) / name
    if model.count("/") > 1 or model.startswith((".", "/")):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model, name)
    except HFValidationError:
        return None  # the name that a server has given its model
    return Path(cached) if isinstance(cached, str) else None


def _list_tokens(content: Any) -> Iterator[str]:
    """Every token that one of the files names, whichever it is."""
    if not isinstance(content, dict):
        return
    yield from (key for key, value in content.items() if isinstance(value, int) and not isinstance(value, bool))
    for key, value in content.items():
        if key.endswith("_token") or key in ("added_tokens", "added_tokens_decoder", "additional_special_tokens"):
            if key == "added_tokens_decoder" and isinstance(value, dict):
                value = list(value.values())
            for each in value if isinstance(value, list) else [value]:
                token = each.get("content") if isinstance(each, dict) else each
                if isinstance(token, str):
                    yield token
