"""Paths and addresses that a cluster's nodes may not find as the machine that runs `rlf` does.

Tools and rewards run on the nodes, in the sampling actors. Whether a name is good there cannot be known here: these are
warnings, each with what makes it good everywhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlf.algo.loss_config import CorrectionLevel
from rlf.core import Fault, RlfError
from rlf.core.servers import server_context
from rlf.data import recall
from rlf.engines.openrlhf.compile.options import find_flag_faults
from rlf.engines.openrlhf.job.dataset import find_row_fault
from rlf.engines.openrlhf.settings import Mode, OpenRlhfSettings, openrlhf_settings
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.model_files import folder_on_disk, named_folder, read_config
from rlf.spec.nodes import KeyPath
from rlf.spec.reader import shown_path
from rlf.types.task import Task

_SHARED = "Put it on a shared disk under this name"


def find_cluster_warnings(loaded: LoadedSpec, address: str) -> Iterator[Fault]:
    """Warnings of what every node of a cluster must have itself."""
    if named_folder(loaded.spec.model.path) is not None:
        message = f"got {shown_path(Path(loaded.spec.model.path))}; every node of {address} must find it there. "
        yield loaded.fault(("model", "path"), f"{message}Put it on a shared disk, or write a Hugging Face id.")
    values = loaded.spec.model_dump(mode="json", by_alias=True, include={"tools", "rewards", "env"})
    for path, text in _texts(values):
        complaint = _complaint(path, text)
        if complaint is not None:
            yield loaded.fault(path, complaint)


def _complaint(path: KeyPath, text: str) -> str | None:
    """Why a text may mean nothing on a node, and the fix; None where it means the same everywhere."""
    file, _, _ = text.rpartition(".py:")
    match path[-1]:
        case "url" if "://" not in text:
            return f"got the file {shown_path(Path(text))}; every node opens its own. {_SHARED}."
        case "url" if (host := _own(text)) is not None:
            return (
                f"got {host}, which means another machine on every node. Write an address of this machine that the "
                "nodes reach, or start the service on each node."
            )
        case "command":
            return (
                f"got {text}; every sampling actor starts the command on its node. Install it on each, or start one "
                "server with `rlf tools serve`, and write the url."
            )
        case "callable" if file:
            return f"got {shown_path(Path(f'{file}.py'))}; every node must find it there. {_SHARED}."
        case "callable" if not text.startswith("rlf."):
            return f"got {text}; every node imports it from its own packages. Install the package on each."
    return None


def _own(url: str) -> str | None:
    """The host of a URL that names its own user, else None."""
    try:
        host = urlsplit(url).hostname or ""
        address = ipaddress.ip_address(host)
    except ValueError:
        return host if host == "localhost" or host.endswith(".localhost") else None
    return host if address.is_loopback or address.is_unspecified else None


def _texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in nested values, with where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(child, (*path, key))


# Faults in the model, the data and the names of options, found before a job of OpenRLHF is written.


def find_looked_faults(loaded: LoadedSpec, tasks: Mapping[str, Sequence[Task]]) -> Iterator[Fault]:
    """Args: tasks: the rows that were read of `data.train` and `data.eval`, by these names."""
    yield from find_flag_faults(loaded)
    yield from _find_heads(loaded)
    yield from _find_adapted_sight(loaded)
    yield from _find_certificate(loaded)
    for name, rows in tasks.items():
        complaint = recall(find_row_fault, rows)
        if complaint is not None:
            yield loaded.fault(("data", name, "path"), complaint)


@reads("engine.vllm", "model.path")
def _find_heads(loaded: LoadedSpec) -> Iterator[Fault]:
    """vLLM gives each GPU of an engine as many attention heads."""
    parts, folder = openrlhf_settings(loaded.spec).vllm.tensor_parallel, folder_on_disk(loaded.spec.model.path)
    config = {} if folder is None else read_config(folder)
    heads = config.get("text_config", config).get("num_attention_heads")
    if isinstance(heads, int) and heads % parts:
        fitting = max(n for n in range(1, parts) if heads % n == 0)
        message = f"got {parts}; the model has {heads} attention heads, which must divide evenly. "
        yield loaded.fault(("engine", "vllm", "tensor_parallel"), f"{message}Write e.g. `tensor_parallel: {fitting}`.")


@reads("model.path", "model.lora")
def _find_adapted_sight(loaded: LoadedSpec) -> Iterator[Fault]:
    """Adapters of a model that sees, whether it is shown anything or not."""
    lora, folder = loaded.spec.model.lora, folder_on_disk(loaded.spec.model.path)
    if lora is not None and folder is not None and "vision_config" in read_config(folder):
        message = f"got adapters; {shown_path(folder)} sees images, and vLLM's names of the weights of such models "
        yield loaded.fault(("model", "lora"), f"{message}are others. Remove it.")


@reads("engine.ingest")
def _find_certificate(loaded: LoadedSpec) -> Iterator[Fault]:
    """Files that no server can show."""
    ingest = openrlhf_settings(loaded.spec).ingest
    try:
        server_context(None if ingest is None else ingest.shown())
    except RlfError as fault:
        yield loaded.fault(("engine", "ingest", "certificate"), str(fault))


# Warnings of legal settings that OpenRLHF treats otherwise than a reader may expect.

SHORT_WARMUP = 10
"""Updates of a warm-up below which its empty first one counts."""


def find_openrlhf_warnings(loaded: LoadedSpec, engine: OpenRlhfSettings) -> Iterator[Fault]:
    """Warnings of what OpenRLHF does differently from the local engine, within the spec."""
    spec, train = loaded.spec, loaded.spec.train
    if 1 < train.warmup_steps < SHORT_WARMUP:
        message = f"got {train.warmup_steps}; OpenRLHF's warm-up starts at rate 0, so that the first update changes "
        fix = f"Write 0, or {SHORT_WARMUP} or more."
        yield loaded.fault(("train", "warmup_steps"), f"{message}nothing and each later one is a step behind. {fix}")
    if train.dynamic_filtering is not None:
        message = (
            f"OpenRLHF replaces dropped groups from the {train.steps * train.prompts_per_step} questions of all steps, "
            f"so it makes fewer than {train.steps} updates. Raise train.steps by the share that is dropped."
        )
        yield loaded.fault(("train", "dynamic_filtering"), message)
    if engine.mode is not Mode.SYNC and train.loss.correction.level is CorrectionLevel.OFF:
        message = (
            f"got {engine.mode} without train.loss.correction; trajectories come from older weights than the update "
        )
        yield loaded.fault(("engine", "mode"), f"{message}takes them for. Write e.g. `correction: {{level: token}}`.")
    is_tried_between = spec.eval.due_steps(train.steps) - {0, train.steps}
    if engine.mode is not Mode.SYNC and spec.data.eval is not None and not is_tried_between:
        message = f"got {engine.mode}; sampling ends before the last update, so that no update is evaluated. "
        yield loaded.fault(("engine", "mode"), f"{message}Write e.g. `eval: {{every: 10}}`, or mode: sync.")
    if engine.ray_address is not None:
        yield from find_cluster_warnings(loaded, engine.ray_address)
