"""Members of a sweep side by side, each in a process: `python -m rlf.apps.sweep.sweep RUNS SWEEP NUMBER PARENT`.

Each has cores, and where there are GPUs a GPU, of its own. Its numbers are those of a sweep that runs one after the
other: it reads its plan from the lineage, as a sweep that is resumed does.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlf.core import process as stops
from rlf.core.errors import RlfError
from rlf.engines.engine import Engine
from rlf.plan import Plan
from rlf.processes.child import start_apart

INTERRUPTED = 130
"""Exit code of a member that was stopped."""
_LOOK_S = 0.1

logger = logging.getLogger(__name__)


def find_gpus(plans: Sequence[Plan]) -> list[str]:
    """Names of the GPUs that this process may use, for CUDA_VISIBLE_DEVICES; none where no plan takes one."""
    if all(getattr(plan.spec.engine, "device", "auto") == "cpu" for plan in plans):
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    import torch

    return list(map(str, range(torch.cuda.device_count())))


def refuse_too_many(at_once: int, plans: Sequence[Plan]) -> None:
    """Raises RlfError for more members at once than this machine has places for."""
    if at_once > 1 and not all(isinstance(plan.spec.engine, Engine) and plan.spec.engine.SERVES for plan in plans):
        raise RlfError("--at-once: this engine starts processes of its own on every GPU. Leave the option out.")
    gpus, cores = find_gpus(plans), stops.usable_cores()
    most, of = (len(gpus), "GPU") if gpus else (cores, "core")
    if at_once > most:
        each = "each run takes one" if gpus else "each run takes one or more"
        raise RlfError(f"--at-once: got {at_once}; expected at most {most}: {most} {of}s are here, and {each}.")


def run_members(
    sweep_id: str, numbers: Sequence[int], at_once: int, gpus: Sequence[str], runs_folder: Path
) -> Iterator[tuple[int, int | None]]:
    """Runs members side by side: the number of each with None as it starts, and with its exit code as it ends.

    Those that run when the caller leaves are interrupted as by Ctrl-C, and waited for.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    waiting, free = list(reversed(numbers)), list(reversed(range(at_once)))
    running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or running:
            while waiting and free:
                number, place = waiting.pop(), free.pop()
                shown = {"CUDA_VISIBLE_DEVICES": gpus[place]} if gpus else {}
                words = (str(runs_folder), sweep_id, str(number), str(os.getpid()), *map(str, cores[place::at_once]))
                command = [sys.executable, "-m", "rlf.apps.sweep.sweep", *words]
                child = start_apart(command, stdout=subprocess.DEVNULL, env=os.environ | shown)
                running[number] = (place, child)
                yield number, None
            for number, (place, child) in list(running.items()):
                if (code := child.poll()) is not None:
                    del running[number]
                    free.append(place)
                    yield number, code
            time.sleep(_LOOK_S)
    finally:
        for _, child in running.values():
            child.send_signal(signal.SIGINT)
        for _, child in running.values():
            child.wait()
