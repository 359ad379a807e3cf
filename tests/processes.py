"""Calls and commands of rlf in processes of their own that need not import torch first: each is forked from a server
that has imported it. Starts from nothing are tested where the start is the point.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, get_context, spawn
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Self

from .warm import COMMON, warm_python


@cache
def _context() -> ForkServerContext:
    """Of a server that is forked from what is warm, and calls none of it: it stays one thread, which can be forked."""
    context = get_context("forkserver")
    python = spawn.get_executable()
    context.set_executable(warm_python(*COMMON))
    forkserver.ensure_running()
    context.set_executable(python)
    return context


class Process:
    """A call in another process, with the part of `subprocess.Popen` that tests use; a `with` kills it at its end."""

    def __init__(
        self,
        call: Callable[..., object],
        *values: Any,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        pipes = [os.pipe(), os.pipe()]
        place = (folder or Path.cwd(), dict(os.environ if env is None else env))
        ends = [DupFd(end) for _, end in pipes]
        self._process = _context().Process(target=_call, args=(place, ends, call, values))
        self._process.start()
        for _, end in pipes:
            os.close(end)
        self.stdout, self.stderr = (os.fdopen(start, encoding="utf-8") for start, _ in pipes)
        self.pid: int = self._process.pid or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    @property
    def returncode(self) -> int | None:
        """None while it runs; the negative number of the signal that ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its return code, once it has one. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a call", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still writes to both streams until its end."""
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
        reader.start()
        out = self.stdout.read()
        reader.join(timeout)
        self.wait(timeout)
        return out, errors[0]


def call_rlf(*arguments: str) -> None:
    """A command of rlf in this process, which ends with it."""
    from rlf.cli.main import main

    sys.argv = ["rlf", *arguments]
    main()


def _call(
    place: tuple[Path, dict[str, str]], ends: Sequence[Any], call: Callable[..., object], values: Sequence[Any]
) -> None:
    for number, end in enumerate(ends, start=1):
        taken = end.detach()
        os.dup2(taken, number)
        os.close(taken)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
    folder, variables = place
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    call(*values)
