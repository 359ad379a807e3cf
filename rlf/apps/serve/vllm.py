"""vLLM's own server of a model: its command line, and its process, watched while it answers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from rlf.core.errors import RunError
from rlf.core.servers import ALLOWED_HOSTS, VisitorGuard, own_names
from rlf.processes.child import supervised

_POLL_S = 0.2
_MAX_OUTPUT_CHARS = 600
_LOG_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ \S+ \S+ \[\S+\] ?)?", re.MULTILINE)
"""The prefix of each of vLLM's processes to its lines."""
# The first error of the log: the last line alone is often only about the end of the process.
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)|\S+: error): .*(?:\n[ \t]+\S.*){0,2}", re.MULTILINE)


async def run_server(
    name: str,
    address: tuple[str, int],
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    start_s: float,
    tell: Callable[[str], None],
) -> None:
    """Runs a server, with all that it starts, until it is cancelled.

    Args:
        environment: variables beside those of this process.
        start_s: time until it must answer.
        tell: takes its URL, once it answers.

    Raises:
        RunError: it does not start, or ends.
    """
    import aiohttp

    root = "http://{}:{}".format(*address)
    given = {**os.environ, **environment, ALLOWED_HOSTS: ",".join(own_names(address[0]))}
    with tempfile.TemporaryFile() as log:
        async with supervised(command, stdout=log, stderr=log, env=given) as process:
            try:
                async with asyncio.timeout(start_s), aiohttp.ClientSession() as session:
                    while process.returncode is None:
                        with contextlib.suppress(aiohttp.ClientError):
                            async with session.get(f"{root}/health") as response:
                                if response.status == 200:
                                    break
                        await asyncio.sleep(_POLL_S)
            except TimeoutError as fault:
                raise RunError(f"{name} is not served after {start_s:g} s: {_last_words(log)}") from fault
            if process.returncode is not None:
                raise RunError(f"{name} cannot be served: {_last_words(log)}")
            tell(f"{root}/v1")
            await process.wait()
            raise RunError(f"the server of {name} at {root}/v1 has ended: {_last_words(log)}")


def _last_words(log: IO[bytes]) -> str:
    """The last line of a log, after the first error there: of several processes, what the others died of."""
    log.seek(0)
    output = _LOG_PREFIX.sub("", log.read().decode("utf-8", "replace")).strip()
    last, first = output.rpartition("\n")[2], _ERROR.search(output)
    if first is not None and last not in first[0]:
        last = f"{first[0]}\n{last}"
    return last[:_MAX_OUTPUT_CHARS] if last else "it printed nothing"


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
