"""Models that are served in this process, for tests of whoever asks them."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from rlf.apps.serve import ServeSettings
from rlf.apps.serve.app import ModelServer, answering
from rlf.builtin.names import builtin_path
from rlf.core.servers import listening
from rlf.engines.engine import HostSettings
from rlf.engines.local.restored import load_host

from .clients import question

CHECKPOINT = builtin_path("tiny")

Ask = Callable[[str, Any], Awaitable[tuple[int, Any]]]
QUESTION = [{"role": "user", "content": question.QUESTION}]
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "S.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


@asynccontextmanager
async def serving_model(path: str = str(CHECKPOINT), name: str = "tiny", **settings: Any) -> AsyncIterator[str]:
    """The base URL of a model's endpoint."""
    num_slots = settings.pop("num_slots", 32)
    with listening("127.0.0.1", settings.pop("port", 0)) as listener:
        host, tokenizer = await asyncio.to_thread(load_host, path, HostSettings(num_slots=num_slots))
        server = ModelServer(host, tokenizer, ServeSettings(name=name, **settings))
        async with host, answering(server, listener) as url:
            yield url


def asking(story: Callable[[Ask], Awaitable[Any]], **settings: Any) -> Any:
    """Plays a story with the built-in model: `ask` takes a path, and a body or None, and gives status and answer."""

    async def main() -> Any:
        async with serving_model(**settings) as url, aiohttp.ClientSession() as session:

            async def ask(path: str, body: Any) -> tuple[int, Any]:
                method = "GET" if body is None else "POST"
                data = (
                    None if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
                )
                async with session.request(method, url.removesuffix("/v1") + path, data=data) as response:
                    text = await response.text()
                    return response.status, json.loads(text) if "json" in response.content_type else text

            return await story(ask)

    return asyncio.run(main())


def events_of(text: str) -> list[Any]:
    """The objects of a stream; `[DONE]` and names of events are left out."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
