"""MCP tools through the whole executor beside a raw session of the SDK: the same calls, side by side in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from rlf.core import RlfError
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall

CONCURRENCY, CALLS, ROUNDS = 64, 1_000, 5
FLOOR = 0.83
"""Share of the raw session's calls a second that the executor must reach."""
SERVER = '''
from mcp.server.mcpserver import MCPServer
import sys
server = MCPServer("bench", log_level="ERROR")
@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text
server.run(*(["streamable-http"] if sys.argv[1:] else []), **({"port": int(sys.argv[1])} if sys.argv[1:] else {}))
'''
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

Call = Callable[[int], Awaitable[None]]


async def calls_per_s(call: Call) -> float:
    """Calls a second with as many at once as training has trajectories."""
    numbers = iter(range(CALLS))

    async def work() -> None:
        for number in numbers:
            await call(number)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return CALLS / (time.perf_counter() - started)


async def compare(stack: AsyncExitStack, server: dict[str, object], streams: object) -> list[tuple[float, float]]:
    """Raw and ours, alternating, so that both meet the same machine."""
    read, write = await stack.enter_async_context(streams)  # type: ignore[arg-type]
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    target = {"kind": "mcp", "server": server, "tool": "echo"}
    mapping = {"name": "echo", "description": "Echo.", "inputSchema": SCHEMA, "target": target}
    executor = await stack.enter_async_context(Executor([ToolDeclaration.model_validate(mapping)]))

    async def raw(number: int) -> None:
        result = await session.call_tool("echo", {"text": str(number)})
        assert not result.is_error, result

    async def ours(number: int) -> None:
        result = await executor.invoke(ToolCall("echo", {"text": str(number)}), trajectory_id=str(number % CONCURRENCY))
        assert result.outcome is Outcome.OK, result

    await calls_per_s(raw), await calls_per_s(ours)
    return [(await calls_per_s(raw), await calls_per_s(ours)) for _ in range(ROUNDS)]


async def stdio() -> list[tuple[float, float]]:
    """Over a process of each one's own."""
    arguments = ["-c", SERVER]
    async with AsyncExitStack() as stack:
        parameters = StdioServerParameters(command=sys.executable, args=arguments)
        return await compare(stack, {"command": sys.executable, "args": arguments}, stdio_client(parameters))


async def http() -> list[tuple[float, float]]:
    """Over streamable HTTP, one server for both."""
    port = 8765
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, str(port))
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        for _ in range(200):
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        async with AsyncExitStack() as stack:
            return await compare(stack, {"url": url}, streamable_http_client(url))
    finally:
        process.kill()
        await process.wait()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    failed = []
    for name, run in (("stdio", stdio), ("http", http)):
        pairs = asyncio.run(run())
        ratio = statistics.median(ours / raw for raw, ours in pairs)
        raw, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name}: raw session {raw:,.0f} calls/s, executor {ours:,.0f} calls/s: {ratio:.2f} (at least {FLOOR})")
        if ratio < FLOOR:
            failed.append(name)
    if failed:
        raise RlfError(f"below {FLOOR}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
