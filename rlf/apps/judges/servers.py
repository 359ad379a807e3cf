"""Judges on this machine: a pool of servers of one model, each a process, by vLLM where it is installed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rlf.apps.serve.workers import Worker, has_vllm, run_workers, vllm_server
from rlf.builtin.names import BUILTIN
from rlf.core.errors import RlfError
from rlf.core.servers import Certificate, server_context
from rlf.processes.servers import listening, stopping
from rlf.rewards.judging.settings import Serve as Serve
from rlf.rewards.kinds.judge import JudgeTerm
from rlf.runs.rewards import load_rewards
from rlf.spec.model_files import model_location

_PATIENT = ("--strict", "--max-concurrency", "32", "--max-queue", "1000000", "--request-s", "86400")
"""Of a server that answers judges alone: who asks has limits of its own."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server that runs."""

    url: str
    model: str


@dataclass(frozen=True, slots=True)
class JudgeEndpoints:
    """Every server, in the form of a judge's `endpoints:`."""

    endpoints: tuple[ServedModel, ...]


def judges_of(name: str, serve: Serve) -> list[Serve]:
    """Lists what to serve: a model, or the judges of a spec or reward file with the options of their terms.

    Raises:
        RlfError: the spec has no judge with `serve`.
    """
    if Path(name).suffix not in (".yaml", ".yml"):
        return [serve.model_copy(update={"model": name})]
    (file,) = load_rewards([Path(name)])
    found = [term.serve for term in file.terms if isinstance(term, JudgeTerm) and term.serve is not None]
    if not found:
        raise RlfError(
            f"{name}: no judge declares a model to serve. Write `serve: {{model: NAME}}` in a term of kind judge."
        )
    return list(dict.fromkeys(found))


async def serve_judges(
    judges: Sequence[Serve],
    host: str,
    port: int,
    tell: Callable[[JudgeEndpoints], None],
    certificate: Certificate | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM. Requests must bring the key of RLF_API_KEY, where that is set.

    Args:
        certificate: what the servers show, for TLS.
        port: of the first server; the others follow. 0: any that are free.
        tell: called once, when all servers are well.

    Raises:
        RlfError: the certificate cannot be used.
        RunError: a port is in use, a server does not start, or one ends.
    """
    server_context(certificate)
    stopped = asyncio.Event()
    with stopping(stopped.set):
        wanted = [(serve, number) for serve in judges for number in range(serve.num)]
        ports = _free_ports(host, port, len(wanted))
        workers = [_make_worker(*each, host, own, certificate) for each, own in zip(wanted, ports, strict=True)]
        served = JudgeEndpoints(tuple(ServedModel(worker.url, worker.model) for worker in workers))
        await run_workers(workers, stopped, lambda: tell(served))


def _make_worker(serve: Serve, number: int, host: str, port: int, certificate: Certificate | None) -> Worker:
    gpus = _share_gpus(serve.gpus, number, serve.num)
    # Of a model this small, threads only wait for each other.
    environment = {"OMP_NUM_THREADS": "1"} if serve.model.startswith(BUILTIN) else {}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    if api_key := os.environ.get("RLF_API_KEY", "").strip():
        environment["VLLM_API_KEY"] = api_key
    command = _make_command(serve, host, port, len(gpus), certificate)
    shown = None if certificate is None else certificate.file
    return Worker(serve.model, host, port, command, start_s=serve.start_s, certificate=shown, **environment)


def _make_command(
    serve: Serve, host: str, port: int, num_gpus: int, certificate: Certificate | None = None
) -> list[str]:
    """vLLM's own server where it is installed; a builtin model is too small for it."""
    path = model_location(serve.model)
    if path != serve.model or not has_vllm():
        if serve.args:
            raise RlfError(
                f"serve.args: {' '.join(serve.args)} is for `vllm serve`; {serve.model} is served without it."
            )
        own = ["--name", serve.model, "--host", host, "--port", str(port)]
        shown = _certificate_options(certificate, "--certificate", "--key")
        return [sys.executable, "-m", "rlf", "serve", path, *own, *shown, *_PATIENT]
    parallel = ["--tensor-parallel-size", str(num_gpus)] if num_gpus > 1 else []
    shown = _certificate_options(certificate, "--ssl-certfile", "--ssl-keyfile")
    return vllm_server(path, serve.model, host, port, [*parallel, *shown, *serve.args])


def _certificate_options(certificate: Certificate | None, file: str, key: str) -> list[str]:
    """The options of a certificate."""
    return [] if certificate is None else [file, str(certificate.file), key, str(certificate.key)]


def _share_gpus(gpus: Sequence[int], number: int, num: int) -> Sequence[int]:
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
