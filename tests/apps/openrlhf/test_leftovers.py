"""What a job that was killed leaves in the folder for temporary files is removed by the next one."""

import os
import subprocess
import sys
import tempfile

from rlf.apps.openrlhf.process import _owned, remove_leftovers

KILLED = """
import os, pathlib, signal, sys
from rlf.apps.openrlhf.process import _owned
with _owned(pathlib.Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folders_of_killed_jobs_go_and_those_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive, strange, starting = (tmp_path / name for name in ("rlf-ray-1", "rlf-ray-2", "ray", "rlf-ray-3"))
    for folder in (dead, alive, strange, starting):
        (folder / "session").mkdir(parents=True)
    half_removed = tmp_path / "rlf-ray-4"
    half_removed.mkdir()
    os.utime(half_removed, (0, 0))
    subprocess.run([sys.executable, "-c", KILLED, str(dead)], check=False)
    assert dead.exists()
    with _owned(alive):
        remove_leftovers()
        assert not dead.exists() and not half_removed.exists()
        assert alive.exists() and strange.exists() and starting.exists()


def test_a_folder_of_another_user_is_left_alone_wherever_its_lock_leads(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "rlf-ray-1").mkdir()
    (tmp_path / "rlf-ray-1" / "owner.lock").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(os, "getuid", lambda: -1)
    remove_leftovers()
    assert (tmp_path / "mine").read_text() == "kept"
