"""An MCP server as a child process: lines of JSON-RPC on its stdin and stdout.

In place of the SDK's own transport because a server may be broken: one line has a bound, what is no message is
skipped, what is no readable answer ends its call, stderr is drained and its end kept for the fault, and no process of
its group outlives the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import anyio
from mcp.client.stdio import get_default_environment
from mcp_types import JSONRPCError, JSONRPCResponse

from rlf.apps.servers.messages import LINE_END, Cutter, Inbound, OpenRequests, Outbound, Pulse, Streams, open_streams
from rlf.core.redact import Redactor
from rlf.processes.held import PIPE_BYTES, PipedChild
from rlf.tools.mcp.server import McpServer

logger = logging.getLogger(__name__)

_SHOWN_BYTES: Final = 200
_BUFFERED_MESSAGES: Final = 64
_LINES_A_TURN: Final = 50
"""Lines that are read before everything else on the event loop has its turn."""
_MAX_UNSENT: Final = 1_000
"""Messages for a server that reads none; beyond it, what it asks itself is not answered."""


@contextlib.asynccontextmanager
async def stdio_streams(server: McpServer, on_end: Callable[[str], None], pulse: Pulse) -> AsyncIterator[Streams]:
    """Starts the server and ends it, with every process of its group.

    Args:
        on_end: called with the reason when the server has ended or closed its stdout.
        pulse: notes the server's answers.

    Raises:
        OSError: it cannot be started.
    """
    assert server.command is not None, "a url has no process"
    command = [_find_program(server.command), *server.args]
    with anyio.CancelScope(shield=True):
        child = await PipedChild.start(command, {**get_default_environment(), **server.env}, server.cwd)
    pulse.is_unread = child.has_unread
    with open_streams(_BUFFERED_MESSAGES) as (inbound, outbound, streams):
        waiting = OpenRequests(pulse.hear)
        pumps = [
            asyncio.create_task(_pump_stdin(child.stdin, outbound, waiting)),
            asyncio.create_task(_pump_stdout(child, inbound, waiting, on_end, server.redactor)),
        ]
        try:
            yield streams
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await child.close()
            finally:
                for pump in pumps:
                    pump.cancel()


def _find_program(command: str) -> str:
    """The program to start: one beside the Python that rlf runs with comes before those on PATH.

    So `python` has rlf's own packages, and a server that is installed beside rlf is found in a venv that is not active.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which(command, path=path) or command


async def _pump_stdout(
    child: PipedChild, inbound: Inbound, waiting: OpenRequests, on_end: Callable[[str], None], redactor: Redactor
) -> None:
    """Passes on messages until stdout ends; once nobody listens, keeps reading so that the server can end."""
    lines, num_skipped = Cutter(LINE_END), 0
    while chunk := await child.stdout.read(PIPE_BYTES):
        for number, line in enumerate(lines.feed(chunk), 1):
            if number % _LINES_A_TURN == 0:  # a chunk holds 60,000 of `{}`, a second's work in which no deadline fires
                await asyncio.sleep(0)
            messages = waiting.read(line)
            if messages is None:
                num_skipped += 1
                level = logging.WARNING if num_skipped == 1 else logging.DEBUG
                if logger.isEnabledFor(level):
                    start = (line if isinstance(line, bytes) else line.head)[:_SHOWN_BYTES].decode(errors="replace")
                    logger.log(level, "MCP server: not a message: %.80r", redactor.text(start))
                continue
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                for message in messages:
                    await inbound.send(message)
    on_end(await child.describe_end())
    inbound.close()


async def _pump_stdin(stdin: asyncio.StreamWriter, outbound: Outbound, waiting: OpenRequests) -> None:
    with contextlib.suppress(OSError):  # the server is gone: its stdout ends too, which is reported
        async for item in outbound:
            is_reply = isinstance(item.message, JSONRPCResponse | JSONRPCError)
            if is_reply and outbound.statistics().current_buffer_used > _MAX_UNSENT:
                continue
            waiting.note_sent(item.message)
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
