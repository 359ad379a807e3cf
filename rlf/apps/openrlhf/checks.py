"""Checks of a job's surroundings: packages, GPUs, secrets, and what the nodes of a cluster may not find.

Tools and rewards run on the nodes, in the sampling actors. Whether a name is good there cannot be known here: those are
warnings, each with what makes it good everywhere. `faults` refuses keys of a spec.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from rlf.algo.loss_config import CorrectionLevel
from rlf.apps.openrlhf.dataset import find_row_fault
from rlf.apps.openrlhf.flags import find_flag_faults
from rlf.apps.openrlhf.job import MachinePlace
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.apps.openrlhf.settings import (
    VERSION,
    Layout,
    Mode,
    OpenRlhfSettings,
    Package,
    find_python_complaint,
    openrlhf_settings,
)
from rlf.core import Fault
from rlf.core.errors import RlfError
from rlf.core.files import shown_path
from rlf.core.servers import server_context
from rlf.data import recall
from rlf.processes.child import run_to_end
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.model_files import folder_on_disk, model_location, named_folder, read_config
from rlf.spec.models import RunSpec
from rlf.spec.nodes import KeyPath
from rlf.types.task import Task

PINS = {"openrlhf": VERSION, "vllm": "0.29.0", "ray": "2.55.0", "deepspeed": "0.19.6"}
"""The versions that jobs are written for: those of the extra `openrlhf`."""
_TIMEOUT_S = 120
# A place's own: it prints, as JSON, the version of each package that is named, null without, `stand-in` for a test's.
LOOK = """
import importlib.util, json, os, sys
from importlib.metadata import version, PackageNotFoundError
found = {}
for name in sys.argv[1:]:
    found[name] = "stand-in" if importlib.util.find_spec(name) else None
    for package in (name, f"{name}-cpu"):
        try:
            found[name] = found[name] and version(package)
        except PackageNotFoundError:
            pass
if found["openrlhf"]:
    # In a rollout actor a fault of this import is reported after minutes, as a time-out.
    import rlf.apps.openrlhf.agent
print(json.dumps(found))
"""
_SEE = """
import sys
from rlf.chat.vision import Vision, load_processor
Vision(load_processor(sys.argv[1]))
print("sees")
"""
_COUNT = "import torch; print(torch.cuda.device_count())"


def check_place(place: MachinePlace, spec: RunSpec) -> None:
    """Raises RlfError when a job of `spec` cannot run there, with every reason."""
    printed, engine = _run_probe(place, LOOK, *PINS), openrlhf_settings(spec)
    reasons = find_version_complaints(printed, engine.accept_versions)
    needed = Layout.of(spec).total_gpus(engine)
    there = int(_run_probe(place, _COUNT)) if place.num_gpus is None else place.num_gpus
    if there < needed:
        reasons.append(f"the job needs {needed} GPU{'s' * (needed != 1)}, and it has {there}")
    if json.loads(printed)["openrlhf"] is None and (complaint := find_python_complaint()) is not None:
        reasons.insert(0, f"{complaint}, so use an older one")
    if reasons:
        raise RlfError(
            f"engine.kind: openrlhf cannot run with {place.python}: {'; '.join(reasons)}. Install the packages with "
            f"`pip install 'rlf[openrlhf]'` on a machine with the GPUs, or run the job on this CPU: {_on_this_cpu()}"
        )
    if spec.rollout.max_images > 0:
        _run_probe(place, _SEE, model_location(spec.model.path))


def find_version_complaints(printed: str, accepted: Mapping[Package, str]) -> list[str]:
    """The packages that a job cannot run with.

    Args:
        printed: by `LOOK`.
        accepted: `engine.accept_versions`.
    """
    packages: dict[str, str | None] = json.loads(printed)
    wanted = PINS | {str(name): version for name, version in accepted.items()}
    return [
        f"{name} is not installed there"
        if found is None
        else f"{name} is {found}; jobs are written for {PINS[name]} (on purpose: `engine.accept_versions: "
        f"{{{name}: {Version(found).base_version}}}`)"
        for name, found in packages.items()
        if found is None or (found != "stand-in" and Version(found).base_version != Version(wanted[name]).base_version)
    ]


def _on_this_cpu() -> str:
    """The commands that need no GPU."""
    environment = rehearsal_environment()
    here = f"`rlf rehearse SPEC` does two small steps of it, `{environment.command} run SPEC` the whole"
    made = environment.is_ready(vllm=True) and environment.command.is_file()
    return f"{here}." if made else f"{here}, once `rlf rehearse --setup --vllm` has made their environment."


def check_secrets(names: Sequence[str]) -> None:
    """Raises RlfError when a variable is not set that a tool, a reward or a report reads."""
    absent = [name for name in names if not os.environ.get(name)]
    if absent:
        raise RlfError(f"{', '.join(absent)}: not set; a tool, a reward, a report or the ingest reads it. Set it.")


def _run_probe(place: MachinePlace, source: str, *arguments: str) -> str:
    """The last line that a place's interpreter prints for a program."""
    done = run_to_end([place.python, "-c", source, *arguments], _TIMEOUT_S, env=place.environment({}))
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:]
        reason = "".join(why).removeprefix(f"{RlfError.__module__}.{RlfError.__name__}: ")
        raise RlfError(f"engine.kind: openrlhf: {place.python} cannot report what it has: {reason}")
    return done.stdout.splitlines()[-1]


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
