"""HTTP tools through the executor and through endpoints, as ratios to a raw aiohttp client in one run.

python benchmarks/http_tools.py [--rounds 5] [--calls 2000] [--concurrency 64]

The server is a process of its own that does nearly nothing, so that the client is what takes the time. Each way posts
JSON over as many pooled connections, each request with a total time limit, and reads the whole answer; `raw aiohttp`
and the tool parse it, `rlf.endpoints.http` alone neither makes nor parses JSON. Rounds of all ways alternate, so that
noise of the machine falls on each; a ratio is the median over rounds, of calls a second and of processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import NamedTuple

import aiohttp

from rlf.endpoints.guard import AddressGuard, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpRequest
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall

SERVER = """
import asyncio

BODY = b'{"result": "Tukkes is the town where Bednox was born."}'
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY)

class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.got = transport, b""
    def data_received(self, data):
        self.got += data
        head, end, rest = self.got.partition(b"\\r\\n\\r\\n")
        if end and len(rest) >= int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n", 1)[0]):
            self.got = b""
            self.transport.write(HEAD + BODY)

async def main():
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TARGET_RATIO = 0.92

Way = Callable[[int], Awaitable[None]]


class Speed(NamedTuple):
    """Of one round."""

    calls_per_s: float
    cpu_us: float
    """Processor time of the client's process for a call, which other processes disturb less."""


async def speed(way: Way, calls: int, concurrency: int) -> Speed:
    """Runs one round with so many calls under way at once."""
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            await way(number)

    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    cpu_s = time.process_time() - cpu_started
    return Speed(calls / (time.perf_counter() - started), cpu_s / calls * 1e6)


async def compare(url: str, rounds: int, calls: int, concurrency: int) -> dict[str, list[Speed]]:
    """The speed of each way, round by round."""
    target = {"kind": "http", "url": url, "method": "POST", "response": "result"}
    limits = {"max_concurrency": concurrency, "timeout_s": 60}
    mapping = {"name": "ask", "description": "A.", "inputSchema": QUERY, "target": target, "limits": limits}
    client = HttpClient(AddressGuard(trusted_hosts(url)), max_connections=concurrency, max_bytes=1_000_000)
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session, Executor([_declared(mapping)]) as executor:

        async def raw(number: int) -> None:
            async with session.post(url, json={"query": f"q{number}"}) as response:
                assert (await response.json())["result"]

        async def guarded(number: int) -> None:
            body = b'{"query": "q%d"}' % number
            await client.send(HttpRequest("POST", url, {"Content-Type": "application/json"}, body), deadline_s=60)

        async def tool(number: int) -> None:
            result = await executor.invoke(ToolCall("ask", {"query": f"q{number}"}), trajectory_id=f"t{number}")
            assert result.outcome is Outcome.OK, result.text

        ways: dict[str, Way] = {"raw aiohttp": raw, "rlf.endpoints.http": guarded, "http tool, whole executor": tool}
        rounds_of: dict[str, list[Speed]] = {name: [] for name in ways}
        for way in ways.values():
            await speed(way, calls // 4, concurrency)
        for _ in range(rounds):
            for name, way in ways.items():
                rounds_of[name].append(await speed(way, calls, concurrency))
    await client.close()
    return rounds_of


def _declared(mapping: dict[str, object]) -> ToolDeclaration:
    return ToolDeclaration.model_validate(mapping)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    asked = parser.parse_args()
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/ask"
        rounds_of = asyncio.run(compare(url, asked.rounds, asked.calls, asked.concurrency))
    finally:
        server.terminate()
        server.wait()
    base = rounds_of["raw aiohttp"]
    print(f"{'way':28} {'calls/s':>8} {'CPU us':>7} {'ratio':>6}   CPU ratio   (target of the tool: {TARGET_RATIO})")
    for name, rounds in rounds_of.items():
        ratio = median(one.calls_per_s / other.calls_per_s for one, other in zip(rounds, base, strict=True))
        cpu_ratio = median(other.cpu_us / one.cpu_us for one, other in zip(rounds, base, strict=True))
        calls_per_s, cpu_us = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name:28} {calls_per_s:8.0f} {cpu_us:7.0f} {ratio:6.2f} {cpu_ratio:9.2f}")


if __name__ == "__main__":
    main()
