"""Writes that a kill or a disk cuts off leave the target as it was, and nothing beside it for long."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from safetensors import SafetensorError

from rlf.core.errors import RunError
from rlf.core.files import clear_unfinished, published, refusal, scratch, write_whole

KILLED = """
import os, signal, sys
from pathlib import Path
from rlf.core.files import published
with published(Path(sys.argv[1])) as temporary:
    temporary.mkdir()
    (temporary / "part").write_text("half")
    temporary.with_name(temporary.name + "-wal").touch()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache folder of a user of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rlf" / "unfinished"


def start_write(target, how):
    command = [sys.executable, "-c", KILLED, str(target), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "cache")


@pytest.mark.parametrize("clear", [clear_unfinished, lambda: None], ids=["by any command", "by the next write"])
def test_what_a_killed_write_left_is_cleared(tmp_path, cache, clear):
    (tmp_path / ".out.tmp").touch()
    (tmp_path / f".out.{'ab' * 6}.tmp").touch()  # in our form, and not marked
    with start_write(tmp_path / "out", "killed") as writer:
        assert writer.wait() == -signal.SIGKILL
    assert len(names_in(tmp_path)) == 4
    clear()
    with published(tmp_path / "out") as temporary:
        temporary.touch()
    assert names_in(tmp_path) == [f".out.{'ab' * 6}.tmp", ".out.tmp", "out"]
    assert list(cache.iterdir()) == []


def test_a_folder_for_a_while_is_removed_in_the_end_and_of_a_killed_process_by_the_next_command(tmp_path, cache):
    code = "import os, sys; from rlf.core.files import scratch\nwith scratch('a') as folder: (folder / 'x').touch(); "
    for end, left in (("pass", 0), ("os._exit(1)", 1)):
        subprocess.run([sys.executable, "-c", code + end], env={**os.environ, "TMPDIR": str(tmp_path)}, check=not left)
        assert len(names_in(tmp_path)) == left
    clear_unfinished()
    assert names_in(tmp_path) == [] and list(cache.iterdir()) == []


def test_a_folder_for_a_while_stays_after_an_error_that_names_what_is_in_it(tmp_path, cache):
    for error, left in ((ValueError, 0), (RunError, 1)):
        with pytest.raises(error), scratch("a", parent=tmp_path, keeps=(RunError,)) as folder:
            raise error("its log is in it")
        assert folder.is_dir() is bool(left)
    clear_unfinished()
    assert folder.is_dir() and list(cache.iterdir()) == []


def test_a_write_that_another_process_is_at_is_left_alone(tmp_path, cache):
    with start_write(tmp_path / "out", "living") as writer:
        assert writer.stdout.readline() == "writing\n"
        clear_unfinished()
        assert len(names_in(tmp_path)) == 2
        writer.communicate()
    assert writer.returncode == 0 and names_in(tmp_path / "out") == ["part"]


def test_a_mark_deletes_nothing_but_what_has_the_form_of_our_names(tmp_path, cache):
    cache.mkdir(parents=True)
    (tmp_path / "precious").touch()
    for number, path in enumerate([tmp_path / "precious", tmp_path, "", "/", f".x.{'ab' * 6}.tmp"]):
        (cache / str(number)).write_text(str(path))
    clear_unfinished()
    assert names_in(tmp_path) == ["precious"] and list(cache.iterdir()) == []


def test_a_write_works_where_no_mark_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    clear_unfinished()
    write_whole(tmp_path / "out", "text")
    assert (tmp_path / "out").read_text() == "text" and names_in(tmp_path) == ["file", "out"]


def test_a_file_is_replaced_whole_with_its_rights_and_through_a_link(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    write_whole(file, "a")
    file.chmod(0o600)
    link.symlink_to(file)
    write_whole(link, b"b")
    assert file.read_text() == "b" and link.is_symlink() and file.stat().st_mode & 0o777 == 0o600


REFUSALS = [
    (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota"),
    (OSError(errno.EFBIG, "File too large"), "ulimit -f"),
    (OSError(errno.EIO, "Input/output error"), "the disk fails"),
    (OSError(errno.EROFS, "Read-only file system"), "can only be read"),
    (PermissionError(errno.EACCES, "Permission denied"), "cannot be written"),
    (SafetensorError("Error while serializing: I/O error: File too large (os error 27)"), "ulimit -f"),
    (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), "is full"),
    (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"), "the disk is full"),
    (OSError([("a", "b", "[Errno 27] File too large: 'a' -> 'b'")]), "ulimit -f"),  # of shutil.copytree
    (sqlite3.OperationalError("database or disk is full"), "the disk is full"),
    (ExceptionGroup("tasks", [ValueError("x"), OSError(errno.ENOSPC, "No space left on device")]), "is full"),
]


@pytest.mark.parametrize(("error", "words"), REFUSALS)
@pytest.mark.parametrize("write", [published, write_whole])
def test_what_a_disk_refuses_is_one_error_and_leaves_what_was_there(tmp_path, monkeypatch, write, error, words):
    def refuse(*_):
        raise error

    if write is write_whole:
        (tmp_path / "out").write_text("old")
        monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(RunError, match=f"out: .*{words}"):
        if write is write_whole:
            write_whole(tmp_path / "out", "new")
        else:
            with published(tmp_path / "out") as temporary:
                temporary.mkdir()
                refuse()
    assert names_in(tmp_path) == (["out"] if write is write_whole else [])
    assert write is published or (tmp_path / "out").read_text() == "old"


@pytest.mark.parametrize(
    "error", [OSError("no number"), ConnectionResetError(104, "reset"), ValueError("x (os error 2)"), KeyError("a")]
)
def test_another_error_is_no_refusal_of_a_disk(error):
    assert refusal(error) is None


def test_the_words_of_a_refusal_come_from_a_limit_of_the_system(tmp_path):
    code = "import resource, sys; from pathlib import Path; from rlf.core.files import write_whole\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); write_whole(Path(sys.argv[1]), 'x' * 9999)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True)
    assert "RunError" in done.stderr and "ulimit -f" in done.stderr and names_in(tmp_path) == []
