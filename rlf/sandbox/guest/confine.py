"""Rights that a process gives up before it runs foreign code, level by level."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import kernel, landlock, seccomp

WORK = "/work"
"""The one writable folder of a call in its namespaces."""
_EMPTY = "/empty"
_INSIDE = 1000
"""User and group of sandboxed code as it sees them itself."""
# Empty files cost inodes and no bytes, so their number needs a limit of its own.
_FILES_PER_MIB = 64
_MIN_FILES = 1024
_OPEN_FILES = 128
# Linux' default; an unlimited stack would let deep recursion eat the memory limit before Python notices.
_STACK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Confinement:
    """The bounds of a process."""

    level: str
    limits: dict[str, Any]
    """`memory_mb`, `processes`, `disk_mb`, and `cpu_s` or None."""
    work: str
    """Folder to work in."""
    user: int
    """User and group of the process, outside its namespaces where it has any."""
    readable: tuple[str, ...]
    """What may be read where the level does not show a file system of its own."""
    hidden: bool = False
    """Whether some of that, or the way to it, is root's alone, so that another user must be let through."""


def confine_server(level: str) -> None:
    """Gives up what neither the server nor any call of it needs; calls give up the rest. Raises OSError."""
    if level != "process":
        kernel.forbid_new_privileges()
        kernel.install_filter(seccomp.server_filter(alone=level == "landlock"))


def confine(to: Confinement) -> None:
    """Confines this process for ever. Raises OSError where the kernel refuses."""
    num_pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    address_space = num_pages * resource.getpagesize() + (to.limits["memory_mb"] << 20)
    if to.level == "namespaces":
        _enter_namespaces(to)
    os.chdir(to.work)
    _set_limits(to, address_space)
    if to.level == "process":
        return
    alone = to.level == "landlock"
    if alone:
        landlock.restrict(to.readable, (to.work, "/dev/null"))
    if alone and os.getuid() == 0:
        _leave_root(to)
    else:
        kernel.drop_capabilities()
    kernel.install_filter(seccomp.call_filter(os.getpid(), alone=alone))


def _leave_root(to: Confinement) -> None:
    """Becomes the call's own user, whom no file of the host knows. Landlock bounds what READ_AND_SEARCH reaches."""
    parent = os.getppid()
    kernel.become_user(to.user)
    kernel.drop_capabilities(kernel.READ_AND_SEARCH if to.hidden else 0)
    kernel.die_with_parent(parent)  # which a change of user takes back


def _enter_namespaces(to: Confinement) -> None:
    """Becomes an ordinary user of the new namespaces, with an empty /proc and a file system of its own to write to."""
    kernel.set_dumpable()
    for name, text in (("setgroups", "deny"), ("uid_map", _id_map(to.user)), ("gid_map", _id_map(to.user))):
        _write_file(f"/proc/self/{name}", text)
    os.setresgid(_INSIDE, _INSIDE, _INSIDE)
    os.setresuid(_INSIDE, _INSIDE, _INSIDE)
    disk_mb = to.limits["disk_mb"]
    options = f"size={disk_mb}m,nr_inodes={max(_MIN_FILES, disk_mb * _FILES_PER_MIB)},mode=0700"
    kernel.mount("tmpfs", to.work, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    kernel.mount(_EMPTY, "/proc", None, kernel.MS_BIND, None)


def _id_map(outside: int) -> str:
    return f"{_INSIDE} {outside} 1"


def _write_file(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _set_limits(to: Confinement, address_space: int) -> None:
    limits = {
        resource.RLIMIT_AS: address_space,
        resource.RLIMIT_FSIZE: to.limits["disk_mb"] << 20,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_STACK: _STACK_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if to.level == "namespaces":  # elsewhere the processes of the whole user would count
        limits[resource.RLIMIT_NPROC] = to.limits["processes"]
    if to.limits["cpu_s"] is not None:
        limits[resource.RLIMIT_CPU] = to.limits["cpu_s"]
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
