"""The application: routes, who is let in, what goes wrong, and streams that notice when the client has gone."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import Field

from rlf.apps.serve import ServeSettings
from rlf.apps.serve.agent import Json, ServedAgent
from rlf.apps.serve.anthropic import CountRequest, Messages
from rlf.apps.serve.dialect import Dialect
from rlf.apps.serve.dialogue import Dialogue, check_messages
from rlf.apps.serve.generation import Answers, HostGate, Metrics
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.openai import Chat, Completions
from rlf.apps.serve.requests import Refusal, RequestTools, body_object, read_request, token_text
from rlf.apps.serve.responses import Responses
from rlf.core.kinds import StrictModel
from rlf.core.servers import BACKLOG, TlsCertificate, guard_visitors, server_context
from rlf.types.policy import Host

if TYPE_CHECKING:
    import socket

    from transformers import PreTrainedTokenizerBase

_DIALECTS: Mapping[str, type[Dialect]] = {
    "/v1/chat/completions": Chat,
    "/v1/completions": Completions,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
}
"""The paths that answer, by what their clients speak."""
_JUDGES = (Chat, Completions)
"""Those that judges speak: all that a strict server has."""

logger = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
# A request that is no HTTP is its sender's fault, and answered with 400; aiohttp would log it as a defect.
_http_log.addFilter(lambda record: not isinstance((record.exc_info or (0, 0))[1], HttpProcessingError))
_OPEN = frozenset({"/health"})
"""Paths that need no key."""
_COUNT = "/v1/messages/count_tokens"
_MAX_KEY = 80
"""Characters of a client's key that are logged and counted by."""
_CUT_OFF = 499
"""The status that a request is counted with whose client went away."""
TOO_LARGE = "the body is larger than this server takes"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TokenizeRequest(StrictModel):
    """`/tokenize`: a text, or a conversation up to where the model speaks."""

    model: str | None = None
    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] | None = Field(default=None, min_length=1)
    tools: RequestTools = RequestTools()
    return_token_strs: bool = False
    add_special_tokens: bool = True


class DetokenizeRequest(StrictModel):
    """`/detokenize`."""

    model: str | None = None
    tokens: tuple[int, ...]


class _Deadline:
    """Time that a request may take. Left after it, it raises Refusal."""

    def __init__(self, request_s: float | None) -> None:
        self._request_s = request_s
        self._timeout = asyncio.timeout(request_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError as error:
            raise Refusal(504, f"not answered within {self._request_s:g} s", code="timeout") from error


class Server(ABC):
    """The handlers of models that are served. `app` makes the application."""

    prefix: ClassVar[str] = ""
    """Of its paths."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, settings: ServeSettings) -> None:
        self._settings = settings
        self._pace = settings.flush_s, settings.keep_alive_s
        self._metrics = Metrics()
        self._tokenizer = tokenizer
        self._started = int(time.time())

    @property
    def certificate(self) -> TlsCertificate | None:
        """For TLS; None: plain HTTP."""
        return self._settings.certificate

    @abstractmethod
    def find_model(self, request: web.Request, body: bytes = b"") -> ServedModel:
        """The model that answers a request. Raises Refusal."""

    def find_key(self, request: web.Request) -> str | None:
        """The key that a request must bring; None: none. Raises Refusal."""
        return self._settings.api_key

    def app(self) -> web.Application:
        """The application, for visitors that come by one of the server's names or by an address."""
        guards = [guard_visitors(self._settings.host, body_s=self._settings.body_s), self._report_request, self._let_in]
        app = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=guards)
        for path, dialect in _DIALECTS.items():  # first: aiohttp compares a path with one route after the other
            if self._settings.strict and dialect not in _JUDGES:
                continue
            app.router.add_post(self.prefix + path, self._make_handler(dialect))
        app.router.add_get(self.prefix + "/v1/models", self._answer_models)
        app.router.add_get(self.prefix + "/v1/models/{name:.+}", self._show_model)
        if not self._settings.strict:
            app.router.add_post(self.prefix + _COUNT, self._answer_count)
        return app

    @web.middleware
    async def _report_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Counts the request; what goes wrong becomes an answer in the form that the path's clients read."""
        started, status = time.perf_counter(), _CUT_OFF
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else "other"
        try:
            response = await handler(request)
            status = response.status
        except Refusal as refused:
            response = _error_response(request, refused)
            status = refused.status
        except web.HTTPException as error:
            words = error.text if error.status == 408 else None  # of the guard
            fault = Refusal(error.status, words or _WORDS.get(error.status, error.reason))
            response, status = _error_response(request, fault), error.status
        except web.RequestPayloadError:
            request.content.feed_eof()  # aiohttp would read on, and report the fault as a defect
            response, status = _error_response(request, Refusal(400, "the body is not what its headers say")), 400
        except asyncio.CancelledError:
            raise
        except ConnectionError as gone:  # of the client: aiohttp would log it as a defect
            raise asyncio.CancelledError from gone
        except Exception:
            logger.exception("a defect of rlf, met by a request of %s", path)
            response, status = _error_response(request, Refusal(500, "the server failed; its log has the cause")), 500
        finally:
            self._metrics.count_request(path, status, time.perf_counter() - started)
        return response

    @web.middleware
    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        key = None if request.path in _OPEN else self.find_key(request)
        if key is not None:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()):
                raise Refusal(401, "this server needs its key: `Authorization: Bearer KEY`", code="invalid_api_key")
        return await handler(request)

    def _describe_model(self, model: ServedModel) -> dict[str, Any]:
        return {
            "id": self._settings.name,
            "object": "model",
            "created": self._started,
            "owned_by": "rlf",
            "max_model_len": model.max_tokens,
        }

    async def _answer_models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._describe_model(self.find_model(request))]})

    async def _show_model(self, request: web.Request) -> web.Response:
        model = self.find_model(request)
        model.check_name(request.match_info["name"])
        return web.json_response(self._describe_model(model))

    async def _answer_count(self, request: web.Request) -> web.Response:
        async with _Deadline(self._settings.request_s):
            asked = read_request(CountRequest, body_object(await request.read()), note=self.note_ignored)
            model = self.find_model(request)
            return web.json_response({"input_tokens": await model.count_prompt(asked.as_chat())})

    def note_ignored(self, key: str) -> None:
        if self._metrics.count_ignored(key[:_MAX_KEY]):
            logger.warning("the key %r of a request is not known and has no effect; reported once", key[:_MAX_KEY])

    def _make_handler(self, dialect: type[Dialect]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.read()  # which arrives in time: the guard sees to it
            asked = dialect.read(body_object(body), strict=self._settings.strict, note=self.note_ignored)
            model = self.find_model(request, body)
            with model.gate.enter(asked.num_answers):
                if not asked.stream:
                    return web.json_response(await self.answer_whole(asked, model))
                async with _Deadline(self._settings.request_s):
                    answers = Answers(model.gate, await asked.prepare(model), live=True)
                return await self._stream_answers(request, asked, answers)

        return answer

    async def answer_whole(self, asked: Dialect, model: ServedModel) -> Json:
        """The answer to a request that has its places. Raises Refusal."""
        async with _Deadline(self._settings.request_s):
            return asked.whole(await Answers(model.gate, await asked.prepare(model), live=False).whole())

    async def _stream_answers(self, request: web.Request, asked: Dialect, answers: Answers) -> web.StreamResponse:
        """Sends chunks as they come. When the client goes away, writing fails or this task is cancelled."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})
        await response.prepare(request)
        try:
            async with _Deadline(self._settings.request_s), aclosing(answers.batches(*self._pace)) as batches:
                await response.write(_encode_events(asked.begin()))
                async for batch in batches:
                    data = _encode_events(asked.chunks(batch)) if batch else b": keep-alive\n\n"
                    if data:
                        await response.write(data)
                await response.write(_encode_events(asked.end()))
        except Refusal as refused:  # the status is sent already
            await response.write(_encode_events([asked.error(refused)]))
        await response.write_eof()
        return response


class ModelServer(Server):
    """The handlers of one model of a host."""

    def __init__(
        self,
        host: Host,
        tokenizer: PreTrainedTokenizerBase,
        settings: ServeSettings,
        chat_format: str = "auto",
        thinking_tag: str | None = None,
        agent: ServedAgent | None = None,
    ) -> None:
        super().__init__(tokenizer, settings)
        gate = HostGate(host, settings.max_queue, self._metrics)
        self._model = ServedModel(gate, Dialogue(tokenizer, chat_format, thinking_tag), settings, agent)
        self._metrics.gauges["rlf_answers_running"] = ("Answers that are sampled.", lambda: gate.num_running)
        self._metrics.gauges["rlf_answers_waiting"] = ("Answers that wait.", lambda: gate.num_waiting)

    def find_model(self, request: web.Request, body: bytes = b"") -> ServedModel:
        """The one there is."""
        return self._model

    def app(self) -> web.Application:
        """The application, with what operators and judges ask beside."""
        app = super().app()
        app.router.add_get("/health", self._answer_health)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_post("/tokenize", self._answer_tokenize)
        app.router.add_post("/detokenize", self._answer_detokenize)
        return app

    async def _answer_health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _answer_tokenize(self, request: web.Request) -> web.Response:
        async with _Deadline(self._settings.request_s):
            asked = read_request(TokenizeRequest, body_object(await request.read()))
        if (asked.prompt is None) == (asked.messages is None):
            raise Refusal(400, "expected either `prompt` or `messages`")
        if asked.messages is not None:
            tokens, _ = await self._model.encode_chat(check_messages(asked.messages), asked.tools.described)
        else:
            text = asked.prompt or ""
            tokens = await self._model.encode_text(text, add_special_tokens=asked.add_special_tokens)
        answer = {"count": len(tokens), "max_model_len": self._model.max_tokens, "tokens": tokens}
        if asked.return_token_strs:
            answer["token_strs"] = [token_text(self._tokenizer, token) for token in tokens]
        return web.json_response(answer)

    async def _answer_detokenize(self, request: web.Request) -> web.Response:
        async with _Deadline(self._settings.request_s):
            asked = read_request(DetokenizeRequest, body_object(await request.read()))
        if any(not 0 <= token < len(self._tokenizer) for token in asked.tokens):
            raise Refusal(400, f"tokens: expected ids below {len(self._tokenizer)}", key="tokens")
        return web.json_response({"prompt": self._tokenizer.decode(list(asked.tokens))})


_WORDS = {404: "there is nothing at this path", 405: "this path takes another method", 413: TOO_LARGE}


def _error_response(request: web.Request, refused: Refusal) -> web.Response:
    path = "/v1" + request.path.partition("/v1")[2]
    dialect = _DIALECTS.get(path.removesuffix("/count_tokens"))
    headers = {"Retry-After": str(refused.retry_s)} if refused.retry_s is not None else None
    return web.json_response((dialect or Dialect).error(refused), status=refused.status, headers=headers)


def _encode_events(items: Iterable[Any]) -> bytes:
    """Server-sent events: a mapping as JSON, named by its `type` where the dialect names events, or text as it is."""
    parts = []
    for item in items:
        name, data = item if isinstance(item, tuple) else ("", item)
        event = f"event: {name}\n" if name else ""
        parts.append(f"{event}data: {data if isinstance(data, str) else json.dumps(data, separators=(',', ':'))}\n\n")
    return "".join(parts).encode()


@asynccontextmanager
async def answering(server: Server, *listeners: socket.socket) -> AsyncIterator[str]:
    """Has a server answer what comes to sockets for as long as the context is open; gives the URL of the first one."""
    options: dict[str, Any] = {"handler_cancellation": True, "logger": _http_log}
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=2, **options)
    await runner.setup()
    try:
        context = server_context(server.certificate)
        for listener in listeners:
            await web.SockSite(runner, listener, ssl_context=context, backlog=BACKLOG).start()
        address, port = runner.addresses[0][:2]
        scheme = "http" if context is None else "https"
        yield f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}/v1"
    finally:
        await runner.cleanup()
