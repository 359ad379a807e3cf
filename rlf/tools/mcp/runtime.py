"""Calls of one tool of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from mcp import ClientSession, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolResult,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import ValidationError

from rlf.tools.failure import ToolFailure, shorten
from rlf.tools.kind import CallContext, ToolRuntime
from rlf.tools.mcp.connection import Connection
from rlf.tools.mcp.content import expand, output_of_call, output_of_resource
from rlf.tools.mcp.pool import Pool
from rlf.tools.mcp.server import McpServer
from rlf.tools.mcp.words import OUTCOME, TOO_LARGE, TRAJECTORY, too_large
from rlf.types import Outcome, ToolOutput

_PASSED_ON = frozenset(Outcome) - {Outcome.OK, Outcome.TOOL_ERROR, Outcome.CANCELLED}
_CLOSED = "Connection closed"
_SESSION_GONE = "Session terminated"
_HTTP_ERROR = "Server returned an error response"
_BROKEN_EVENT = "SSE stream failed"
_NO_MESSAGE = "Unexpected content type"
"""Words of the SDK for what it has no code of its own for."""


class McpRuntime(ToolRuntime):
    """Calls one tool, or reads one resource, over the pool's sessions."""

    def __init__(
        self, server: McpServer, pool: Pool, *, tool: str | None, resource: str | None, digest: str | None
    ) -> None:
        """Takes the name of a tool or the URI of a resource, and the digest that the tool keeps; None: any."""
        self._server, self._pool, self._tool, self._resource, self._digest = server, pool, tool, resource, digest
        self.isolation = "process" if server.command else "remote"

    async def make_ready(self, trajectory_id: str) -> None:
        """Has the trajectory's session open: a server's start is not the call's time, and fails by its own bound."""
        await self._pool.connection_for(trajectory_id).session()

    async def invoke(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Runs one call; a cancelled one is cancelled on the server too."""
        connection = self._pool.connection_for(context.trajectory_id)
        session = await connection.session()
        self._refuse_changed(connection)
        try:
            output = await self._ask_server(session, arguments, context)
        except MCPError as error:
            raise failure_of(error, connection, session) from error
        except ValidationError as fault:  # how the SDK says that a result breaks the protocol
            raise ToolFailure(Outcome.SERVICE_ERROR, shorten(f"the server's result is not valid: {fault}")) from fault
        except RuntimeError as fault:  # how it says that a result breaks the server's own schema
            raise ToolFailure(Outcome.OUTPUT_REJECTED, shorten(f"the server's result is not valid: {fault}")) from fault
        connection.succeeded()
        return output

    async def end_trajectory(self, trajectory_id: str) -> None:
        """Frees the trajectory's session for others; `rlf tools serve` is notified."""
        await self._pool.end_trajectory(trajectory_id)

    async def _ask_server(
        self, session: ClientSession, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutput:
        if self._resource is not None:
            return output_of_resource(await session.read_resource(expand(self._resource, arguments)))
        assert self._tool is not None, "neither tool nor resource"
        meta = cast(RequestParamsMeta, {TRAJECTORY: context.trajectory_id})  # a TypedDict that is open to other keys
        result = await session.call_tool(self._tool, dict(arguments), meta=meta, allow_input_required=True)
        if isinstance(result, InputRequiredResult):
            raise ToolFailure(Outcome.TOOL_ERROR, "the server asks a person for input, but no person is there")
        return _as_it_ended(result, output_of_call(result))

    def _refuse_changed(self, connection: Connection) -> None:
        if self._digest is None:
            return
        assert self._tool is not None, "a digest of no tool"
        entry = connection.listing.tool(self._tool)
        if entry is None or entry.digest != self._digest:
            how = "no longer has" if entry is None else "has changed"
            text = f"MCP server {self._server.shown} {how} the tool {self._tool!r}"
            raise ToolFailure(Outcome.UNREACHABLE, text)


def _as_it_ended(result: CallToolResult, output: ToolOutput) -> ToolOutput:
    """The output; an outcome of the server's executor that is no tool's own error is passed on as what it is."""
    outcome = (result.meta or {}).get(OUTCOME)
    if output.is_error and outcome in _PASSED_ON:
        raise ToolFailure(Outcome(outcome), output.text.removeprefix("error: "))
    return output if not output.is_error else replace(output, text=output.text.removeprefix("error: "))


def failure_of(error: MCPError, connection: Connection, session: ClientSession) -> ToolFailure:
    """The SDK's error as an outcome: the tool's own failure, or that of the connection to it."""
    message = error.message
    if error.code == TOO_LARGE or too_large() in message or message.startswith(_BROKEN_EVENT):
        return ToolFailure(Outcome.OUTPUT_REJECTED, shorten(message))
    if error.code in (PARSE_ERROR, METHOD_NOT_FOUND) or message.startswith(_NO_MESSAGE):
        return ToolFailure(Outcome.SERVICE_ERROR, shorten(message))
    if message == _SESSION_GONE:
        connection.lost(session, "forgot the session")
        return ToolFailure(Outcome.UNREACHABLE, "the server forgot the session, as after a restart")
    if error.code == CONNECTION_CLOSED:
        if message == _CLOSED:
            connection.lost(session, "ended")
        why = connection.why_it_ended or f"broke off ({message})"
        return ToolFailure(Outcome.UNKNOWN, shorten(f"the server {why}, during the call"))
    if error.code == INTERNAL_ERROR and message == _HTTP_ERROR:
        return ToolFailure(
            Outcome.SERVICE_ERROR, f"the server's host answered with HTTP {connection.refusal or 'error'}"
        )
    return ToolFailure(Outcome.TOOL_ERROR, message)
