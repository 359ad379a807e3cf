"""HTTP tools, open: calls become requests, alone or in batches, and answers results; failures keep their outcome."""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic_core import PydanticSerializationError, from_json, to_json

from rlf.core import RlfError
from rlf.core.clocks import Timers
from rlf.core.errors import describe_type
from rlf.core.redact import clean, strike_environment
from rlf.core.text import clean_value
from rlf.endpoints.http import HttpClient, HttpRequest, HttpResponse
from rlf.endpoints.spec import EndpointFailure, describe_credentials
from rlf.endpoints.template import ABSENT, NOTHING, FilledValue, Template, TemplateFault
from rlf.tools.encoding import (
    BatchSpec,
    BodyFormat,
    Encoding,
    NoSuchPart,
    describe_part,
    encode_pairs,
    multipart,
    part_at,
)
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.outputs import to_text
from rlf.tools.results import ToolFailure, inner_deadline_s, tool_failure
from rlf.types import Image, Outcome, ToolOutput

logger = logging.getLogger(__name__)

_SHOWN_CHARS = 2000
_ENCODE = json.JSONEncoder(allow_nan=False).encode
_DOTS = frozenset({".", "..", "%2e", "%2e%2e", ".%2e", "%2e."})


class RequestMaker:
    """The templates of one declaration, parsed once."""

    def __init__(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, Any] | None,
        body: Any,
        has_body: bool,
        body_format: BodyFormat,
        body_required: bool,
        encoding: Mapping[str, Encoding],
    ) -> None:
        """Takes what the declaration says, texts as templates; a query or body that is None is the arguments."""
        self.method, self._headers, self._has_body = method, headers, has_body
        self._json_headers = _add_content_type(headers, "application/json")
        self._text_headers = _add_content_type(headers, "text/plain; charset=utf-8")
        self._url = Template(url, is_url=not url.startswith("{{"))
        self._fixed_url = None if self._url.names else self._url.render({})
        self._query = None if query is None else FilledValue(query)
        self._body = None if body is None else FilledValue(body)
        self._format, self._encoding, self._body_required = body_format, encoding, body_required
        # So are most tools: `make` then writes the arguments as they are and fills in nothing.
        is_plain = has_body and query is None and body is None and body_format is BodyFormat.JSON
        self._plain_url = self._fixed_url if is_plain and body_required else None
        """Address of a request whose body is the arguments, and which differs from another's in nothing else."""

    def make(self, values: Mapping[str, Any], *, repeatable: bool) -> HttpRequest:
        """The request for the arguments of a call, or for `calls`. Raises TemplateFault where they do not fit."""
        url, headers = self._plain_url, self._json_headers
        value: Any = values
        if url is None:
            if self._fixed_url is None:
                value = {name: each for name, each in values.items() if name not in self._url.names}
            query = ({} if self._has_body else value) if self._query is None else self._query.fill(values)
            url = self._build_url(values, query)
            if self._body is not None:
                value = self._body.fill(values)
            if not self._has_body or (not self._body_required and (value is ABSENT or value == {})):
                return HttpRequest(self.method, url, self._headers, None, repeatable)
            if self._body is not None or self._format is not BodyFormat.JSON:
                headers, body = self._write_body(value)
                return HttpRequest(self.method, url, headers, body, repeatable)
        try:  # arguments, which inputSchema has shown to be JSON; numbers that JSON lacks are refused below
            body = to_json(value)
        except PydanticSerializationError:  # lone surrogates
            body = _encode_body(value)
        if b"NaN" in body or b"Infinity" in body:
            body = _encode_body(value)
        return HttpRequest(self.method, url, headers, body, repeatable)

    def _write_body(self, value: Any) -> tuple[Mapping[str, str], bytes]:
        """A body's headers and bytes."""
        if self._format is BodyFormat.FORM:
            body = _form_text(value, self._encoding).encode()
            return _add_content_type(self._headers, "application/x-www-form-urlencoded"), body
        if self._format is BodyFormat.MULTIPART:
            try:
                content_type, body = multipart(value, self._encoding)
            except UnicodeEncodeError as fault:
                raise TemplateFault(f"the body cannot be sent: {fault}") from fault
            return {**self._headers, "Content-Type": content_type}, body
        return (self._text_headers if isinstance(value, str) else self._json_headers), _encode_body(value)

    def _build_url(self, values: Mapping[str, Any], query: Mapping[str, Any]) -> str:
        url = self._fixed_url or self._filled_url(values)
        if not query:
            return url
        text = _form_text(query, self._encoding)
        return f"{url}{'&' if '?' in url else '?'}{text}" if text else url

    def _filled_url(self, values: Mapping[str, Any]) -> str:
        url = self._url.render(values).strip()
        if NOTHING in url:
            # A URL that null or empty values fill in. Raises TemplateFault where one is a whole part of the path:
            # what lies there is another thing, such as all of a list in place of one of its items.
            path = url.partition("?")[0].partition("#")[0]
            if any(part and not part.strip(NOTHING) for part in path.split("/")):
                raise TemplateFault("a part of the path would be empty, which leads to another path")
            url = url.replace(NOTHING, "")
        if _DOTS & set(urlsplit(url).path.lower().split("/")):
            raise TemplateFault("a part of the path would be `.` or `..`, which leads to another path")
        return url


def _form_text(fields: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> str:
    try:
        return urlencode(list(encode_pairs(fields, encodings)))
    except UnicodeEncodeError as fault:
        raise TemplateFault(f"the query or form cannot be sent: {fault}") from fault


def _add_content_type(headers: Mapping[str, str], content_type: str) -> Mapping[str, str]:
    """The headers, with a content type unless they have one."""
    if any(name.lower() == "content-type" for name in headers):
        return headers
    return {"Content-Type": content_type, **headers}


def _encode_body(value: Any) -> bytes:
    """The bytes of a body: a text as it is, anything else as JSON."""
    try:
        text = value if isinstance(value, str) else _ENCODE(None if value is ABSENT else value)
        return text.encode()
    except (ValueError, TypeError) as fault:
        raise TemplateFault(f"the body cannot be sent: {fault}") from fault


_PROBE_S: Final = 5.0
_UNAUTHORIZED: Final = 401
_MAX_SHOWN = 120
"""Bytes of an unreadable answer that the model is shown."""
_STRUCTURED = (dict, list)
_NO_CHARSETS: Final = frozenset({"punycode", "idna", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Codecs of Python for text that are no charsets; the first takes two minutes for 300 kB, which stops the loop."""
_Call: TypeAlias = tuple[Mapping[str, Any], bool]
"""Arguments, and whether the request may be repeated."""


def _log_request(request: HttpRequest) -> None:
    """Shown by `rlf -v` without its headers and the secrets of the environment."""
    body = (request.body or b"").decode(errors="replace")[:_SHOWN_CHARS]
    logger.info("%s", strike_environment(clean(f"{request.method} {request.url} {body}".rstrip())))


class HttpRuntime(ToolRuntime):
    """Asks one service."""

    isolation = "remote"
    ends_in_time = True

    def __init__(
        self,
        client: HttpClient,
        maker: RequestMaker,
        headers: Mapping[str, str],
        *,
        response: str | None,
        result: str | None,
        batch: BatchSpec | None,
        garbled: Outcome,
    ) -> None:
        """Takes whom to ask and how, the path and the template of the result, and what an answer without it is."""
        self._client, self._maker, self._headers, self._garbled = client, maker, headers, garbled
        self.answers_once = maker.method != "GET"
        self._response, self._result = response, None if result is None else Template(result)
        self._timers, self._batch = Timers(), batch
        self._batcher = None if batch is None else Batcher(self._send_batch, batch.max_size, batch.max_wait_ms / 1000)
        self.held.push_async_callback(client.close)
        if self._batcher is not None:
            self.held.push_async_callback(self._batcher.close)

    async def refuse_wrong_key(self, address: str) -> None:
        """Asks for the head of an address with the tool's key, which changes nothing at the service.

        Only 401 is a verdict on the key: 403, 404 and 405 may be one on the method or on what the address leaves out.

        Raises:
            RlfError: the service refuses the key; the runtime is closed.
        """
        credentials = describe_credentials(self._headers)
        try:
            if credentials:
                await self._client.send(HttpRequest("HEAD", address, self._headers), deadline_s=_PROBE_S)
        except EndpointFailure as failure:
            if failure.status == _UNAUTHORIZED:
                await self.close()
                message = f"the service refuses the key: {failure.text}; {credentials}"
                raise RlfError(f"{message}. Set it to one that the service accepts.") from failure
        except BaseException:
            await self.close()
            raise

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call, alone or within a batch."""
        limit_s = inner_deadline_s(context)
        try:
            if self._batcher is not None:
                answer = await self._in_batch((arguments, context.idempotent), limit_s)
            else:
                request = self._maker.make(arguments, repeatable=context.idempotent)
                if logger.isEnabledFor(logging.INFO):
                    _log_request(request)
                response = await self._client.send(request, deadline_s=limit_s)
                must_be_json = self._response is not None or (context.wants_json and self._result is None)
                if must_be_json or response.content_type.endswith("json"):
                    try:
                        answer = from_json(response.body)
                    except ValueError:  # seldom, so that it costs the others nothing
                        answer = self._parse_odd_json(response.body)
                else:
                    answer = _read_other(response)
            if isinstance(answer, Image):
                return ToolOutput("", images=(answer,))
            part = answer if self._response is None else part_at(answer, self._response)
            text = to_text(part) if self._result is None else self._render_result(self._result, part, arguments)
            return ToolOutput(text, (), part if isinstance(part, _STRUCTURED) else None)
        except EndpointFailure as failure:
            raise tool_failure(failure, self._headers) from failure
        except TemplateFault as fault:
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, f"the arguments make no request: {fault}") from fault
        except NoSuchPart as fault:
            raise ToolFailure(self._garbled, str(fault)) from fault

    async def _in_batch(self, call: _Call, limit_s: float) -> Any:
        assert self._batcher is not None, "a call for the batch of a tool without one"
        # A time of its own, since the request has that of the call that may wait longest.
        try:
            with self._timers.within(limit_s):
                return await self._batcher.ask(call, limit_s)
        except TimeoutError as fault:
            outcome = Outcome.TIMEOUT if call[1] else Outcome.UNKNOWN
            raise ToolFailure(outcome, f"no answer within {limit_s:.3g} s") from fault

    async def _send_batch(self, calls: Sequence[_Call], limit_s: float) -> Sequence[Any]:
        """The part of each call in one answer."""
        batch = self._batch
        assert batch is not None, "a batch for a tool without one"
        values = {"calls": [arguments for arguments, _ in calls]}
        request = self._maker.make(values, repeatable=calls[0][1])
        if logger.isEnabledFor(logging.INFO):
            _log_request(request)
        answers = part_at(
            self._parse_odd_json((await self._client.send(request, deadline_s=limit_s)).body), batch.answers
        )
        if not isinstance(answers, list) or len(answers) != len(calls):
            got = f"{len(answers)} items" if isinstance(answers, list) else describe_type(answers)
            text = f"the service answered {len(calls)} calls with {got} at {batch.answers!r}"
            raise ToolFailure(self._garbled, text)
        return answers

    def _parse_odd_json(self, body: bytes) -> Any:
        """JSON that pydantic does not read: `json` also takes deeper nesting, lone surrogates and other encodings."""
        try:
            return clean_value(json.loads(body))
        except (ValueError, RecursionError) as fault:
            start = body[:_MAX_SHOWN].decode("utf-8", "replace")
            raise ToolFailure(self._garbled, f"the answer is not JSON; it begins {start!r}") from fault

    def _render_result(self, result: Template, part: Any, arguments: Mapping[str, Any]) -> str:
        try:
            return result.render({**arguments, "response": part}).rstrip("\n")
        except TemplateFault as fault:
            is_text = isinstance(part, str) and self._response is None
            shown = f"; it begins {part[:_MAX_SHOWN]!r}" if is_text else ""
            reason = str(fault).removeprefix("cannot be filled in: ")
            # An argument that chose what the answer lacks has a wrong value, which is the policy's to correct.
            if fault.choosers - {"response"}:
                text = f"the arguments ask for what the answer does not have: {reason}; it is {describe_part(part)}"
                raise ToolFailure(Outcome.TOOL_ERROR, text) from fault
            raise ToolFailure(self._garbled, f"the answer does not fill in `result`: {reason}{shown}") from fault


def _read_other(response: HttpResponse) -> Image | str:
    """An answer that is no JSON."""
    body, charset = response.body, response.charset or "utf-8"
    if response.content_type.startswith("image/") and not response.content_type.endswith("+xml"):
        return Image(body, response.content_type)
    try:
        if codecs.lookup(charset).name in _NO_CHARSETS:
            raise LookupError(charset)
        return body.decode(charset)
    except (ValueError, LookupError) as fault:
        text = f"the answer is {len(body)} bytes of {response.content_type}, which is not text"
        raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault


In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[In, Out]):
    item: In
    deadline: float
    reply: asyncio.Future[Out]


class Batcher(Generic[In, Out]):
    """Gathers calls of many trajectories into one request.

    Invariant: a call waits for its own result only; that it is cancelled or late changes nothing for the others of its
    batch. No batch is larger than `max_size`, and none is sent later than `max_wait_s` after its first call.
    """

    def __init__(
        self, run: Callable[[Sequence[In], float], Awaitable[Sequence[Out]]], max_size: int, max_wait_s: float
    ) -> None:
        """Takes what runs a batch.

        Args:
            run: gives one result per item, in order, within the given seconds: the most that any of them has.
        """
        self._run = run
        self._max_size = max_size
        self._max_wait_s = max_wait_s
        self._waiting: list[_Waiting[In, Out]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, item: In, deadline_s: float) -> Out:
        """The result of one item. Raises what the batch raises."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[In, Out] = _Waiting(item, monotonic() + deadline_s, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) >= self._max_size:
            self._flush_batch()
        elif self._timer is None:
            self._timer = loop.call_later(self._max_wait_s, self._flush_batch)
        try:
            return await waiting.reply
        finally:  # one that was given up before its batch was sent must not be asked for
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    async def close(self) -> None:
        """Cancels the batches under way."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _flush_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, []
        if batch:
            task = asyncio.get_running_loop().create_task(self._answer_batch(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

            # Ends a request that nobody waits for any more.
            def look(_: asyncio.Future[Out]) -> None:
                if all(waiting.reply.cancelled() for waiting in batch):
                    task.cancel()

            for waiting in batch:
                waiting.reply.add_done_callback(look)

    async def _answer_batch(self, batch: Sequence[_Waiting[In, Out]]) -> None:
        try:
            limit_s = max(waiting.deadline for waiting in batch) - monotonic()
            results = await self._run([waiting.item for waiting in batch], limit_s)
            assert len(results) == len(batch), f"{len(results)} results of {len(batch)} calls"
        except Exception as fault:  # noqa: BLE001 - raised in every call of the batch
            for waiting in batch:
                if not waiting.reply.done():
                    waiting.reply.set_exception(fault)
        else:
            for waiting, result in zip(batch, results, strict=True):
                if not waiting.reply.done():
                    waiting.reply.set_result(result)
        finally:  # also where this task is cancelled: a reply that never came would be awaited for ever
            for waiting in batch:
                waiting.reply.cancel()
