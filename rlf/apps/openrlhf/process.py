"""One supervised process of a job, Ray on this machine, and what both take of it."""

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
from rlf.processes.gpu import GpuWatch
from rlf.processes.supervise import descendants

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
) -> AsyncIterator[tuple[str, int]]:
    """Ray on this machine alone, on the loopback interface, with a place of its own for what it writes.

    Gives its address, and the process that all of it descends from.

    Args:
        folder: the working folder of everything that runs on it.

    Raises:
        RunError: it does not come up.
    """
    remove_leftovers()
    temporary = Path(tempfile.mkdtemp(prefix=_PREFIX))  # short: sockets below it have paths of at most 107 bytes
    port = free_port()
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
                yield f"{_LOOPBACK}:{port}", process.pid
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


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


_LOOK_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class JobWatch:
    """What processes of this machine take with all that they started: processor, memory, and the GPUs of a job."""

    def __init__(self, roots: Sequence[int], gpus: str) -> None:
        """Reads GPUs with these numbers or UUIDs, separated by commas; none for an empty text."""
        self._roots = set(roots)
        self._gpus = GpuWatch(gpus) if gpus else None
        self._seen: list[tuple[float, float]] = []
        """When it was looked, and the seconds of processor until then; from the look before the last step."""
        self._peak_bytes = self._resident_bytes = 0.0

    def look(self) -> None:
        """Reads the processes, once a second at most."""
        if not self._seen or time.monotonic() - self._seen[-1][0] >= _LOOK_S:
            self._read()

    def _read(self) -> None:
        now, used_s, size = time.monotonic(), 0.0, 0.0
        for pid in self._roots.union(*map(descendants, self._roots)):
            with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
                # With the time of its ended children, which is lost otherwise; without memory that several count.
                used_s += sum(map(int, fields[11:15])) / _TICKS
                size += (resident - shared) * _PAGE_BYTES
        self._seen.append((now, max([used_s, *(seen for _, seen in self._seen[-1:])])))  # who ended took its time along
        self._resident_bytes, self._peak_bytes = size, max(self._peak_bytes, size)

    def take(self, step_s: float) -> dict[str, float]:
        """Metrics of a step that took so long and ends now; the GPUs' are of the time since they were last taken."""
        self._read()
        gpus = {} if self._gpus is None else self._gpus.take()
        if not self._resident_bytes:
            return gpus
        end, used_s = self._seen[-1]
        since, used_before_s = next((each for each in reversed(self._seen) if each[0] <= end - step_s), self._seen[0])
        share = min(1.0, step_s / (end - since)) if end > since else 0.0
        self._seen = self._seen[-1:]
        return gpus | {
            "time/processor_s": (used_s - used_before_s) * share,
            "memory/peak_bytes": self._peak_bytes,
            "memory/resident_bytes": self._resident_bytes,
        }

    def close(self) -> None:
        """Ends what reads the GPUs."""
        if self._gpus is not None:
            self._gpus.close()
