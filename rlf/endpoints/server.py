"""A server of the OpenAI protocol over one model: `/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health`.

A key that it does not honour is refused with 400, never ignored. How a conversation becomes tokens and what a turn
says are given to it: chat formats are another package's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from aiohttp import web
from pydantic import Field, ValidationError

from rlf.core.models import StrictModel
from rlf.endpoints.openai import Completion, RequestedCall
from rlf.endpoints.usage import Usage
from rlf.endpoints.visitors import guard_visitors
from rlf.types.policy import Finish, Sample, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


class _Sampled(StrictModel):
    """The keys that both kinds of request share."""

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


class Model(Protocol):
    """What completes tokens with tokens, for many requests at once."""

    async def complete(self, tokens: Sequence[int], max_tokens: int, sampling: Sampling, seed: int) -> Sample:
        """Samples until a stop token or a stop string, or `max_tokens`."""


class ModelServer:
    """The handlers. `app` makes the application."""

    def __init__(
        self,
        model: Model,
        tokenizer: PreTrainedTokenizerBase,
        dialogue: Dialogue,
        name: str,
        *,
        ends: tuple[int, ...],
        max_tokens: int,
    ) -> None:
        """Takes a model.

        Args:
            ends: tokens that end a turn.
            max_tokens: of the longest prompt and completion together.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._dialogue = dialogue
        self._name = name
        self._ends = ends
        self._max_tokens = max_tokens

    def app(self, *hosts: str) -> web.Application:
        """The application, for visitors that come by one of the hosts' names or by an address."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[guard_visitors(*hosts)])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", _answering(self._chat))
        app.router.add_post("/v1/completions", _answering(self._complete))
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "owned_by": "rlf"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, data: bytes) -> dict[str, Any]:
        asked = _ChatRequest.model_validate_json(data)
        tools = asked.tools if asked.tool_choice == "auto" else ()
        tokens = self._dialogue.encode(asked.messages, tools)
        limit = asked.max_completion_tokens or asked.max_tokens
        num_top = asked.top_logprobs if asked.logprobs else None
        found, text = await self._complete_tokens(asked, tokens, limit, num_top)
        turn = self._dialogue.read(found.tokens, text, tools, is_stopped=found.finish is Finish.STOP)
        reason = "tool_calls" if turn.calls else str(found.finish)
        usage = Usage(len(tokens), len(found.tokens))
        message = Completion(turn.text, turn.calls, reason, (), usage).message()
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        logprobs = {"content": self._logprobs(found, asked.top_logprobs)} if asked.logprobs else None
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": logprobs}
        return self._answer("chat.completion", choice, usage)

    async def _complete(self, data: bytes) -> dict[str, Any]:
        asked = _CompletionRequest.model_validate_json(data)
        tokens = self._tokenizer.encode(asked.prompt)
        found, text = await self._complete_tokens(asked, tokens, asked.max_tokens or 16, asked.logprobs)
        choice = {"index": 0, "text": text, "finish_reason": str(found.finish), "logprobs": None}
        if asked.logprobs is not None:
            shown = self._logprobs(found, asked.logprobs)
            choice["logprobs"] = {
                "tokens": [item["token"] for item in shown],
                "token_logprobs": [item["logprob"] for item in shown],
                "top_logprobs": [{o["token"]: o["logprob"] for o in item["top_logprobs"]} for item in shown],
            }
        return self._answer("text_completion", choice, Usage(len(tokens), len(found.tokens)))

    async def _complete_tokens(
        self, asked: _Sampled, tokens: list[int], limit: int | None, num_top: int | None
    ) -> tuple[Sample, str]:
        """What is sampled, and its text without special tokens, up to the first stop string."""
        if asked.model != self._name:
            raise _Refused(404, f"the model {asked.model!r} does not exist; this server has {self._name!r}")
        room = self._max_tokens - len(tokens)
        if room < (limit or 1):
            wanted = f"{len(tokens)} prompt tokens and {limit or 1} more"
            raise _Refused(400, f"{wanted} are over the model's {self._max_tokens}")
        seed = secrets.randbits(63) if asked.seed is None else asked.seed
        stops = asked.stops
        sampling = Sampling(
            asked.temperature, asked.top_p, stop_token_ids=self._ends, stop_strings=stops, num_top=num_top
        )
        sample = await self._model.complete(tokens, limit or room, sampling, seed)
        text = str(self._tokenizer.decode(sample.tokens, skip_special_tokens=True))
        found = [at for stop in stops if (at := text.find(stop)) >= 0]
        return sample, text[: min(found)] if found else text

    def _logprobs(self, found: Sample, num_top: int) -> list[dict[str, Any]]:
        """Each token with its log-probability and those of the likeliest ones."""
        shown = []
        for token, tops in zip(found.tokens, found.tops, strict=True):
            pairs = [(self._tokenizer.decode([one]), value) for one, value in tops.items()][:num_top]
            others = [{"token": text, "logprob": value} for text, value in pairs]
            shown.append({"token": self._tokenizer.decode([token]), "logprob": tops[token], "top_logprobs": others})
        return shown

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
