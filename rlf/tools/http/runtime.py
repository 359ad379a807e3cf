"""An open HTTP tool: calls become requests, answers become results, failures keep their outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic_core import from_json

from rlf.core.timers import Timers
from rlf.endpoints import EndpointFailure
from rlf.endpoints.guard import Guard, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpResponse
from rlf.endpoints.template import Template, TemplateFault
from rlf.tools.failure import ToolFailure
from rlf.tools.http.batcher import Batcher
from rlf.tools.http.probe import refuse_wrong_key
from rlf.tools.http.request import RequestMaker
from rlf.tools.json_path import NoSuchPart, part_at
from rlf.tools.kind import CallContext
from rlf.tools.limits import Limits
from rlf.tools.remote import inner_deadline_s, tool_failure
from rlf.tools.results import to_text
from rlf.types import Image, Outcome, ToolOutput

if TYPE_CHECKING:
    from rlf.tools.kinds.http import HttpTool

_MAX_SHOWN = 120
"""Bytes of an unreadable answer that the model is shown."""
_STRUCTURED = (dict, list)
_Call: TypeAlias = tuple[Mapping[str, Any], bool]
"""Arguments, and whether the request may be repeated."""


class HttpRuntime:
    """Asks one service."""

    isolation = "remote"
    ends_in_time = True
    num_abandoned = 0

    def __init__(self, tool: HttpTool, limits: Limits) -> None:
        self._tool = tool
        self._maker = RequestMaker(tool)
        self._response = tool.response
        self._result = None if tool.result is None else Template(tool.result)
        own = tool.url if tool.has_fixed_host else ""
        self._client = HttpClient(
            Guard(trusted_hosts(own, tool.allow_private)),
            max_connections=limits.max_concurrency,
            max_bytes=tool.max_bytes,
            redirects=tool.redirects,
            tool_errors=tool.tool_error_statuses,
        )
        self._garbled = Outcome.SERVICE_ERROR if tool.has_fixed_host else Outcome.OUTPUT_REJECTED
        """What an answer is that lacks what is declared: of a host that an argument chose, that choice's result."""
        batch = tool.batch
        self._timers = Timers()
        self._batcher = None if batch is None else Batcher(self._send_batch, batch.max_size, batch.max_wait_ms / 1000)

    async def opened(self) -> Self:
        """The runtime, once the service has not refused its key. Raises RlfError."""
        try:
            await refuse_wrong_key(self._tool, self._client)
        except BaseException:
            await self.close()
            raise
        return self

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call, alone or within a batch."""
        limit_s = inner_deadline_s(context)
        try:
            if self._batcher is None:
                request = self._maker.make(arguments, repeatable=context.idempotent)
                answer = self._read(await self._client.send(request, deadline_s=limit_s), wants_json=context.wants_json)
            else:
                answer = await self._in_batch((arguments, context.idempotent), limit_s)
            return self._output(answer, arguments)
        except EndpointFailure as failure:
            raise tool_failure(failure, self._tool.headers) from failure
        except TemplateFault as fault:
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, f"the arguments make no request: {fault}") from fault
        except NoSuchPart as fault:
            raise ToolFailure(self._garbled, str(fault)) from fault

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Holds nothing for a trajectory."""

    async def close(self) -> None:
        """Ends requests and closes connections."""
        if self._batcher is not None:
            await self._batcher.close()
        await self._client.close()

    async def _in_batch(self, call: _Call, limit_s: float) -> Any:
        assert self._batcher is not None, "a call for the batch of a tool without one"
        try:
            with self._timers.within(limit_s):
                return await self._batcher.ask(call, limit_s)
        except TimeoutError as fault:
            outcome = Outcome.TIMEOUT if call[1] else Outcome.UNKNOWN
            raise ToolFailure(outcome, f"no answer within {limit_s:.3g} s") from fault

    async def _send_batch(self, calls: Sequence[_Call], limit_s: float) -> Sequence[Any]:
        """The part of each call in one answer."""
        batch = self._tool.batch
        assert batch is not None, "a batch for a tool without one"
        request = self._maker.make({"calls": [arguments for arguments, _ in calls]}, repeatable=calls[0][1])
        answers = part_at(self._json((await self._client.send(request, deadline_s=limit_s)).body), batch.answers)
        if not isinstance(answers, list) or len(answers) != len(calls):
            got = f"{len(answers)} items" if isinstance(answers, list) else f"a {type(answers).__name__}"
            text = f"the service answered {len(calls)} calls with {got} at {batch.answers!r}"
            raise ToolFailure(self._garbled, text)
        return answers

    def _read(self, response: HttpResponse, *, wants_json: bool) -> Any:
        """JSON where the answer is or must be that, an image, or text."""
        must_be_json = self._response is not None or (wants_json and self._result is None)
        if must_be_json or response.content_type.endswith("json"):
            return self._json(response.body)
        if response.content_type.startswith("image/"):
            return Image(response.body, response.content_type)
        try:
            return response.body.decode(response.charset or "utf-8")
        except (UnicodeDecodeError, LookupError) as fault:
            text = f"the answer is {len(response.body)} bytes of {response.content_type}, which is no text"
            raise ToolFailure(Outcome.OUTPUT_REJECTED, text) from fault

    def _json(self, body: bytes) -> Any:
        try:
            return from_json(body)
        except ValueError:  # json also reads deeper nesting, lone surrogates and other encodings
            pass
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as fault:
            start = body[:_MAX_SHOWN].decode("utf-8", "replace")
            raise ToolFailure(self._garbled, f"the answer is not JSON; it begins {start!r}") from fault

    def _rendered(self, result: Template, part: Any, arguments: Mapping[str, Any]) -> str:
        try:
            return result.render({**arguments, "response": part}).rstrip("\n")
        except TemplateFault as fault:
            is_text = isinstance(part, str) and self._response is None
            shown = f"; it begins {part[:_MAX_SHOWN]!r}" if is_text else ""
            reason = str(fault).removeprefix("cannot be filled in: ")
            raise ToolFailure(self._garbled, f"the answer does not fill in `result`: {reason}{shown}") from fault

    def _output(self, answer: Any, arguments: Mapping[str, Any]) -> ToolOutput:
        """What the model is told of an answer: an image, or JSON or text by the declared path and template."""
        if isinstance(answer, Image):
            return ToolOutput("", images=(answer,))
        part = answer if self._response is None else part_at(answer, self._response)
        text = to_text(part) if self._result is None else self._rendered(self._result, part, arguments)
        return ToolOutput(text, (), part if isinstance(part, _STRUCTURED) else None)
