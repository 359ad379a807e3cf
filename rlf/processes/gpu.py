"""How busy GPUs are, and what all programs hold of their memory: what `nvidia-smi` prints, once a second."""

from __future__ import annotations

import atexit
import subprocess
import threading
from contextlib import suppress
from functools import cache
from statistics import fmean

from rlf.processes.child import start_apart

_QUERY = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--loop=1"]
_MIB = 2**20


class GpuWatch:
    """Reads GPUs in a thread, until it is closed; nothing where there is no `nvidia-smi`."""

    def __init__(self, names: str) -> None:
        """Begins to read those with these numbers or UUIDs, separated by commas."""
        self._seen: list[tuple[float, float]] = []
        self._child: subprocess.Popen[bytes] | None = None
        command = ["nvidia-smi", f"--id={names}", *_QUERY]
        with suppress(OSError):  # this process may end without closing it: its next line then ends it by SIGPIPE
            self._child = start_apart(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()

    def _read(self) -> None:
        assert self._child is not None and self._child.stdout is not None, "it was started with a pipe"
        with self._child.stdout as printed:
            for line in printed:
                with suppress(ValueError):  # `[N/A]`, where a driver does not say
                    busy, held = map(float, line.split(b","))
                    self._seen.append((busy / 100, held * _MIB))

    def take(self) -> dict[str, float]:
        """Metrics of the time since they were last taken, of all together; empty where nothing was read."""
        seen, self._seen = self._seen, []
        if not seen:
            return {}
        return {"gpu/busy": fmean(busy for busy, _ in seen), "gpu/held_bytes": max(held for _, held in seen)}

    def close(self) -> None:
        """Ends the program that is read."""
        if self._child is not None:
            self._child.terminate()
            self._child.wait()
            self._thread.join()


@cache
def watch_gpu(name: str) -> GpuWatch:
    """The watch of a GPU, begun by the first call and kept until the process ends."""
    watch = GpuWatch(name)
    atexit.register(watch.close)
    return watch
