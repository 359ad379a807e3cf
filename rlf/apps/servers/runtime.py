"""Calls of one tool of an MCP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, cast

import mcp_types as mcp
from mcp import ClientSession, MCPError
from mcp_types import CallToolResult, InputRequiredResult, RequestParamsMeta
from pydantic import ValidationError

from rlf.apps.servers.connection import Connection, Pool, describe_breach
from rlf.core.clocks import Timers
from rlf.core.images import decode_base64, image_type
from rlf.core.text import describe
from rlf.endpoints.attribution import RequestFacts, RequestPhase, outcome_of
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.mcp.server import OUTCOME, TRAJECTORY, McpServer, expand
from rlf.tools.results import ToolFailure, inner_deadline_s
from rlf.tools.validate import OutputCheck
from rlf.types import Image, Outcome, ToolOutput

_PASSED_ON = frozenset(Outcome) - {Outcome.OK, Outcome.TOOL_ERROR, Outcome.CANCELLED}


class McpRuntime(ToolRuntime):
    """Calls one tool, or reads one resource, over the pool's sessions."""

    def __init__(
        self, server: McpServer, pool: Pool, *, tool: str | None, resource: str | None, digest: str | None
    ) -> None:
        """Takes the name of a tool or the URI of a resource, and the digest that the tool keeps; None: any."""
        self._server, self._pool, self._tool, self._resource, self._digest = server, pool, tool, resource, digest
        self.isolation = "process" if server.command else "remote"
        self._timers = Timers()
        self._schema: Mapping[str, Any] | None = None
        """The outputSchema that `_check` holds results against."""
        self._check: OutputCheck | None = None

    async def make_ready(self, trajectory_id: str) -> None:
        """Has the trajectory's session open: a server's start is not the call's time, and fails by its own bound."""
        await self._pool.connection_for(trajectory_id).session()

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call; a cancelled one is cancelled on the server too."""
        connection = self._pool.connection_for(context.trajectory_id)
        session, pulse = await connection.session(), connection.pulse
        self._refuse_changed(connection)
        limit_s = inner_deadline_s(context)
        ping_at = monotonic() + limit_s / 2
        doubt = asyncio.get_running_loop().call_later(limit_s / 2, connection.ping, session)
        try:
            with attributed(connection), self._timers.within(limit_s):
                output = await self._ask_server(connection, session, arguments, context)
        except TimeoutError as fault:
            connection.doubt(session)
            facts = pulse.judge_late(ping_at)
            text = f"the server gave no result within {context.deadline_s:.3g} s"
            text += ", and answers nothing else" if facts.is_hung else ""
            raise ToolFailure(outcome_of(facts), text) from fault
        finally:
            doubt.cancel()
        connection.succeeded()
        return output

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Frees the trajectory's session for others; `rlf tools serve` is notified."""
        await self._pool.end_trajectory(trajectory_id)

    async def _ask_server(
        self, connection: Connection, session: ClientSession, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutput:
        if self._resource is not None:
            return output_of_resource(await session.read_resource(expand(self._resource, arguments)))
        assert self._tool is not None, "neither tool nor resource"
        meta = cast(RequestParamsMeta, {TRAJECTORY: context.trajectory_id})  # a TypedDict that is open to other keys
        result = await session.call_tool(self._tool, dict(arguments), meta=meta, allow_input_required=True)
        if isinstance(result, InputRequiredResult):
            raise ToolFailure(Outcome.TOOL_ERROR, "the server asks a person for input, but no person is there")
        output = as_it_ended(result, output_of_call(result))
        check = None if output.is_error else self._check_of(connection)
        complaint = None if check is None else check.complaint(output)
        if complaint is not None:
            raise ToolFailure(Outcome.OUTPUT_REJECTED, complaint)
        return output

    def _check_of(self, connection: Connection) -> OutputCheck | None:
        """What the result must be like, as the server says; None where it does not, or says it in no valid schema."""
        entry = connection.listing.tool(self._tool or "")
        schema = None if entry is None else entry.output_schema
        if schema != self._schema:
            self._schema, self._check = schema, None
            with suppress(ValueError):
                self._check = None if schema is None else OutputCheck(schema)
        return self._check

    def _refuse_changed(self, connection: Connection) -> None:
        if self._digest is None:
            return
        assert self._tool is not None, "a digest of no tool"
        entry = connection.listing.tool(self._tool)
        if entry is None or entry.digest != self._digest:
            how = "no longer has" if entry is None else "has changed"
            text = f"MCP server {self._server.shown} {how} the tool {self._tool!r}"
            raise ToolFailure(Outcome.UNREACHABLE, text)


def as_it_ended(result: CallToolResult, output: ToolOutput) -> ToolOutput:
    """The output; an outcome of the server's executor that is no tool's own error is passed on as what it is."""
    outcome = (result.meta or {}).get(OUTCOME)
    if output.is_error and isinstance(outcome, str) and outcome in _PASSED_ON:
        raise ToolFailure(Outcome(outcome), output.text.removeprefix("error: "))
    return output if not output.is_error else replace(output, text=output.text.removeprefix("error: "))


@contextmanager
def attributed(connection: Connection) -> Iterator[None]:
    """Turns what the SDK raises for a request into a ToolFailure."""
    try:
        yield
    except MCPError as error:
        raise _failure_of(error, connection) from error
    except ValidationError as fault:
        raise ToolFailure(Outcome.SERVICE_ERROR, f"the server's result {describe_breach(fault)}") from fault
    except (ValueError, RecursionError) as fault:  # how it says that a result breaks the protocol
        raise ToolFailure(Outcome.SERVICE_ERROR, f"the server's result is not valid: {fault}") from fault
    except (ToolFailure, TimeoutError):
        raise
    except Exception as fault:  # of the SDK or what it validates with: no code of the tool's, which could judge a call
        raise ToolFailure(Outcome.SERVICE_ERROR, f"the server's result cannot be read: {describe(fault)}") from fault


def _failure_of(error: MCPError, connection: Connection) -> ToolFailure:
    """An error by the facts that the transport has put into it; the SDK's own, without any: the session has ended."""
    facts = error.error.data
    if isinstance(facts, RequestFacts):
        return ToolFailure(outcome_of(facts), error.message, facts.pause_s)
    ended = RequestFacts(RequestPhase.SENT, is_hung=connection.is_hung)
    why = connection.why_it_ended or "ended"
    return ToolFailure(outcome_of(ended), f"the server {why}, during the call")


def output_of_call(result: mcp.CallToolResult) -> ToolOutput:
    """A tool's output: text parts one under the other, images beside them."""
    texts, images = _split_content(result.content)
    structured = result.structured_content
    if not texts and structured is not None:
        texts = [json.dumps(structured, ensure_ascii=False, allow_nan=False)]
    if not texts and result.is_error:
        texts = ["the tool failed and does not say why"]
    return ToolOutput("\n".join(texts), tuple(images), structured, bool(result.is_error))


def output_of_resource(result: mcp.ReadResourceResult) -> ToolOutput:
    """A resource's content."""
    texts: list[str] = []
    images: list[Image] = []
    for contents in result.contents:
        _add_contents(contents, texts, images)
    return ToolOutput("\n".join(texts), tuple(images))


def _split_content(content: Sequence[mcp.ContentBlock]) -> tuple[list[str], list[Image]]:
    texts: list[str] = []
    images: list[Image] = []
    for block in content:
        if isinstance(block, mcp.TextContent):
            texts.append(block.text)
        elif isinstance(block, mcp.ImageContent):
            images.append(Image(_decode_base64(block.data), block.mime_type))
        elif isinstance(block, mcp.EmbeddedResource):
            _add_contents(block.resource, texts, images)
        else:
            texts.extend(_describe_block(block))
    return texts, images


def _add_contents(
    contents: mcp.TextResourceContents | mcp.BlobResourceContents, texts: list[str], images: list[Image]
) -> None:
    if isinstance(contents, mcp.TextResourceContents):
        texts.append(contents.text)
        return
    data, mime_type = _decode_base64(contents.blob), contents.mime_type or "application/octet-stream"
    if image_type(mime_type).startswith("image/"):
        images.append(Image(data, mime_type))
    else:
        texts.append(f"[{contents.uri}: {mime_type}, {len(data)} bytes]")


def _describe_block(block: mcp.AudioContent | mcp.ResourceLink) -> Iterator[str]:
    if isinstance(block, mcp.ResourceLink):
        yield f"[{block.title or block.name}: {block.uri}]"
    else:
        yield f"[{block.mime_type}: {len(_decode_base64(block.data))} bytes]"


def _decode_base64(text: str) -> bytes:
    try:
        return decode_base64(text)
    except ValueError as fault:
        raise ToolFailure(Outcome.SERVICE_ERROR, f"the result holds invalid base64: {fault}") from fault
