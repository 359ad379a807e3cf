"""Checks before a job starts: packages, GPUs, and whether the agent can be imported."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence

from packaging.version import Version

from rlf.core.errors import RlfError
from rlf.engines.openrlhf.job.place import Place
from rlf.engines.openrlhf.layout import Layout
from rlf.engines.openrlhf.rehearse.env import rehearsal_environment
from rlf.engines.openrlhf.settings import Package, openrlhf_settings
from rlf.engines.openrlhf.versions import VERSION, find_python_complaint
from rlf.spec.model_files import model_location
from rlf.spec.models import RunSpec

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
    import rlf.engines.openrlhf.actor.agent
print(json.dumps(found))
"""
_SEE = """
import sys
from rlf.chat.encoding import Vision
from rlf.chat.encoding import load_processor
Vision(load_processor(sys.argv[1]))
print("sees")
"""
_COUNT = "import torch; print(torch.cuda.device_count())"


def check_place(place: Place, spec: RunSpec) -> None:
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


def _run_probe(place: Place, source: str, *arguments: str) -> str:
    """The last line that a place's interpreter prints for a program."""
    command, environment = [place.python, "-c", source, *arguments], place.environment({})
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environment)
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:]
        reason = "".join(why).removeprefix(f"{RlfError.__module__}.{RlfError.__name__}: ")
        raise RlfError(f"engine.kind: openrlhf: {place.python} cannot report what it has: {reason}")
    return done.stdout.splitlines()[-1]
