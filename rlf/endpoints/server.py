"""A server of the OpenAI protocol over one model: `/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health`.

A key that it does not honour is refused with 400, never ignored. How a conversation becomes tokens and what a turn
says are given to it: chat formats are another package's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlf.endpoints.generate import Batches, Generated, Generation
from rlf.endpoints.openai import Completion, RequestedCall
from rlf.endpoints.usage import Usage
from rlf.endpoints.visitors import guard_visitors

_MAX_BODY_BYTES = 16_000_000


class Dialogue(Protocol):
    """How conversations are written and turns are read."""

    def encode(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Tokens of a conversation up to where the model speaks. Raises ValueError where it cannot be written."""

    def read(self, tokens: Sequence[int], text: str, tools: Sequence[Mapping[str, Any]], *, is_stopped: bool) -> Turn:
        """What a turn says."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn says."""

    text: str
    calls: tuple[RequestedCall, ...] = ()
    reasoning: str = ""


class _Sampled(BaseModel):
    """The keys that both kinds of request share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    stop: str | tuple[str, ...] | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    n: Literal[1] = 1
    stream: Literal[False] = False
    user: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else self.stop or ()


class _ChatRequest(_Sampled):
    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)


class _CompletionRequest(_Sampled):
    prompt: str
    logprobs: int | None = Field(default=None, ge=0, le=20)


class ModelServer:
    """The handlers. `app` makes the application; the model runs on a thread of its own."""

    def __init__(self, batches: Batches, dialogue: Dialogue, name: str) -> None:
        self._batches = batches
        self._tokenizer = batches.model.tokenizer
        self._dialogue = dialogue
        self._name = name

    def app(self, *hosts: str) -> web.Application:
        """The application, for visitors that come by one of the hosts' names or by an address.

        Its clean-up ends the model's thread.
        """
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[guard_visitors(*hosts)])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", _answering(self._chat))
        app.router.add_post("/v1/completions", _answering(self._complete))
        app.on_cleanup.append(self._close)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "owned_by": "rlf"}
        return web.json_response({"object": "list", "data": [model]})

    async def _close(self, app: web.Application) -> None:
        await self._batches.close()

    async def _chat(self, data: bytes) -> dict[str, Any]:
        asked = _ChatRequest.model_validate_json(data)
        tools = asked.tools if asked.tool_choice == "auto" else ()
        tokens = self._dialogue.encode(asked.messages, tools)
        limit = asked.max_completion_tokens or asked.max_tokens
        found = await self._generate(asked, tokens, limit, asked.top_logprobs if asked.logprobs else 0)
        turn = self._dialogue.read(found.tokens, found.text, tools, is_stopped=found.is_stopped)
        reason = "tool_calls" if turn.calls else _finish(found)
        usage = Usage(len(tokens), len(found.tokens))
        message = Completion(turn.text, turn.calls, reason, (), usage).message()
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        logprobs = {"content": [self._token(found, at) for at in range(len(found.tokens))]} if asked.logprobs else None
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": logprobs}
        return self._answer("chat.completion", choice, usage)

    async def _complete(self, data: bytes) -> dict[str, Any]:
        asked = _CompletionRequest.model_validate_json(data)
        tokens = self._tokenizer.encode(asked.prompt)
        found = await self._generate(asked, tokens, asked.max_tokens or 16, asked.logprobs or 0)
        choice = {"index": 0, "text": found.text, "finish_reason": _finish(found), "logprobs": None}
        if asked.logprobs is not None:
            told = [self._token(found, at) for at in range(len(found.tokens))]
            choice["logprobs"] = {
                "tokens": [item["token"] for item in told],
                "token_logprobs": found.logprobs,
                "top_logprobs": [{o["token"]: o["logprob"] for o in item["top_logprobs"]} for item in told],
            }
        return self._answer("text_completion", choice, Usage(len(tokens), len(found.tokens)))

    async def _generate(self, asked: _Sampled, tokens: list[int], limit: int | None, num_top: int) -> Generated:
        if asked.model != self._name:
            raise _Refused(404, f"the model {asked.model!r} does not exist; this server has {self._name!r}")
        room = self._batches.model.max_tokens - len(tokens)
        if room < (limit or 1):
            most = self._batches.model.max_tokens
            raise _Refused(400, f"{len(tokens)} prompt tokens and {limit or 1} more are over the model's {most}")
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        request = Generation(tokens, limit or room, asked.temperature, asked.top_p, asked.stops, seed, num_top)
        return await self._batches.generate(request)

    def _token(self, found: Generated, at: int) -> dict[str, Any]:
        tops = found.tops[at] if found.tops else {}
        others = [{"token": self._tokenizer.decode([token]), "logprob": value} for token, value in tops.items()]
        token = self._tokenizer.decode([found.tokens[at]])
        return {"token": token, "logprob": found.logprobs[at], "top_logprobs": others}

    def _answer(self, kind: str, choice: Mapping[str, Any], usage: Usage) -> dict[str, Any]:
        counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        return {
            "id": f"rlf-{secrets.token_hex(8)}",
            "object": kind,
            "created": int(time.time()),
            "model": self._name,
            "choices": [choice],
            "usage": {**counts, "total_tokens": sum(counts.values())},
        }


class _Refused(Exception):
    """A request that cannot be answered, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _answering(
    handle: Callable[[bytes], Awaitable[dict[str, Any]]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler whose faults of the request are answers in the protocol's form."""

    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handle(await request.read()))
        except ValidationError as error:
            first = error.errors()[0]
            return _error(400, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}")
        except ValueError as error:
            return _error(400, str(error))
        except _Refused as refused:
            return _error(refused.status, str(refused))

    return answer


def _error(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "code": status}
    return web.json_response({"error": error}, status=status)


def _finish(found: Generated) -> str:
    return "stop" if found.is_stopped else "length"
