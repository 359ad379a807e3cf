"""What a pid can say of a process, where pids mean the same thing."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rlf.lineage import process
from rlf.lineage.process import current_process, is_gone, is_visible


@pytest.fixture
def ended():
    """The pid of a process that ended and was collected."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    return child.pid


def test_this_process_is_visible_and_not_gone():
    assert is_visible(current_process())
    assert not is_gone(current_process())


def test_a_pid_that_another_process_got_is_gone():
    assert is_gone(replace(current_process(), pid_ticks=1))


def test_a_process_of_another_pid_namespace_or_boot_is_not_visible_and_one_of_another_host_name_is():
    here = current_process()
    assert not is_visible(replace(here, boot="an earlier one"))
    assert not is_visible(replace(here, boot=f"{here.kernel} pid:[1]"))
    assert is_visible(replace(here, node="elsewhere"))


def test_an_ended_process_is_gone(ended):
    assert is_gone(replace(current_process(), pid=ended))


def test_a_zombie_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert is_gone(replace(current_process(), pid=child.pid))
    finally:
        child.wait()


def test_without_proc_the_pid_decides_on_the_same_machine(monkeypatch, tmp_path, ended):
    monkeypatch.setattr(process, "_PROC", tmp_path)
    here = current_process()
    assert (here.boot, here.pid_ticks) == ("", 0)
    assert is_visible(here)
    assert not is_visible(replace(here, node="elsewhere"))
    assert not is_gone(here)
    assert is_gone(replace(here, pid=ended))
    assert not is_gone(replace(here, pid=1))  # Not ours to signal, yet there.
