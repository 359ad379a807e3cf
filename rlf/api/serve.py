"""A model of this machine as an OpenAI-compatible server, used as it was trained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.api.serving import listening, stopping
from rlf.api.targets import open_target
from rlf.engines.engine import Engine, HostSettings
from rlf.serving.settings import ServeSettings
from rlf.spec.engine import default_engine
from rlf.spec.looking.model_folder import model_location
from rlf.spec.models import ChatSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.types.policy import Host

__all__ = ["ServeSettings", "ServedEndpoint", "Used", "serve_model", "used_alone", "used_as_trained"]


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """A server that answers."""

    url: str
    model: str
    """What requests call it."""


@dataclass(frozen=True, slots=True)
class Used:
    """A model with what it is used by."""

    load: Callable[[HostSettings], tuple[Host, PreTrainedTokenizerBase]]
    chat: ChatSpec


@contextmanager
def used_as_trained(name: str, files: Sequence[Path], overrides: Sequence[str], runs_folder: Path) -> Iterator[Used]:
    """A target as its spec says. Raises RlfError where it is no model, or its spec is wrong."""
    with open_target(name, files, overrides, runs_folder=runs_folder, needs_data=False) as target:
        yield Used(target.load_host, target.spec.chat)


@contextmanager
def used_alone(path: str) -> Iterator[Used]:
    """A folder or a Hugging Face id without any spec: a judge."""
    engine = default_engine()
    assert isinstance(engine, Engine), f"{engine} serves no model"
    yield Used(lambda settings: engine.load_host(model_location(path), settings), ChatSpec())


async def serve_model(
    used: Used, settings: ServeSettings, *, num_slots: int, tell: Callable[[ServedEndpoint], None]
) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        num_slots: answers that are sampled at once.
        tell: called once, when it is served.

    Raises:
        RlfError: the model does not load.
        RunError: the port is in use.
    """
    from rlf.serving.listen import serving

    stopped = asyncio.Event()
    with stopping(stopped.set), listening(settings.host, settings.port) as listener:
        host, tokenizer = await asyncio.to_thread(used.load, HostSettings(num_slots=num_slots))
        async with host, serving(host, tokenizer, settings, listener, used.chat.format, used.chat.thinking_tag) as url:
            tell(ServedEndpoint(url, settings.name))
            await stopped.wait()
