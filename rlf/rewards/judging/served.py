"""A judge that is served while its term is open: `rlf judge serve` as a process, which ends with it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import IO

from rlf.core import RunError
from rlf.endpoints import EndpointSpec
from rlf.rewards.judging.settings import Serve

logger = logging.getLogger(__name__)

_SUPERVISED = (sys.executable, "-m", "rlf.processes.supervise")
"""Runs a command, and ends it with all that it started on request or when this process is gone."""
_END_S = 15.0
_MAX_LOG_CHARS = 1_000


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[Mapping[str, Sequence[EndpointSpec]]]:
    """The endpoints of a judge by its model: servers that live as long as the context.

    Raises:
        RunError: the servers do not start.
    """
    started = perf_counter()
    logger.info("judge server of %s begins: %d processes", serve.model, serve.num)
    with tempfile.TemporaryFile() as log:
        process = await _start_server(serve, log)
        try:
            urls = await _read_urls(process, serve, log)
            logger.info(
                "judge server of %s is ready after %.1f s: %s", serve.model, perf_counter() - started, ", ".join(urls)
            )
            yield {serve.model: [EndpointSpec(url=url, model=serve.model) for url in urls]}
        finally:
            await _end_servers(process)
            logger.info("judge server of %s done: %.1f s", serve.model, perf_counter() - started)


def command_of(serve: Serve) -> list[str]:
    """The command that serves a model on free ports."""
    gpus = ["--gpus", ",".join(map(str, serve.gpus))] if serve.gpus else []
    options = ["--num", str(serve.num), *gpus, "--port", "0", "--start-s", f"{serve.start_s:g}", "--json"]
    return [*_SUPERVISED, sys.executable, "-m", "rlf", "judge", "serve", serve.model, *options, "--", *serve.args]


async def _start_server(serve: Serve, log: IO[bytes]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command_of(serve),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for the run, which ends this process itself
    )


async def _read_urls(process: asyncio.subprocess.Process, serve: Serve, log: IO[bytes]) -> list[str]:
    """The addresses that the first line of output holds, once all servers are well."""
    assert process.stdout is not None, "stdout is a pipe"
    try:
        async with asyncio.timeout(serve.start_s + _END_S):
            line = await process.stdout.readline()
        reply = json.loads(line)
        return [server["url"] for server in reply["data"]["endpoints"]]
    except (TimeoutError, ValueError, KeyError, TypeError) as fault:
        log.seek(0)
        last_output = log.read().decode("utf-8", "replace").strip()[-_MAX_LOG_CHARS:] or "it printed nothing"
        raise RunError(f"serve: the judge {serve.model} cannot be served: {last_output}") from fault


async def _end_servers(process: asyncio.subprocess.Process) -> None:
    """Ends the servers, also while this task is being cancelled."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    waiting = asyncio.ensure_future(process.wait())
    _, late = await asyncio.wait((waiting,), timeout=_END_S)
    if late:
        with suppress(ProcessLookupError):
            process.kill()
        await waiting
