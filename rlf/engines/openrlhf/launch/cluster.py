"""A job on a Ray cluster: submitted with the job folder to its job server, followed by its output, stopped by name."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

import rlf
from rlf.core.errors import RlfError, RunError
from rlf.engines.openrlhf.job.folder import Job, Place
from rlf.engines.openrlhf.launch import ray_job
from rlf.engines.openrlhf.launch.process import logged
from rlf.engines.openrlhf.layout import VERSION, Layout, find_python_complaint
from rlf.engines.openrlhf.rehearse.env import rehearsal_environment
from rlf.engines.openrlhf.settings import Package, openrlhf_settings
from rlf.spec.model_files import model_location
from rlf.spec.models import RunSpec
from rlf.types.events import EventSink, Notice

_OUTPUTS = ("/spool", "/ckpt", "/logs", "/model", "/tensorboard", "/place.json")
"""What lies in the job folder and is not shipped."""
GOES_ON = ("PENDING", "RUNNING")
DONE = "SUCCEEDED"
_STATE_S = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A job server, and the interpreter that can speak to it."""

    address: str
    place: Place
    emit: EventSink

    def state(self, name: str) -> str:
        """How a job stands, by Ray's words; UNKNOWN for one that the server does not know.

        Raises:
            RunError: the server does not answer.
        """
        command, env = self._command("state", name), self.place.environment({})
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=_STATE_S)
        except subprocess.CalledProcessError as error:
            raise RunError(f"{self.address}: the job server does not answer: {_last_line(error.stderr)}") from error
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{self.address}: the job server does not answer within {_STATE_S:g} s") from error
        return _last_line(done.stdout)

    async def submit(self, name: str, job: Job, command: Sequence[str], job_env: Mapping[str, Any]) -> None:
        """Submits a command that runs in a copy of the job folder.

        Args:
            job_env: what env.json holds.

        Raises:
            RunError: the server does not take it.
        """
        # For the job's first process alone: OpenRLHF hands on some itself, and Ray refuses two that speak of the same.
        variables = [f"{key}={value}" for key, value in {"RAY_DEDUP_LOGS": "0", **job_env["set"]}.items()]
        request = {
            "entrypoint": shlex.join(["env", *variables, *command]),
            "runtime_env": _job_environment(job, job_env),
        }
        process = await asyncio.create_subprocess_exec(
            *self._command("submit", name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self.place.environment({}),
        )
        try:
            _, errors = await process.communicate(json.dumps(request).encode())
        except asyncio.CancelledError:  # by then the server may have it
            await asyncio.shield(process.wait())
            await asyncio.shield(self._stop(name))
            raise
        if process.returncode != 0:
            raise RunError(f"{self.address}: the job server does not take the job: {_last_line(errors)}")

    @asynccontextmanager
    async def followed(
        self, name: str, log: Path, stops: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that writes a job's whole output, from its beginning, until it is over; 0 where it succeeded.

        When the block is left before its end, the job is stopped, if `stops` says so. When this process dies the job
        continues.
        """
        log.unlink(missing_ok=True)  # noqa: ASYNC240 - a local file
        command, environment = self._command("follow", name), self.place.environment({})
        async with logged(command, log=log, environment=environment, folder=log.parent) as process:
            try:
                yield process
            finally:
                if process.returncode is None and stops():
                    await asyncio.shield(self._stop(name))

    async def _stop(self, name: str) -> None:
        """Ends a job; one that is over is left as it is."""
        process = await asyncio.create_subprocess_exec(
            *self._command("stop", name),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self.place.environment({}),
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            reason = _last_line(errors) or "it does not end"
            text = f"{self.address}: job {name} could not be stopped and may still run: {reason}"
            self.emit(Notice("warning", text, {"job": name}))

    def _command(self, action: str, name: str) -> list[str]:
        return [self.place.python, "-P", ray_job.__file__, self.address, action, name]


def submission_id(job: Job, number: int) -> str:
    """The name of the n-th launch of a job on its cluster."""
    return f"rlf-{job.run_id}-{number}"


def _job_environment(job: Job, job_env: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of every node: the job folder, secrets, and rlf's own code unless it is an installed package."""
    secrets = {name: os.environ[name] for name in job_env["secrets"]}
    folder = Path(rlf.__file__).parent
    shipped = [] if folder.parent.name.endswith("-packages") else [str(folder)]
    return {
        "working_dir": str(job.folder),
        "excludes": list(_OUTPUTS),
        "env_vars": secrets,
        "py_modules": shipped,
    }


def _last_line(printed: str | bytes) -> str:
    text = printed if isinstance(printed, str) else printed.decode(errors="replace")
    return (text.strip().splitlines() or [""])[-1]


# Checks before a job starts: packages, GPUs, and whether the agent can be imported.

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
