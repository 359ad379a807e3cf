"""System calls that Python does not wrap."""

from __future__ import annotations

import ctypes
import os
import signal
import struct

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
