"""A model of this machine as an OpenAI-compatible server, with rlf's own rendering and parsing of conversations."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rlf.chat import FORMATS, ChatFormat, detect_format, encode_data, encode_template
from rlf.core import RlfError, RunError
from rlf.endpoints import RequestedCall
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.endpoints.server import Turn

_SENTINEL = re.compile(r"@@rlf:(\d+)@@")
_DATA_ROLES = frozenset({"user", "tool"})
"""Roles whose contents may come from anybody: no byte of them becomes a special token."""


class ChatDialogue:
    """Writes conversations by the model's own template and reads turns by its chat format."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        try:
            self._format: type[ChatFormat] | None = FORMATS.get(detect_format(tokenizer)[0])
        except RlfError:
            self._format = None

    def encode(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Tokens up to where the model speaks; what users and tools say is data. Raises ValueError."""
        if tools and self._format is None:
            raise ValueError("tools: the model's chat template is of no known chat format that calls them")
        contents = [_content(message) for message in messages]
        written = [
            _written(message, content, at) for at, (message, content) in enumerate(zip(messages, contents, strict=True))
        ]
        text = self._rendered(written, tools)
        parts = _SENTINEL.split(text)
        if [int(at) for at in parts[1::2]] != [at for at, m in enumerate(messages) if m["role"] in _DATA_ROLES]:
            raise ValueError("messages: the model's chat template does not keep each of them, once and in order")
        tokens: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                tokens += encode_data(self._tokenizer, contents[int(part)])
            elif part:
                tokens += encode_template(self._tokenizer, part, first=not place)
        return tokens

    def read(self, tokens: Sequence[int], text: str, tools: Sequence[Mapping[str, Any]], *, is_stopped: bool) -> Turn:
        """Calls and thoughts told apart from the text, where the model's chat format is known."""
        from rlf.endpoints.server import Turn

        if self._format is None:
            return Turn(text)
        chat = self._format(self._tokenizer, [_described(tool) for tool in tools])
        parsed = chat.parse(chat.decode(tokens), truncated=not is_stopped)
        if not parsed.calls:
            return Turn(text if parsed.answer is None else parsed.answer, reasoning=parsed.thinking)
        calls = [RequestedCall(f"call_{at}", c.name, json.dumps(c.arguments)) for at, c in enumerate(parsed.calls)]
        return Turn("", tuple(calls), parsed.thinking)

    def _rendered(self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        from jinja2 import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=[dict(tool) for tool in tools] or None, add_generation_prompt=True, tokenize=False
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise ValueError(f"messages: the model's chat template cannot write them: {error}") from error
        assert isinstance(text, str), f"the template rendered to {type(text).__name__}"
        return text


@asynccontextmanager
async def serving(path: str, name: str, *, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serves the model at `path` as `name` for as long as the context is open; gives the base URL of its endpoint.

    Args:
        path: a folder with a transformers model, or a Hugging Face id.
        port: 0 takes any free one.

    Raises:
        RunError: the address cannot be listened on.
    """
    import asyncio

    from aiohttp import web

    from rlf.endpoints.server import ModelServer
    from rlf.engines.engine import Engine
    from rlf.spec.engine import default_engine

    engine = default_engine()
    assert isinstance(engine, Engine), f"{engine} serves no model"
    host, tokenizer = await asyncio.to_thread(engine.load_host, path)
    async with host:
        dialogue, ends = ChatDialogue(tokenizer), host.end_tokens(tokenizer)
        server = ModelServer(host, tokenizer, dialogue, name, ends=ends, max_tokens=host.max_tokens)
        runner = web.AppRunner(server.app(address), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, port).start()
            yield f"http://{address}:{runner.addresses[0][1]}/v1"
        except OSError as error:
            raise RunError(f"cannot listen on {address}:{port}: {error.strerror}. Choose another port.") from error
        finally:
            await runner.cleanup()


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise ValueError("messages: expected a role and a content of text in each")
    return content


def _written(message: Mapping[str, Any], content: str, at: int) -> dict[str, Any]:
    """A message as the template is given it: a sentinel in place of data, arguments of calls as objects."""
    shown = {**message, "content": f"@@rlf:{at}@@" if message["role"] in _DATA_ROLES else content}
    if message.get("tool_calls"):
        shown["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    return shown


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError("messages: expected a function with a name in each of `tool_calls`")
    arguments = function.get("arguments")
    return {**call, "function": {**function, "arguments": json.loads(arguments) if arguments else {}}}


def _described(tool: Mapping[str, Any]) -> ToolDescription:
    function = tool["function"]
    return ToolDescription(function["name"], function.get("description", ""), function.get("parameters", {}))
