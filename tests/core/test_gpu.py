"""What `nvidia-smi` prints becomes a step's metrics; a program of that name stands in for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlf.processes.gpu import GpuWatch


@pytest.fixture
def prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a `nvidia-smi` on the path that prints lines and stays."""

    def put(lines: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\nprintf "{lines}"\nexec sleep 600\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


def taken(watch: GpuWatch) -> dict[str, float]:
    until = time.monotonic() + 60
    while len(watch._seen) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    return watch.take()


def test_a_step_has_the_mean_load_and_the_most_memory_since_the_last_one(prints, tmp_path: Path) -> None:
    prints("50, 1024\\n100, 2048\\n")
    watch = GpuWatch("GPU-1")
    assert taken(watch) == {"gpu/busy": 0.75, "gpu/held_bytes": 2048.0 * 2**20}
    assert watch.take() == {}
    assert (tmp_path / "asked").read_text().startswith("--id=GPU-1 --query-gpu=utilization.gpu,memory.used ")
    watch.close()
    assert watch._child is not None and watch._child.returncode is not None


def test_what_a_driver_does_not_say_is_left_out(prints) -> None:
    prints("[N/A], 1024\\nNo devices were found\\n30, 1\\n20, 1\\n")
    watch = GpuWatch("0")
    assert taken(watch)["gpu/busy"] == 0.25
    watch.close()


def test_without_the_program_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = GpuWatch("0")
    assert watch.take() == {}
    watch.close()
