"""Judges on this machine: a pool of servers of one model, each a process, by vLLM where it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlf.api.rewards.scoring import load_rewards
from rlf.api.serving import listening, stopping
from rlf.builtin.names import BUILTIN
from rlf.core.errors import RlfError, RunError
from rlf.endpoints.visitors import ALLOWED_HOSTS, VisitorGuard, own_names
from rlf.rewards.judging.settings import Serve
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.spec.looking.model_folder import model_location

__all__ = ["JudgeEndpoints", "Serve", "ServedModel", "judges_of", "serve_judges"]

_GUARDED = ("--middleware", f"{VisitorGuard.__module__}.{VisitorGuard.__qualname__}")
"""vLLM's own server answers any Host and Origin."""
_SUPERVISED = (sys.executable, "-m", "rlf.core.supervise")
_PATIENT = ("--strict", "--max-concurrency", "32", "--max-queue", "1000000", "--request-s", "86400")
"""Of a server that answers judges alone: who asks has limits of its own."""
_POLL_S = 0.2
_END_S = 15.0
_MAX_SAID_CHARS = 600
_LOG_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ \S+ \S+ \[\S+\] ?)?", re.MULTILINE)
"""What each of vLLM's processes puts before its lines."""
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)|\S+: error): .*(?:\n[ \t]+\S.*){0,2}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server that is well."""

    url: str
    model: str


@dataclass(frozen=True, slots=True)
class JudgeEndpoints:
    """Every server, in the form of a judge's `endpoints:`."""

    endpoints: tuple[ServedModel, ...]


def judges_of(name: str, serve: Serve) -> list[Serve]:
    """What to serve: a model as `serve` says, or the judges of a spec or reward file as their terms say.

    Raises:
        RlfError: the spec has no judge with `serve`.
    """
    if Path(name).suffix not in (".yaml", ".yml"):
        return [serve.model_copy(update={"model": name})]
    (file,) = load_rewards([Path(name)])
    found = [term.serve for term in file.terms if isinstance(term, JudgeTerm) and term.serve is not None]
    if not found:
        raise RlfError(f"{name}: no judge says what to serve. Write `serve: {{model: NAME}}` in a term of kind judge.")
    return list(dict.fromkeys(found))


async def serve_judges(judges: Sequence[Serve], host: str, port: int, tell: Callable[[JudgeEndpoints], None]) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        port: of the first server; the others follow. 0: any that are free.
        tell: called once, when all servers are well.

    Raises:
        RunError: a port is in use, a server does not start, or one ends.
    """
    stopped = asyncio.Event()
    with stopping(stopped.set):
        async with AsyncExitStack() as stack:
            wanted = [(serve, number) for serve in judges for number in range(serve.num)]
            ports = _free_ports(host, port, len(wanted))
            workers = [_Worker(*each, host, own) for each, own in zip(wanted, ports, strict=True)]
            for worker in workers:
                await stack.enter_async_context(worker.running())
            ends = [asyncio.ensure_future(worker.well()) for worker in workers]
            stop = asyncio.ensure_future(stopped.wait())
            await _first(stop, asyncio.gather(*ends))
            if not stop.done():
                tell(JudgeEndpoints(tuple(ServedModel(worker.url, worker.serve.model) for worker in workers)))
                await _first(stop, *(asyncio.ensure_future(worker.ended()) for worker in workers))
            stop.cancel()


class _Worker:
    """One server."""

    def __init__(self, serve: Serve, number: int, host: str, port: int) -> None:
        self.serve = serve
        self.url = f"http://{host}:{port}/v1"
        self._host = host
        self._gpus = _share(serve.gpus, number, serve.num)
        self._command = _command(serve, host, port, len(self._gpus))
        self._log: IO[bytes]
        self._process: asyncio.subprocess.Process

    @asynccontextmanager
    async def running(self) -> AsyncIterator[_Worker]:
        """Starts it, and ends it with all that it started."""
        environment = dict(os.environ)
        if self.serve.model.startswith(BUILTIN):
            environment["OMP_NUM_THREADS"] = "1"  # of a model this small, threads only wait for each other
        environment[ALLOWED_HOSTS] = ",".join(own_names(self._host))
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self._gpus))
        with tempfile.TemporaryFile() as self._log:
            self._process = await asyncio.create_subprocess_exec(
                *_SUPERVISED,
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment,
                start_new_session=True,
            )
            try:
                yield self
            finally:
                await self._end()

    async def well(self) -> None:
        """Waits until it answers. Raises RunError where it ends first, or time is up."""
        import aiohttp

        health = self.url.removesuffix("/v1") + "/health"
        try:
            async with asyncio.timeout(self.serve.start_s), aiohttp.ClientSession() as session:
                while self._process.returncode is None:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(health) as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as fault:
            raise RunError(
                f"{self.serve.model} is not served after {self.serve.start_s:g} s: {self._said()}"
            ) from fault
        raise RunError(f"{self.serve.model} cannot be served: {self._said()}")

    async def ended(self) -> None:
        """Waits for its end, which should not come. Raises RunError."""
        await self._process.wait()
        raise RunError(f"the server of {self.serve.model} at {self.url} has ended: {self._said()}")

    async def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        waiting = asyncio.ensure_future(self._process.wait())
        _, late = await asyncio.wait((waiting,), timeout=_END_S)
        if late:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await waiting

    def _said(self) -> str:
        """The last line of its log, after the first error there: of several processes, what the others died of."""
        self._log.seek(0)
        said = _LOG_PREFIX.sub("", self._log.read().decode("utf-8", "replace")).strip()
        last, first = said.rpartition("\n")[2], _ERROR.search(said)
        if first is not None and last not in first[0]:
            last = f"{first[0]}\n{last}"
        return last[:_MAX_SAID_CHARS] if last else "it said nothing"


async def _first(*waiting: asyncio.Future[Any]) -> None:
    """Waits for the first to end, and raises what it raises; the others but the first are given up."""
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting[1:]:
            each.cancel()
    for each in done:
        each.result()


def _command(serve: Serve, host: str, port: int, num_gpus: int) -> list[str]:
    """vLLM's own server where it is installed; a builtin model is too small for it."""
    path = model_location(serve.model)
    if path != serve.model or importlib.util.find_spec("vllm") is None:
        if serve.args:
            raise RlfError(
                f"serve.args: {' '.join(serve.args)} is for `vllm serve`; {serve.model} is served without it."
            )
        own = ["--name", serve.model, "--host", host, "--port", str(port)]
        return [sys.executable, "-m", "rlf", "serve", path, *own, *_PATIENT]
    parallel = ["--tensor-parallel-size", str(num_gpus)] if num_gpus > 1 else []
    named = ["--served-model-name", serve.model, "--host", host, "--port", str(port)]
    return [sys.executable, "-m", *_vllm(path), *named, *_GUARDED, *parallel, *serve.args]


def _vllm(path: str) -> list[str]:
    """`vllm serve PATH`, or what it starts: vLLM's command line asks for a package `vllm`, which CPUs have not."""
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return ["vllm.entrypoints.openai.api_server", "--model", path]
    return ["vllm.entrypoints.cli.main", "serve", path]


def _share(gpus: Sequence[int], number: int, num: int) -> Sequence[int]:
    """The GPUs of one server of several. Raises RlfError where they cannot be shared out evenly."""
    if len(gpus) % num:
        raise RlfError(f"serve.gpus: {len(gpus)} GPUs for {num} servers; expected the same number for each.")
    each = len(gpus) // num
    return gpus[number * each : (number + 1) * each]


def _free_ports(host: str, first: int, num: int) -> list[int]:
    """Ports that nobody listens on at this time, one after the other from `first`. Raises RunError."""
    with ExitStack() as held:
        listeners = [held.enter_context(listening(host, first and first + at)) for at in range(num)]
        return [listener.getsockname()[1] for listener in listeners]
