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

import rlf
from rlf.core.errors import RunError
from rlf.engines.openrlhf.job.folder import Job
from rlf.engines.openrlhf.job.place import Place
from rlf.engines.openrlhf.launch import ray_job
from rlf.engines.openrlhf.launch.process import supervised
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
        async with supervised(command, log=log, environment=environment, folder=log.parent) as process:
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
