"""The fork server: started once, imports what calls will need, then forks one confined process for each call.

It runs nothing foreign itself. It answers to rlf over one socket of packets: `start` (with the process's descriptors:
channel, stdout, stderr), `kill`, `pause`, `resume`; and reports each process that has ended. When rlf is gone, so
that the socket ends, it kills what runs and leaves.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import shutil
import signal
import site
import socket
import sys
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import job
from .confine import WORK, Confinement, confine, confine_server, die_with_parent, fork_into_namespaces
from .program import DESCRIPTOR

_MAX_ENTRIES = 2_000


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    children = defaultdict(list)
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            children[_parent_pid(place)].append(int(place.name))
    found = [root]
    for pid in found:
        found.extend(children[pid])
    return found


def _parent_pid(place: Path) -> int:
    try:
        return int((place / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0  # it has just ended


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file backs, shared memory included; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))


def folder_exceeds(folder: str, max_bytes: int) -> bool:
    """Whether a folder holds more bytes than that, or too many entries to be removed in good time."""
    total = entries = 0
    folders = [folder]
    while folders and total <= max_bytes and entries <= _MAX_ENTRIES:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue  # removed while it was being read
    return total > max_bytes or entries > _MAX_ENTRIES


_MAX_PACKET = 1 << 16
# Memory of several processes is summed this often: the kernel limits each process only by itself.
_TICK_S = 0.05
# Foreign code yields the processor to the run that waits for it.
_NICE = 10
_COMMON = """
array ast base64 bisect collections copy csv dataclasses datetime decimal encodings.ascii encodings.latin_1 enum
fractions functools hashlib heapq io itertools json math operator pathlib random re statistics string struct
subprocess textwrap threading time typing unicodedata
""".split()  # noqa: SIM905 - a line for each would hide the code
"""Modules of the standard library that programs often need, imported once."""
_STARTED_WITH = 4
"""Descriptors that come with `start`; the last one where a program and its test are connected."""
# 0 to 2 are stdin, stdout and stderr.
_CHANNEL = 3
_MAX_DESCRIPTOR = 1 << 20


@dataclass(slots=True)
class _Call:
    id: int
    pid: int
    pidfd: int
    user: int
    work: str
    limits: dict[str, Any]
    started: float
    why: str = ""
    """Why the server ended it; empty when it did not."""


class GuestServer:
    """Serves one socket until its end. `settings` is rlf's first packet."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._level: str = settings["level"]
        self._scratch: str = settings["scratch"]
        self._readable: tuple[str, ...] = tuple(settings["readable"])
        self._users = [settings["first_user"] + n for n in range(settings["num_users"])]
        self._is_root = self._level in ("namespaces", "landlock") and os.getuid() == 0
        self._hidden = not all(_is_open_to_all(Path(path)) for path in self._readable)
        self._calls: dict[int, _Call] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._own_bytes = anonymous_bytes(os.getpid())

    def serve(self) -> None:
        """Serves until rlf closes its end."""
        watched = time.monotonic()
        while True:
            for descriptor, _ in self._poll.poll(_TICK_S * 1000 if self._calls else None):
                if descriptor != self._control.fileno():
                    self._reap_call(self._calls[descriptor])
                elif not self._obey_order():
                    return self._end_all()
            if self._calls and time.monotonic() - watched > _TICK_S:
                self._watch_limits()
                watched = time.monotonic()

    def _obey_order(self) -> bool:
        packet, descriptors, _, _ = socket.recv_fds(self._control, _MAX_PACKET, _STARTED_WITH)
        if not packet:
            return False
        order = json.loads(packet)
        if order["do"] == "start":
            self._start_call(order, descriptors)
            return True
        call = next((call for call in self._calls.values() if call.id == order["id"]), None)
        if call is not None:
            {"kill": self._kill_call, "pause": self._pause_call, "resume": self._resume_call}[order["do"]](call)
        return True

    def _start_call(self, order: dict[str, Any], descriptors: list[int]) -> None:
        own_pid, now = os.getpid(), time.monotonic()
        user = self._users.pop() if self._is_root else os.getuid()
        work = WORK
        if self._level != "namespaces":
            work = f"{self._scratch}/{order['id']}"
            Path(work).mkdir(0o700)
            if self._is_root:
                os.chown(work, user, user)
        try:
            pid = self._fork_child(user)
        except OSError as fault:
            self._send_report({"id": order["id"], "failed": str(fault)})
            self._give_back(user, work)
        else:
            if pid == 0:
                limits = order["limits"]
                confinement = Confinement(self._level, limits, work, user, self._readable, self._hidden)
                self._become_call(descriptors, confinement, order, own_pid)
            pidfd = os.pidfd_open(pid)
            self._calls[pidfd] = _Call(order["id"], pid, pidfd, user, work, order["limits"], now)
            self._poll.register(pidfd, select.POLLIN)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork_child(self, user: int) -> int:
        if self._level != "namespaces":
            return os.fork()
        if not self._is_root:
            return fork_into_namespaces()
        os.setresgid(user, user, 0)
        os.setresuid(user, user, 0)
        try:
            pid = fork_into_namespaces()
        except OSError:
            pid = -1
        if pid:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
        if pid < 0:
            raise OSError("the kernel refuses new namespaces")
        return pid

    def _become_call(
        self, descriptors: list[int], confinement: Confinement, order: dict[str, Any], parent: int
    ) -> None:
        """Turns the forked child into the call; never returns."""
        try:
            # 0 to 3 stay open: /dev/null as the server has it, stdout, stderr, the channel; and the end of a test's.
            sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in descriptors]
            targets = (_CHANNEL, 1, 2, DESCRIPTOR)[: len(sources)]
            for source, target in zip(sources, targets, strict=True):
                os.dup2(source, target)
            os.closerange(max(targets) + 1, _MAX_DESCRIPTOR)
            os.setsid()  # kill(0) reaches a process group, across namespaces
            if self._level != "namespaces":
                die_with_parent(parent)
            os.environ.update(HOME=confinement.work, TMPDIR=confinement.work)
            confine(confinement)
            job.serve(_CHANNEL, once=order["once"])
        except BaseException:  # noqa: BLE001 - nothing may return into the server's loop
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)

    def _reap_call(self, call: _Call) -> None:
        _, status, usage = os.wait4(call.pid, 0)
        if self._level == "process":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(call.pid, signal.SIGKILL)
        self._poll.unregister(call.pidfd)
        os.close(call.pidfd)
        del self._calls[call.pidfd]
        self._give_back(call.user, call.work)
        report = {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss << 10, "why": call.why}
        self._send_report({"id": call.id, "status": status, **report})

    def _give_back(self, user: int, work: str) -> None:
        if self._is_root:
            self._users.append(user)
        if work != WORK:
            shutil.rmtree(work, ignore_errors=True)

    def _send_report(self, what: dict[str, Any]) -> None:
        self._control.send(json.dumps(what).encode())

    def _watch_limits(self) -> None:
        """Kills what has more memory or disk than it may; the kernel holds each process alone to its limit."""
        grown = time.monotonic() - _TICK_S
        for call in (call for call in self._calls.values() if call.started < grown):
            limits = call.limits
            tree = self._process_tree(call)
            memory = sum(max(anonymous_bytes(pid) - self._own_bytes, 0) for pid in tree)
            if len(tree) > 1 and memory > limits["memory_mb"] << 20:
                call.why = "memory"
            elif call.work != WORK and folder_exceeds(call.work, limits["disk_mb"] << 20):
                call.why = "disk"
            if call.why:
                self._kill_call(call)

    def _process_tree(self, call: _Call) -> list[int]:
        """The processes of a call; only where they are in namespaces can there be several to look for."""
        return tree(call.pid) if self._level == "namespaces" else [call.pid]

    def _kill_call(self, call: _Call) -> None:
        """In namespaces the first process takes all others with it."""
        signal.pidfd_send_signal(call.pidfd, signal.SIGKILL)
        if self._level == "process":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(call.pid, signal.SIGKILL)

    def _pause_call(self, call: _Call) -> None:
        """Stops a session between its cells, with all that it has started."""
        stopped: set[int] = set()
        while fresh := set(self._process_tree(call)) - stopped:
            self._signal_all(fresh, signal.SIGSTOP)
            stopped |= fresh

    def _resume_call(self, call: _Call) -> None:
        self._signal_all(set(self._process_tree(call)), signal.SIGCONT)

    def _signal_all(self, pids: set[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end_all(self) -> None:
        for call in self._calls.values():
            self._kill_call(call)
        if self._level != "namespaces":
            shutil.rmtree(self._scratch, ignore_errors=True)


def _is_open_to_all(path: Path) -> bool:
    """Whether any user may read a file or folder and pass through what lies above it; true where there is none."""
    try:
        resolved = path.resolve()
        wanted = 0o5 if resolved.is_dir() else 0o4
        is_open = resolved.stat().st_mode & wanted == wanted
        return is_open and all(above.stat().st_mode & 0o1 for above in resolved.parents)
    except OSError:
        return True


def main(control_descriptor: int) -> None:
    """Reads the settings, imports, says so, and serves."""
    control = socket.socket(fileno=control_descriptor)
    settings = json.loads(control.recv(_MAX_PACKET))
    os.nice(_NICE)
    os.environ.update(settings["environment"])
    sys.path.extend(settings["path"])
    sys.argv[1:] = []
    for name in (*_COMMON, *settings["imports"]):
        importlib.import_module(name)
    if settings["level"] == "namespaces" and os.getuid() == 0:
        os.setgroups([])
    if settings["level"] == "landlock" and os.getuid() == 0:
        Path(settings["scratch"]).chmod(0o711)  # calls pass through it to folders of their own
    site.setquit()
    confine_server(settings["level"])
    gc.collect()
    gc.freeze()
    server = GuestServer(control, settings)
    control.send(json.dumps({"python": sys.version}).encode())
    server.serve()
