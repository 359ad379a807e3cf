"""Rights that a process gives up before it runs foreign code, level by level: by namespaces, Landlock and seccomp.

System calls that Python does not wrap are made here. The file imports the standard library and its neighbours alone.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import seccomp

libc = ctypes.PyDLL(None, use_errno=True)
"""Calls keep the interpreter's lock, so that a clone happens between its before and after."""

_CLONE_BY_MACHINE = {"x86_64": 56, "aarch64": 220}
_NEW_NAMESPACES = 0x20000 | 0x08000000 | 0x10000000 | 0x20000000
"""CLONE_NEWNS, NEWIPC, NEWUSER, NEWPID."""
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS, _FILTER = 1, 4, 22, 38, 2
# PR_SET_KEEPCAPS (linux/prctl.h).
_KEEP_CAPABILITIES = 8
# _LINUX_CAPABILITY_VERSION_3 (linux/capability.h).
_CAPABILITIES_3 = 0x20080522
READ_AND_SEARCH = 1 << 2
"""CAP_DAC_READ_SEARCH: to read files and pass through folders that are others' alone."""
MS_NOSUID, MS_NODEV, MS_BIND = 2, 4, 4096


def checked(name: str, result: int) -> int:
    """The result of a system call. Raises OSError where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def fork_into_namespaces() -> int:
    """`os.fork()` whose child has user, pid, mount and IPC namespaces of its own. The caller has one thread."""
    api = ctypes.pythonapi
    number = _CLONE_BY_MACHINE[os.uname().machine]
    api.PyOS_BeforeFork()
    pid: int = libc.syscall(number, ctypes.c_ulong(_NEW_NAMESPACES | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
    return checked("clone", pid)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    """mount(2)."""
    kind_bytes, option_bytes = (None if text is None else text.encode() for text in (kind, options))
    result = libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), option_bytes)
    checked(f"mount {target}", result)


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends; ends it now when that has happened."""
    checked("prctl", libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def set_dumpable() -> None:
    """Gives the process its own files in /proc back, which changing its user takes away."""
    checked("prctl", libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))


def forbid_new_privileges() -> None:
    """No program started from here on gains privileges by being started."""
    checked("prctl", libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def drop_capabilities(kept: int = 0) -> None:
    """Gives up every capability but those whose bits are in `kept`, all below 32."""
    header, sets = struct.pack("=Ii", _CAPABILITIES_3, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    checked("capset", libc.capset(header, sets))


def become_user(user: int) -> None:
    """Turns root into another user and group for ever; capabilities stay permitted until they are dropped."""
    checked("prctl", libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def install_filter(program: bytes) -> None:
    """Installs a seccomp filter for this process and what it starts. Needs `no_new_privs`."""
    instructions = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    checked("seccomp", libc.prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(described), 0, 0))


# Landlock: a process gives up the file system for ever, but for the paths that it names.
#
# Made through system calls, since C libraries do not wrap them. Rights that a kernel does not know are left out; the
# seccomp filter covers what the first versions lack (truncation by path, sockets, signals).

_CREATE, _ADD, _RESTRICT = 444, 445, 446
# LANDLOCK_CREATE_RULESET_VERSION and LANDLOCK_RULE_PATH_BENEATH of linux/landlock.h.
_ABI_QUERY = 1
# LANDLOCK_RULE_PATH_BENEATH.
_PATH_BENEATH = 1

# LANDLOCK_ACCESS_FS_*: one bit for each right, in the order of the header.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FS_BY_ABI = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
"""All rights of the file system, bit by bit; 13 in the first version, then REFER, TRUNCATE, IOCTL_DEV."""
# 0x4000 is TRUNCATE, 0x8000 IOCTL_DEV; all other rights are about folders, and the kernel refuses them for a file.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 0x4000 | 0x8000
# Bind and connect, from version 4 on.
_TCP = 3
_SCOPES = 3
"""No abstract sockets and no signals to outside, from version 6."""


def abi() -> int:
    """The kernel's version of Landlock; 0 when there is none."""
    version: int = libc.syscall(_CREATE, None, 0, _ABI_QUERY)
    return max(version, 0)


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leaves this process the named files and folders alone; paths that do not exist are passed over.

    Needs `no_new_privs`. Raises OSError.
    """
    version = abi()
    handled = _FS_BY_ABI[min(version, 5)]
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = checked("landlock_create_ruleset", libc.syscall(_CREATE, attributes, len(attributes), 0))
    try:
        for path in readable:
            _allow_path(ruleset, path, _READ)
        for path in writable:
            _allow_path(ruleset, path, handled & ~_EXECUTE)
        checked("landlock_restrict_self", libc.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        added = libc.syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
        checked(f"landlock_add_rule {path}", added)
    finally:
        os.close(place)


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
        forbid_new_privileges()
        install_filter(seccomp.server_filter(alone=level == "landlock"))


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
        restrict(to.readable, (to.work, "/dev/null"))
    if alone and os.getuid() == 0:
        # The call's own user, whom no file of the host knows; Landlock bounds what READ_AND_SEARCH reaches.
        parent = os.getppid()
        become_user(to.user)
        drop_capabilities(READ_AND_SEARCH if to.hidden else 0)
        die_with_parent(parent)  # which a change of user takes back
    else:
        drop_capabilities()
    install_filter(seccomp.call_filter(os.getpid(), alone=alone))


def _enter_namespaces(to: Confinement) -> None:
    """Becomes an ordinary user of the new namespaces, with an empty /proc and a file system of its own to write to."""
    set_dumpable()
    for name, text in (("setgroups", "deny"), ("uid_map", _id_map(to.user)), ("gid_map", _id_map(to.user))):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
    os.setresgid(_INSIDE, _INSIDE, _INSIDE)
    os.setresuid(_INSIDE, _INSIDE, _INSIDE)
    disk_mb = to.limits["disk_mb"]
    options = f"size={disk_mb}m,nr_inodes={max(_MIN_FILES, disk_mb * _FILES_PER_MIB)},mode=0700"
    mount("tmpfs", to.work, "tmpfs", MS_NOSUID | MS_NODEV, options)
    mount(_EMPTY, "/proc", None, MS_BIND, None)


def _id_map(outside: int) -> str:
    return f"{_INSIDE} {outside} 1"


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
