"""Commands as child processes: started, run to their end, and watched by a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO


def describe_exit(code: int | None) -> str:
    """How a process ended, in words."""
    return "no exit code" if code is None else f"exit code {code}" if code >= 0 else describe_signal(-code)


def describe_signal(number: int) -> str:
    """The name of a signal. Those of real time between the first and the last have none, and code may end by one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def start_apart(
    command: Sequence[str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own, so that Ctrl-C is the caller's to pass on. Raises OSError."""
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, pass_fds=pass_fds, start_new_session=True
    )


def run_to_end(
    command: Sequence[str],
    limit_s: float,
    *,
    says: str = "",
    env: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command that only has to print something, and ends it with what it started.

    `subprocess.run` would end the command alone: servers and runtimes that code of others starts live on after it.

    Args:
        says: what it reads on stdin.
        env: its environment; None: this process's.
        log: where it prints, in place of the result.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it has not ended in time.
    """
    pipe = subprocess.PIPE
    out: IO[bytes] | int = pipe if log is None else log
    with subprocess.Popen(
        command, stdin=pipe, stdout=out, stderr=out, text=True, errors="replace", env=env, start_new_session=True
    ) as process:
        try:
            printed = process.communicate(says, timeout=limit_s)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, *printed)


SUPERVISED_END_S = 30.0
"""Time in which a supervisor has ended all that it runs: after 5 s it kills, and waits for nothing but the kernel."""


@asynccontextmanager
async def supervised(
    command: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes] | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that ends, with all that it started, at the end of the block, and when this process dies.

    For what starts daemons and sessions of its own, which no signal to a group reaches (`rlf.processes.supervise`).
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("supervise.py")),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,  # Ctrl-C is for the parent alone, which ends this one in order
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await asyncio.shield(_wait_or_kill(process))  # a second cancellation must not leave it behind


async def _wait_or_kill(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), SUPERVISED_END_S)
    except TimeoutError:  # something hangs in the kernel, where no signal arrives: nobody can end that
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode == -signal.SIGKILL:  # it ended nothing then; its group is its own, and outlives it
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
