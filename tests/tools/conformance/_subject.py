"""What the conformance suite asks of every kind: how a tool of it is made to answer, fail, hang, remember and draw."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from rlf.types import Outcome
from tests.endpoints.servers import serving

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0"
"""As much of a picture of 2 by 3 as anybody reads."""


class State(NamedTuple):
    """Two calls of one trajectory."""

    keep: str
    recall: str
    result: str
    """What the second one gives after the first."""


def _say(text: str) -> str:
    return f"say {text}"


@dataclass(frozen=True)
class Subject:
    """A tool that takes one text, which says what it is to do."""

    target: Mapping[str, Any]
    argument: str = "text"
    say: Callable[[str], str] = _say
    """The argument for a result that holds a word."""
    hang: str = "hang"
    """The argument for a call that does not end by itself."""
    failures: Mapping[Outcome, Callable[[str], str]] = field(default_factory=dict)
    """Arguments for failures; the word may stand in the error's text."""
    state: State | None = None
    """None for a kind that keeps nothing between calls."""
    image: str | None = None
    """The argument for a result with `PNG`; None for a kind whose results have no images."""
    has_words: bool = True
    """False for a tool whose results are images alone."""

    @property
    def well(self) -> str:
        """An argument for a success."""
        return self.say("hello") if self.has_words else self.image or ""


def failing(**words: Outcome) -> Mapping[Outcome, Callable[[str], str]]:
    """Failures by the first word of the argument."""
    return {outcome: lambda text, first=first: f"{first} {text}" for first, outcome in words.items()}


Reply = Callable[[str, Mapping[str, Any]], Awaitable[web.Response]]
"""Answers the last message of a user, given the body of the request."""


@asynccontextmanager
async def model_server(reply: Reply) -> AsyncIterator[list[dict[str, Any]]]:
    """The `endpoints` of a model with scripted answers."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({})
        body = await request.json()
        users = [message["content"] for message in body.get("messages", ()) if message["role"] == "user"]
        return await reply(users[-1] if users else body["prompt"], body)

    async with serving(_=answer) as url:
        yield [{"url": f"{url}/v1", "model": "scripted"}]


def says(message: Mapping[str, Any]) -> web.Response:
    """A model's turn."""
    return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})
