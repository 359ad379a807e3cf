"""A disk that fills up, a real one: an 8 MB tmpfs in a mount namespace of the test's own; and a limit of file sizes."""

import ctypes
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from rlf.cli.main import main
from rlf.runs import opening
from tests.runs.conftest import ROOT, SMALL

from ..processes import Process

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def _can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


def run_in_a_small_disk(folder):
    _own_mounts()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    print("planned run ended with", exit_code_of(*run_in(folder)), "and left", *Path(folder).glob("*/*"))
    opening.find_free_bytes = lambda _: 10**9  # others fill the disk once the run has looked at it
    run_and_resume(folder, lambda: subprocess.run(["mount", "-o", "remount,size=200m", folder], check=True))


_NEWUSER, _NEWNS = 0x10000000, 0x00020000
"""Of `unshare(2)`."""


def _own_mounts():
    """This process, which has one thread, is root in a namespace of its own, as `unshare --map-root-user` has it."""
    ids = {"uid_map": f"0 {os.geteuid()} 1", "gid_map": f"0 {os.getegid()} 1"}
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(_NEWUSER | _NEWNS) == 0, os.strerror(ctypes.get_errno())
    for name, text in {"setgroups": "deny", **ids}.items():
        Path("/proc/self", name).write_text(text)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def run_with_small_files(folder):
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, most))
    run_and_resume(folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))


def run_in(folder):
    return ["run", str(ROOT / "specs" / "search.yaml"), *SMALL, "--runs", folder]


def run_and_resume(folder, make_room):
    """Both commands in one process."""
    with Path(folder, "..", "run.log").open("w") as log, redirect_stdout(log):
        code = exit_code_of(*run_in(folder))
    print("run ended with", code)
    print(sqlite3.connect(f"{folder}/rlf.db").execute("pragma integrity_check").fetchone()[0])
    print("left:", *(path.name for path in Path(folder).glob("*/checkpoints/*")))
    make_room()
    print("resume ended with", exit_code_of("resume", "latest", "--runs", folder))


def exit_code_of(*arguments):
    sys.argv = ["rlf", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def check_refused_and_resumed(done, *words):
    assert "run ended with 1\nok\n" in done.stdout, done.stderr
    assert any(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    (left,) = [line for line in done.stdout.splitlines() if line.startswith("left:")]
    assert ".tmp" not in left, "a half-written checkpoint was left behind"
    assert "finished at step 6" in done.stdout and "resume ended with 0" in done.stdout


@pytest.mark.skipif(not _can_mount(), reason="this machine lets nobody mount a tmpfs")
def test_a_full_disk_is_named_keeps_the_database_whole_and_a_resume_goes_on_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    with Process(run_in_a_small_disk, str(disk), folder=ROOT) as process:
        done = subprocess.CompletedProcess("rlf", 0, *process.communicate(timeout=300))
    assert "planned run ended with 2 and left\n" in done.stdout, done.stdout
    assert "GB are free, and the run still writes up to 0.0224 GB (checkpoints 0.0202 GB" in done.stderr
    check_refused_and_resumed(done, "the disk is full")


def test_a_limit_of_file_sizes_is_named_loses_nothing_and_a_resume_goes_on_when_it_is_raised(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    with Process(run_with_small_files, str(runs), folder=ROOT) as process:
        done = subprocess.CompletedProcess("rlf", 0, *process.communicate(timeout=300))
    check_refused_and_resumed(done, "ulimit -f")
