"""A job on a Ray cluster: submitted with the job folder to its job server, followed by its output, stopped by name.

Two commands run on the cluster, in the job folder. `start COMMAND ...` looks at the nodes, then becomes the command:
the driver may see none of them, so what each has is checked there, before a model is loaded. `collect` brings records
and checkpoints from the nodes after a job, if the driver does not see their disks: on every node, one after the other,
records that nobody took before are sent, what a stop left half-written of a checkpoint is removed, and the checkpoints
are reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

import rlf
from rlf.apps.openrlhf import ray_script
from rlf.apps.openrlhf.checks import LOOK, PINS, find_version_complaints
from rlf.apps.openrlhf.job import (
    Job,
    MachinePlace,
    checkpoint_hash,
    latest_checkpoint,
    point_to,
    read_attempt,
    step_of,
    whole_checkpoints,
)
from rlf.apps.openrlhf.process import logged
from rlf.apps.openrlhf.settings import Package, openrlhf_settings
from rlf.apps.openrlhf.spool_pool import SUFFIX
from rlf.apps.openrlhf.transfer import NotTaken, send_files
from rlf.core.errors import RlfError, RunError
from rlf.plan import plan_from_json
from rlf.processes.child import run_to_end
from rlf.types.events import CheckpointSaved, EventSink, Notice

_OUTPUTS = ("/spool", "/ckpt", "/logs", "/model", "/tensorboard", "/place.json")
"""What lies in the job folder and is not shipped."""
GOES_ON = ("PENDING", "RUNNING")
DONE = "SUCCEEDED"
_STATE_S, _ACTION_S = 120.0, 1800.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A job server, and the interpreter that can speak to it."""

    address: str
    place: MachinePlace
    emit: EventSink

    def state(self, name: str) -> str:
        """How a job stands, by Ray's words; UNKNOWN for one that the server does not know.

        Raises:
            RunError: the server does not answer.
        """
        try:
            done = run_to_end(self._command("state", name), _STATE_S, env=self.place.environment({}))
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{self.address}: the job server does not answer within {_STATE_S:g} s") from error
        if done.returncode != 0:
            raise RunError(f"{self.address}: the job server does not answer: {_last_line(done.stderr)}")
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
        submitting = asyncio.create_task(self._run("submit", name, says=json.dumps(request)))
        try:
            reason = await asyncio.shield(submitting)
        except asyncio.CancelledError:  # by then the server may have it
            await asyncio.shield(submitting)
            await asyncio.shield(self._stop(name))
            raise
        if reason is not None:
            raise RunError(f"{self.address}: the job server does not take the job: {reason}")

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
        reason = await self._run("stop", name)
        if reason is not None:
            text = f"{self.address}: job {name} could not be stopped and may still run: {reason or 'it does not end'}"
            self.emit(Notice("warning", text, {"job": name}))

    async def _run(self, action: str, name: str, says: str = "") -> str | None:
        """Asks the job server, which copies the job folder when it takes a job; why it does not do it, in a line."""
        command, environment = self._command(action, name), self.place.environment({})
        try:
            done = await asyncio.to_thread(run_to_end, command, _ACTION_S, says=says, env=environment)
        except subprocess.TimeoutExpired:
            return f"no answer within {_ACTION_S:g} s"
        return _last_line(done.stderr) if done.returncode else None

    def _command(self, action: str, name: str) -> list[str]:
        return [self.place.python, "-P", ray_script.__file__, self.address, action, name]


def submission_id(job: Job, number: int) -> str:
    """The name of the n-th launch of a job on its cluster."""
    return f"rlf-{job.run_id}-{number}"


def _job_environment(job: Job, job_env: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of every node: the job folder, secrets, and rlf's own code unless it is an installed package."""
    secrets = {name: os.environ[name] for name in job_env["secrets"]}
    folder = Path(rlf.__file__).parent
    shipped = [] if folder.parent.name.endswith("-packages") else [str(folder)]
    return {"working_dir": str(job.folder), "excludes": list(_OUTPUTS), "env_vars": secrets, "py_modules": shipped}


def _last_line(printed: str) -> str:
    return (printed.strip().splitlines() or [""])[-1]


COLLECT = ("python", "-m", "rlf.apps.openrlhf.cluster", "collect")
_ANSWER = "rlf-nodes: "


def collect_nodes() -> None:
    """Asks every node, and prints the answers in one line."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init()
    found: list[object] = []
    plan_text = Path("plan.json").read_text()
    task = ray.remote(send_remaining)
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": there}
            found += ray.get(task.options(**options).remote(plan_text))
    sys.stdout.write(f"{_ANSWER}{json.dumps(found)}\n")


def send_remaining(plan_text: str) -> list[tuple[int, str, str]]:
    """Sends this node's remaining records; returns its checkpoints: step, path and hash."""
    ingest = openrlhf_settings(plan_from_json(plan_text).spec).ingest
    here = Job(Path.cwd(), Path.cwd())
    attempt = read_attempt(here)
    assert ingest is not None, "a disk that rlf's machine can read"
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, NotTaken):  # rlf names what did not come
        asyncio.run(send_files(sorted(Path(attempt.spool).glob(f"*{SUFFIX}")), ingest, attempt, here.certificate))
    job = Job(Path.cwd(), Path(attempt.spool).parents[1])
    point_to(job, latest_checkpoint(job))
    return [(step_of(path), str(path), checkpoint_hash(path)) for path in whole_checkpoints(job)]


def read_checkpoints(lines: Iterable[str]) -> list[CheckpointSaved]:
    """The checkpoints that the nodes have, oldest first. Raises RunError where they did not answer."""
    for line in lines:
        if line.startswith(_ANSWER):
            items = sorted({tuple(item) for item in json.loads(line.removeprefix(_ANSWER))})
            return [CheckpointSaved(step, path, sha256) for step, path, sha256 in items]
    raise RunError("the nodes do not report what they have")


START_CHECKED = ("python", "-m", "rlf.apps.openrlhf.cluster", "start")


def start_checked(command: Sequence[str]) -> None:
    """Runs in the job folder. Raises RlfError with what is wrong on which node."""
    accepted = openrlhf_settings(plan_from_json(Path("plan.json").read_text()).spec).accept_versions
    if complaints := list(_find_complaints(accepted)):
        raise RlfError(f"the nodes cannot run the job: {'; '.join(complaints)}.")
    os.execvp(command[0], [*command])


def _find_complaints(accepted: Mapping[Package, str]) -> Iterator[str]:
    """Of the nodes with GPUs; of all where none has one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init()
    nodes: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
    task = ray.remote(look_here)
    for node in [node for node in nodes if node.get("Resources", {}).get("GPU")] or nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        found = ray.get(task.options(num_cpus=0, scheduling_strategy=there).remote())
        complaints = find_version_complaints(found, accepted) if found.startswith("{") else [found]
        yield from (f"{node.get('NodeManagerAddress', 'a node')}: {words}" for words in complaints)
    ray.shutdown()


def look_here() -> str:
    """What this node has, as `LOOK` prints it; or the last line of the error."""
    done = run_to_end([sys.executable, "-c", LOOK, *PINS], 600)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect_nodes()
    else:
        start_checked(sys.argv[2:])
