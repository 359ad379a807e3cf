"""A process is called gone only when it surely is."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rlf.lineage import process
from rlf.lineage.process import current_process, is_gone


@pytest.fixture
def ended():
    """The pid of a process that ended and was collected."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    return child.pid


def test_this_process_is_not_gone():
    assert not is_gone(current_process())


def test_a_pid_that_another_process_got_is_gone():
    assert is_gone(replace(current_process(), pid_ticks=1))


def test_a_process_before_the_last_boot_is_gone():
    assert is_gone(replace(current_process(), boot="an earlier one"))


def test_a_process_of_another_machine_is_left_alone(ended):
    assert not is_gone(replace(current_process(), node="elsewhere", pid=ended))


def test_an_ended_process_is_gone(ended):
    assert is_gone(replace(current_process(), pid=ended))


def test_a_zombie_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert is_gone(replace(current_process(), pid=child.pid))
    finally:
        child.wait()


def test_without_proc_the_pid_decides(monkeypatch, tmp_path, ended):
    monkeypatch.setattr(process, "_PROC", tmp_path)
    here = current_process()
    assert (here.boot, here.pid_ticks) == ("", 0)
    assert not is_gone(here)
    assert is_gone(replace(here, pid=ended))
    assert not is_gone(replace(here, pid=1))  # Not ours to signal, yet there.
