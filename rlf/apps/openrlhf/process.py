"""One supervised process of a job, and Ray on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rlf.apps.openrlhf import ray_script
from rlf.apps.openrlhf.job import MachinePlace
from rlf.core.errors import RunError
from rlf.processes.child import supervised

logger = logging.getLogger(__name__)

_RAY_START_S = 300.0
"""Time that Ray's own processes may take to come up."""
_RAY_LATE_S = 60.0
"""Time beyond it, in which Ray ends by itself and says why."""
_PREFIX, _LOCK = "rlf-ray-", "owner.lock"
_MAKING_S = 600.0
"""Age from which a folder without a lock is no longer one that is being made."""
_POLL_S = 0.1
_LOOPBACK = "127.0.0.1"
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The one way to make Ray take 127.0.0.1 for this machine's address: else it listens on all interfaces."""


@asynccontextmanager
async def logged(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A supervised process whose output and errors are appended to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        async with supervised(command, stdout=output, stderr=output, env=environment, cwd=folder) as process:
            yield process


@asynccontextmanager
async def local_ray(
    place: MachinePlace, *, log: Path, environment: Mapping[str, str], folder: Path
) -> AsyncIterator[str]:
    """Ray on this machine alone, on the loopback interface, with a place of its own for what it writes; its address.

    Args:
        folder: the working folder of everything that runs on it.

    Raises:
        RunError: it does not come up.
    """
    remove_leftovers()
    temporary = Path(tempfile.mkdtemp(prefix=_PREFIX))  # short: sockets below it have paths of at most 107 bytes
    port = _free_port()
    options = {"num-gpus": place.num_gpus, "num-cpus": place.num_cpus, "object-store-memory": place.object_store_bytes}
    command = [
        *(
            place.python,
            "-P",
            ray_script.__file__,
            "start",
            str(_RAY_START_S),
            "--head",
            "--block",
            "--disable-usage-stats",
        ),
        *(f"--node-ip-address={_LOOPBACK}", f"--port={port}", f"--temp-dir={temporary}", "--include-dashboard=false"),
        *(f"--{name}={value}" for name, value in options.items() if value is not None),
    ]
    try:
        with _owned(temporary):
            async with logged(command, log=log, environment=environment, folder=folder) as process:
                await _started(process, log)
                yield f"{_LOOPBACK}:{port}"
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder for as long as this process lives, whatever ends it."""
    with (folder / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_leftovers() -> None:
    """Removes this user's folders of Ray whose owners died before they could: those whose locks are free.

    One without a lock, which is made right after it, was left half-removed.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.getuid():  # another user's may lead to any file
                continue
            if (folder / _LOCK).exists():
                lock = folder / _LOCK
                with lock.open("w") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    logger.info("%s: left by a job that was killed; it is removed", lock.parent)
                    shutil.rmtree(lock.parent, ignore_errors=True)
            elif time.time() - found.st_mtime > _MAKING_S:
                shutil.rmtree(folder, ignore_errors=True)


async def _started(process: asyncio.subprocess.Process, log: Path) -> None:
    """Returns when Ray's log says that it runs."""
    deadline = asyncio.get_running_loop().time() + _RAY_START_S + _RAY_LATE_S
    while b"Ray runtime started" not in (text := log.read_bytes()):  # noqa: ASYNC240 - a few kilobytes of a local file
        if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
            raise RunError(
                f"Ray did not start on this machine; its last line: {lines[-1].strip() if lines else 'none'}\n"
                f"Its whole output: {log}"
            )
        await asyncio.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
