"""vLLM's own server of a model: its command line."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence

from rlf.core.servers import VisitorGuard

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
