"""What this machine offers the tests: levels, and a way to become an ordinary user."""

import asyncio
import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.sandbox import Level
from rlf.sandbox.fork_servers import probe

NOBODY = "65534"
ROOT = Path(__file__).parents[2]
_BECOME = 'exec setpriv --reuid=$NOBODY --regid=$NOBODY --clear-groups env HOME=/tmp TMPDIR=/tmp "$@"'


@functools.cache
def reports():
    """By level."""
    return {report.level: report for report in asyncio.run(probe())}


def need(level: Level) -> Level:
    """The level; skips, and says what is not tested, where the machine lacks it."""
    report = reports()[level]
    if not report.available:
        pytest.skip(f"sandbox level {level} is NOT tested here: {report.why} {report.fix}")
    return level


def as_ordinary_user(*command: str) -> list[str]:
    """The command, run by a user without rights; skips where that cannot be had."""
    if os.geteuid() != 0:
        return list(command)
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        pytest.skip("the ordinary user is NOT tested: util-linux's unshare and setpriv are missing")
    script = "\n".join(["set -e", *_opened(), _BECOME])
    return ["unshare", "--mount", "env", f"NOBODY={NOBODY}", "sh", "-c", script, "sh", *command]


def _opened():
    """Shell lines that show an ordinary user as much of closed folders as the tests need, in a view of its own."""
    needed = {Path(os.path.realpath(sys.base_prefix)), Path(os.path.realpath(sys.prefix)), ROOT}
    needed = {path for path in needed if not any(other in path.parents for other in needed)}
    by_closed = {}
    for path in sorted(needed):
        closed = next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 1), None)
        if closed is not None:
            by_closed.setdefault(closed, []).append(path)
    for closed, paths in by_closed.items():
        places = [(shlex.quote(str(path)), f"$place{number}") for number, path in enumerate(paths)]
        for path, place in places:
            yield f"{place[1:]}=$(mktemp -d); mount --bind {path} {place}"
        yield f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(closed))}"
        for path, place in places:
            yield f"mkdir -p {path}; mount --bind {place} {path}; umount {place}; rmdir {place}"


def run_as(user: str, script: str, *arguments: str, timeout_s: float = 120) -> str:
    """stdout of a Python script, run by `root` or by an `ordinary` user."""
    if user == "root" and os.geteuid() != 0:
        pytest.skip("root is NOT tested: the tests are run by an ordinary user")
    command = [sys.executable, "-c", script, *arguments]
    command = command if user == "root" else as_ordinary_user(*command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
