"""Landlock: a process gives up the file system for ever, but for the paths that it names.

Made through system calls, since C libraries do not wrap them. Rights that a kernel does not know are left out; the
seccomp filter covers what the first versions lack (truncation by path, sockets, signals).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from .kernel import checked, libc

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
