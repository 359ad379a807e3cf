"""Servers that are processes: started, watched while they answer, ended with all that they started."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any

from rlf.core.errors import RunError
from rlf.core.servers import ALLOWED_HOSTS, VisitorGuard, client_context, own_names
from rlf.processes.child import supervised

_POLL_S = 0.2
_MAX_OUTPUT_CHARS = 600
_LOG_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ \S+ \S+ \[\S+\] ?)?", re.MULTILINE)
"""The prefix of each of vLLM's processes to its lines."""
# The first error of the log: the last line alone is often only about the end of the process.
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)|\S+: error): .*(?:\n[ \t]+\S.*){0,2}", re.MULTILINE)


async def run_workers(workers: Sequence[Worker], stopped: asyncio.Event, tell: Callable[[], None]) -> None:
    """Runs them until `stopped`.

    Args:
        tell: called once, when all of them answer.

    Raises:
        RunError: one does not start, or ends.
    """
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.running())
        ends = [asyncio.ensure_future(worker.well()) for worker in workers]
        stop = asyncio.ensure_future(stopped.wait())
        await _wait_for_first(stop, asyncio.gather(*ends))
        if not stop.done():
            tell()
            await _wait_for_first(stop, *(asyncio.ensure_future(worker.ended()) for worker in workers))
        stop.cancel()


class Worker:
    """One server."""

    def __init__(
        self,
        model: str,
        host: str,
        port: int,
        command: Sequence[str],
        *,
        start_s: float,
        certificate: Path | None = None,
        **environment: str,
    ) -> None:
        """Takes what it serves, and how.

        Args:
            certificate: what it shows; None: it speaks plain HTTP.
            start_s: time until it must answer.
            environment: further variables of its process.
        """
        self.model = model
        self.url = f"http{'s' if certificate else ''}://{host}:{port}/v1"
        self._certificate = certificate
        self._host = host
        self._command = command
        self._start_s = start_s
        self._environment = environment
        self._log: IO[bytes]
        self._process: asyncio.subprocess.Process

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """Starts it, and ends it with all that it started."""
        environment = {**os.environ, **self._environment, ALLOWED_HOSTS: ",".join(own_names(self._host))}
        with tempfile.TemporaryFile() as self._log:
            async with supervised(self._command, stdout=self._log, stderr=self._log, env=environment) as self._process:
                yield self

    async def well(self) -> None:
        """Waits until it answers. Raises RunError where it ends first, or time is up."""
        import aiohttp

        health = self.url.removesuffix("/v1") + "/health"
        trusted = True if self._certificate is None else client_context(self._certificate)
        connector = aiohttp.TCPConnector(ssl=trusted)
        try:
            async with asyncio.timeout(self._start_s), aiohttp.ClientSession(connector=connector) as session:
                while self._process.returncode is None:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(health) as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as fault:
            raise RunError(f"{self.model} is not served after {self._start_s:g} s: {self._last_words()}") from fault
        raise RunError(f"{self.model} cannot be served: {self._last_words()}")

    async def ended(self) -> None:
        """Waits for its end, which should not come. Raises RunError."""
        await self._process.wait()
        raise RunError(f"the server of {self.model} at {self.url} has ended: {self._last_words()}")

    def _last_words(self) -> str:
        """The last line of its log, after the first error there: of several processes, what the others died of."""
        self._log.seek(0)
        output = _LOG_PREFIX.sub("", self._log.read().decode("utf-8", "replace")).strip()
        last, first = output.rpartition("\n")[2], _ERROR.search(output)
        if first is not None and last not in first[0]:
            last = f"{first[0]}\n{last}"
        return last[:_MAX_OUTPUT_CHARS] if last else "it printed nothing"


async def _wait_for_first(*waiting: asyncio.Future[Any]) -> None:
    """Waits for the first to end, and raises what it raises; the others but the first are given up."""
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting[1:]:
            each.cancel()
    for each in done:
        each.result()


# vLLM's own server of a model: its command line.

_GUARDED = ("--middleware", f"{VisitorGuard.__module__}.{VisitorGuard.__qualname__}")
"""vLLM's own server answers any Host and Origin."""


def has_vllm() -> bool:
    """Whether vLLM is installed here."""
    return importlib.util.find_spec("vllm") is not None


def vllm_server(path: str, name: str, host: str, port: int, arguments: Sequence[str] = ()) -> list[str]:
    """The command that serves a model as `name`."""
    named = ["--served-model-name", name, "--host", host, "--port", str(port)]
    return [sys.executable, "-m", *_program_words(path), *named, *_GUARDED, *arguments]


def as_trained(parser: str, *, num_slots: int) -> list[str]:
    """Arguments with which vLLM answers as `rlf serve` does, as far as it can.

    Args:
        parser: vLLM's own of the model's chat format; empty where it has none, and calls stay text.
    """
    tools = ["--enable-auto-tool-choice", "--tool-call-parser", parser] if parser else []
    # Log-probabilities as sampled, and tokens named by their ids: what is trained on later is what was sampled.
    exact = ["--logprobs-mode", "processed_logprobs", "--return-tokens-as-token-ids"]
    return [*tools, *exact, "--generation-config", "vllm", "--max-num-seqs", str(num_slots)]


def _program_words(path: str) -> list[str]:
    """`vllm serve PATH`, or what it starts: vLLM's command line asks for a package `vllm`, which CPUs have not."""
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return ["vllm.entrypoints.openai.api_server", "--model", path]
    return ["vllm.entrypoints.cli.main", "serve", path]
