"""Before a server is used, one of its processes tries, harmlessly, what its level says it cannot do.

A kernel that ignores a limit, a container that shares what it should not: better seen here than by hostile code.
"""

from __future__ import annotations

from rlf.sandbox.execution import Outcome, Request
from rlf.sandbox.fork_server import ForkServer, ServerGone
from rlf.sandbox.frames import python_question
from rlf.sandbox.launch import LevelUnavailable
from rlf.sandbox.spec import Level, SandboxLimits
from rlf.sandbox.verdict import judge

# Low, so that the probe of the process limit needs few forks.
_PROCESSES = 4
_LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_mb=64, processes=_PROCESSES, disk_mb=1)

_CONTAINED = """
import os, socket

def refused(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return True
    return False

faults = []
if not refused(socket.socket):
    faults.append("sockets can be made")
if not refused(open, "/etc/hostname") or not refused(os.listdir, os.path.expanduser("~root")):
    faults.append("the host's files can be read")
if hasattr(os, "unshare") and not refused(os.unshare, os.CLONE_NEWUSER):  # Python has it from 3.12 on
    faults.append("namespaces can be made")
open("own", "w").close()
"""
_NAMESPACES = """
import time

if os.getpid() != 1:
    faults.append("there is no pid namespace")
if os.listdir("/proc"):
    faults.append("/proc can be read")
if not refused(open, "/usr/.rlf", "w"):
    faults.append("the file system can be written to")
started = 0
try:
    while started <= limit:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        started += 1
except OSError:
    pass
if started >= limit:
    faults.append("the number of processes is not limited (needs Linux 5.14)")
"""
_LANDLOCK = """
if not refused(os.fork):
    faults.append("processes can be made")
if not refused(os.kill, os.getppid(), 0):
    faults.append("other processes can be signalled")
if not refused(os.listdir, "/proc"):
    faults.append("/proc can be read")
"""
_SOURCE = {
    Level.NAMESPACES: _CONTAINED + f"limit = {_PROCESSES}\n" + _NAMESPACES + "'; '.join(faults)",
    Level.LANDLOCK: _CONTAINED + _LANDLOCK + "'; '.join(faults)",
    Level.PROCESS: "''",
}


async def prove(server: ForkServer) -> None:
    """Raises LevelUnavailable when a process of the server can do what its level denies."""
    level = server.launch.level
    try:
        process = server.begin(_LIMITS, once=True)
    except ServerGone as fault:
        raise LevelUnavailable(level, str(fault)) from fault
    try:
        answer = await process.ask(python_question(Request(_SOURCE[level]), _LIMITS), _LIMITS, once=True)
    finally:
        process.close()
    execution = judge(answer, _LIMITS, level)
    if execution.outcome is not Outcome.OK:
        raise LevelUnavailable(level, f"its first process failed: {execution.error or execution.stderr}")
    if execution.value != "''":
        raise LevelUnavailable(level, f"it does not hold here: {execution.value}")
