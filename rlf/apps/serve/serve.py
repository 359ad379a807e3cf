"""A model of this machine as an OpenAI-compatible server, used as it was trained."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rlf.apps.serve import ServeSettings
from rlf.chat import FORMATS, detect_format
from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError, RunError
from rlf.core.servers import ALLOWED_HOSTS, VisitorGuard, listening, own_names, stopping
from rlf.engines.engine import Engine, HostSettings
from rlf.processes import supervise
from rlf.processes.child import start_apart, supervised
from rlf.python.runs import Run
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Overrides, Spec, to_command
from rlf.runs.targets import open_target
from rlf.spec.engines import default_engine
from rlf.spec.model_files import model_location
from rlf.spec.models import ChatSpec, RunSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.apps.serve.agent import ServedAgent
    from rlf.types.policy import Host

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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """A server that answers."""

    url: str
    model: str
    """What requests call it."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model with what it is used by."""

    path: str | None
    """A folder or a Hugging Face id."""
    load: Callable[[HostSettings], tuple[Host, PreTrainedTokenizerBase]]
    chat: ChatSpec
    played: RunSpec | None = None
    """Whose tools and limits the server plays itself; None: a request is one turn."""


@contextmanager
def used_as_trained(
    name: str, files: Sequence[Path], overrides: Sequence[str], runs_folder: Path, *, plays: bool = False
) -> Iterator[ModelUse]:
    """A target as its spec says.

    Args:
        plays: whether the server plays the spec's tools itself.

    Raises:
        RlfError: it is no model, or its spec is wrong.
    """
    with open_target(name, files, overrides, runs_folder=runs_folder, needs_data=False) as target:
        if plays and target.plan is None:
            raise RlfError(f"--agent: {name} has no spec with tools to serve. Name one, e.g. specs/search.yaml.")
        yield ModelUse(target.model, target.load_host, target.spec.chat, target.spec if plays else None)


@contextmanager
def used_alone(path: str) -> Iterator[ModelUse]:
    """A folder or a Hugging Face id without any spec: a judge."""
    engine = default_engine()
    assert isinstance(engine, Engine), f"{engine} serves no model"
    yield ModelUse(path, lambda settings: engine.load_host(model_location(path), settings), ChatSpec())


async def serve_model(used: ModelUse, settings: ServeSettings, *, num_slots: int, tell: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        num_slots: answers that are sampled at once.
        tell: takes its URL, once it answers.

    Raises:
        RlfError: the model does not load.
        RunError: the port is in use.
    """
    from rlf.apps.serve.app import ModelServer, answering

    stopped = asyncio.Event()
    with stopping(stopped.set), listening(settings.host, settings.port) as listener:
        host, tokenizer = await asyncio.to_thread(used.load, HostSettings(num_slots=num_slots))
        async with host, _open_agent(used.played, tokenizer) as agent:
            server = ModelServer(host, tokenizer, settings, used.chat.format, used.chat.thinking_tag, agent)
            async with answering(server, listener) as url:
                tell(url)
                await stopped.wait()


async def serve_by_vllm(
    used: ModelUse,
    settings: ServeSettings,
    arguments: Sequence[str],
    *,
    num_slots: int,
    start_s: float,
    tell: Callable[[str], None],
) -> None:
    """Starts vLLM's own server of the model and watches it, until SIGINT or SIGTERM. Untried on a GPU.

    Args:
        arguments: further ones of `vllm serve`.
        start_s: time until it must answer.
        tell: takes its URL, once it does.

    Raises:
        RlfError: vLLM is not installed.
        RunError: the port is in use, the server does not start, or it ends.
    """
    if not has_vllm():
        raise RlfError("--vllm: vLLM is not installed here. Install vllm==0.29.0, or leave the option out.")
    assert used.path is not None, "a target that is not an endpoint has a model"
    with listening(settings.host, settings.port) as listener:
        port = listener.getsockname()[1]
    own = as_trained(_vllm_parser(used), num_slots=num_slots)
    command = vllm_server(used.path, settings.name, settings.host, port, [*own, *arguments])
    key = {"VLLM_API_KEY": settings.api_key} if settings.api_key else {}
    serving = asyncio.ensure_future(
        run_server(settings.name, (settings.host, port), command, key, start_s=start_s, tell=tell)
    )

    def stop() -> None:
        serving.cancel()

    with stopping(stop), contextlib.suppress(asyncio.CancelledError):
        await serving


def _vllm_parser(used: ModelUse) -> str:
    """vLLM's tool parser of the model's chat format; empty where either is not known."""
    assert used.path is not None, "a target that is not an endpoint has a model"
    try:
        chat = used.chat.format
        return FORMATS.get(detect_format(load_tokenizer(used.path))[0] if chat == "auto" else chat).vllm_parser
    except RlfError:
        return ""


@asynccontextmanager
async def _open_agent(spec: RunSpec | None, tokenizer: PreTrainedTokenizerBase) -> AsyncIterator[ServedAgent | None]:
    """The agent that plays the tools of a spec, with its tools open."""
    if spec is None:
        yield None
        return
    from rlf.apps.serve.agent import ServedAgent
    from rlf.training.harness import build_harness

    harness = build_harness(spec, tokenizer, lambda level, text: logger.warning("%s: %s", level, text))
    if harness.worlds is not None:
        raise RlfError("--agent: env: a world begins with a row of the spec's data; serve the model without --agent.")
    system = spec.data.train.system
    async with AsyncExitStack() as stack:
        for part in (harness.tools, *([] if harness.agents is None else [harness.agents])):
            await stack.enter_async_context(part)
        yield ServedAgent(harness, system if system is not None and "{" not in system else None)


@contextmanager
def serve(
    target: Run | str,
    spec: Spec = (),
    overrides: Overrides = (),
    *,
    agent: bool = False,
    api_key: str | None = None,
    port: int = 0,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> Iterator[ServedEndpoint]:
    """Serves a model from a process of its own until the block ends: what `rlf serve` does, on this machine alone.

    Args:
        target: a run, `RUN@STEP`, a folder, a Hugging Face id or a `builtin:` name.
        spec: one that differs from its run's.
        agent: whether the server plays the spec's tools itself, so that a request gets the final answer.
        api_key: what requests must send.
        port: 0 takes any that is free.

    Raises:
        RlfError: it is no model, its spec is wrong, or the port is in use.
    """
    name, folder = (target.id, target.runs_folder) if isinstance(target, Run) else (target, Path(runs_folder))
    files, texts = to_command(spec, overrides, folder, in_file=True)
    command = [sys.executable, "-m", "rlf", "serve", name, *map(str, files), *texts]
    command += ["--port", str(port), "--runs", str(folder), "--json", *(["--agent"] if agent else [])]
    keyed = os.environ | ({} if api_key is None else {"RLF_API_KEY": api_key})  # not an argument, which all users see
    with (
        tempfile.TemporaryFile() as messages,
        start_apart(  # below a supervisor, which ends it when this process dies
            [sys.executable, supervise.__file__, *command], stdout=subprocess.PIPE, stderr=messages, env=keyed
        ) as process,
    ):
        try:
            assert process.stdout is not None, "it is a pipe"
            line = process.stdout.readline()
            if not line:
                messages.seek(0)
                raise RlfError(
                    messages.read().decode(errors="replace").strip() or f"rlf serve {name}: ended without a message"
                )
            yield ServedEndpoint(**json.loads(line)["data"])
        finally:
            process.terminate()
