"""A disk that fills up: a real one, an 8 MB tmpfs in a mount namespace of the test's own."""

import shutil
import subprocess
import sys

import pytest

from tests.api.conftest import ROOT, SMALL

_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def _can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_mount(), reason="this machine lets nobody mount a tmpfs")
def test_a_full_disk_is_named_keeps_the_database_whole_and_a_resume_goes_on_when_there_is_room(tmp_path):
    rlf = f"{sys.executable} -m rlf"
    script = f"""
        set -u
        mount -t tmpfs -o size=8m tmpfs {tmp_path}
        {rlf} run {ROOT}/specs/search.yaml {" ".join(SMALL)} --runs {tmp_path} >/dev/null
        echo "run ended with $?"
        {sys.executable} -c "import sqlite3; \\
            print(sqlite3.connect('{tmp_path}/rlf.db').execute('pragma integrity_check').fetchone()[0])"
        ls {tmp_path}/*/checkpoints -A | sed 's/^/left: /'
        mount -o remount,size=200m {tmp_path}
        {rlf} resume latest --runs {tmp_path} | grep -o 'finished at step 6'
        echo "resume ended with $?"
    """
    done = subprocess.run([*_NAMESPACE, "bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert "run ended with 1\nok\n" in done.stdout, done
    assert "no space left on the disk" in done.stderr or "disk is full" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert ".tmp" not in done.stdout, "a half-written checkpoint was left behind"
    assert "finished at step 6" in done.stdout
