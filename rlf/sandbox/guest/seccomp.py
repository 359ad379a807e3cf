"""The system calls that sandboxed code may make: a BPF program written by hand, installed through prctl.

Denied is what reaches beyond the process: sockets, other processes' memory and scheduling, mounts and namespaces,
keys, tracing, kernel administration, and memory that no limit of the sandbox counts (memfd, System V, message
queues). Of the calls younger than 2019 only those named here exist; the others answer ENOSYS, as on an old kernel.
Limits can be read but not set, and no process can send itself SIGKILL: an end by that signal comes from outside, which
is infrastructure's fault and no failure of the code. The filter for a process without a pid namespace also denies
making processes, signals to others, and changes of the mode, owner, times or attributes of files, which Landlock does
not cover.
"""

from __future__ import annotations

import errno
import platform
import signal
import struct
from collections.abc import Iterator
from typing import NamedTuple


class _Machine(NamedTuple):
    column: int
    """Where its numbers stand in the tables below."""
    audit_arch: int
    last_old_call: int
    """Highest number before the numbers that all machines share, which begin at 424."""


_MACHINES = {"x86_64": _Machine(0, 0xC000003E, 334), "aarch64": _Machine(1, 0xC00000B7, 294)}

# name, number on x86_64, number on aarch64; `-` where the machine lacks the call
_DENIED = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, umount2 166 39,
pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, kexec_load 246 104, kexec_file_load 320 294,
bpf 321 280, perf_event_open 298 241, add_key 248 217, request_key 249 218, keyctl 250 219, init_module 175 105,
finit_module 313 273, delete_module 176 106, swapon 167 224, swapoff 168 225, reboot 169 142, sethostname 170 161,
setdomainname 171 162, iopl 172 -, ioperm 173 -, quotactl 179 60, acct 163 89, settimeofday 164 170,
clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266, syslog 103 116, userfaultfd 323 282,
open_by_handle_at 304 265, name_to_handle_at 303 264, fanotify_init 300 262, lookup_dcookie 212 18, vhangup 153 58,
personality 135 92, modify_ldt 154 -, memfd_create 319 279, shmget 29 194, shmat 30 196, shmctl 31 195,
msgget 68 186, semget 64 190, mq_open 240 180, move_pages 279 239, migrate_pages 256 238, mbind 237 235,
set_mempolicy 238 237, setpriority 141 140, ioprio_set 251 30, sched_setaffinity 203 122, sched_setscheduler 144 119,
sched_setparam 142 118, sched_setattr 314 274, socket 41 198, connect 42 203, bind 49 200, listen 50 201,
accept 43 202, accept4 288 242, vmsplice 278 75, io_setup 206 0
"""
_DENIED_ALONE = """
tkill 200 130, truncate 76 45,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
inotify_init 253 -, inotify_init1 294 26, timer_create 222 107
"""
"""The last would send its own process any signal."""
# These answer 0 and do nothing, since programs fail without them: Landlock does not cover them.
_IGNORED_ALONE = """
chmod 90 -, fchmod 91 52, fchmodat 268 53, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
"""
_DENIED_LAST = """
mount 165 40, pidfd_send_signal 424 424, pidfd_open 434 434, landlock_create_ruleset 444 444, landlock_add_rule 445 445,
landlock_restrict_self 446 446, setrlimit 160 164
"""
"""Calls that the server and a process about to be confined still need."""
_DENIED_LAST_ALONE = "fork 57 -, vfork 58 -, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54"
"""The server of root gives each call's folder to the call's own user."""
_LOOKED_AT = """
clone 56 220, kill 62 129, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, prlimit64 302 261,
fcntl 72 25, ioctl 16 29, prctl 157 167
"""
_NEW_CALLS = (424, 434, 436, 437, 439, 441, 444, 445, 446, 449)
"""Beside those above: close_range, openat2, faccessat2, epoll_pwait2, futex_waitv. clone3 is missing on purpose: its
flags lie in memory that a filter cannot read; C libraries fall back to clone."""
_NEW_NAMESPACES = 0x7E020000 | 0x80
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME."""
# CLONE_THREAD: a thread shares the limits of its process, so it may be made.
_THREAD = 0x10000
_SET_OWNER = (8, 15)
"""fcntl: F_SETOWN, F_SETOWN_EX, by which the kernel would signal another process."""
_SET_DEATH_SIGNAL = 1
"""prctl: would let a process outlive its server."""
_IOCTLS = (0x5412, 0x541C, 0x8901, 0x8902)
"""TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP."""

# BPF_LD|BPF_W|BPF_ABS; BPF_JMP with JEQ, JGT and JSET, each with a constant; BPF_RET (linux/bpf_common.h).
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
# Offsets in `struct seccomp_data`: nr, arch, and args, of eight bytes each.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
# SECCOMP_RET_* of linux/seccomp.h; the low 16 bits of RET_ERRNO are the error.
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_REFUSE = _ERRNO | errno.EPERM


def supported() -> bool:
    """Whether there is a table for this machine."""
    return platform.machine() in _MACHINES


def server_filter(*, alone: bool, machine: str | None = None) -> bytes:
    """The filter of a server and of all that it starts; most of the work, done once. `struct sock_filter[]`.

    `alone`: without a pid namespace, so that no other process may be reached.
    """
    return _pack_instructions(_for_server(_MACHINES[machine or platform.machine()], alone))


def call_filter(own_pid: int, *, alone: bool, machine: str | None = None) -> bytes:
    """The filter that a process installs last, above the server's."""
    return _pack_instructions(_for_call(_MACHINES[machine or platform.machine()], own_pid, alone))


_Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand."""


def _pack_instructions(instructions: Iterator[_Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)


def _for_server(machine: _Machine, alone: bool) -> Iterator[_Instruction]:
    named = _read_numbers(_LOOKED_AT, machine)
    # The architecture first: a 32-bit call (int 0x80) has other numbers, and would pass as something else.
    yield _LOAD, 0, 0, _ARCH
    yield _EQUAL, 1, 0, machine.audit_arch
    yield _RETURN, 0, 0, _KILL_PROCESS
    yield _LOAD, 0, 0, _NUMBER
    yield from _new_calls(machine)
    yield from _answer_calls(_DENIED, machine, _REFUSE)
    if alone:
        yield from _answer_calls(_DENIED_ALONE, machine, _REFUSE)
        yield from _answer_calls(_IGNORED_ALONE, machine, _ERRNO)
        yield from _answer_by_argument(named["fcntl"], 1, [(_EQUAL, value) for value in _SET_OWNER], _REFUSE, _ALLOW)
    yield from _answer_by_argument(named["ioctl"], 1, [(_EQUAL, value) for value in _IOCTLS], _REFUSE, _ALLOW)
    # pid 0 is the caller: limits of other processes are out of reach.
    yield from _answer_by_argument(named["prlimit64"], 0, [(_EQUAL, 0)], _ALLOW, _REFUSE)
    yield _RETURN, 0, 0, _ALLOW


def _for_call(machine: _Machine, own_pid: int, alone: bool) -> Iterator[_Instruction]:
    named = _read_numbers(_LOOKED_AT, machine)
    yield _LOAD, 0, 0, _NUMBER
    yield from _answer_calls(_DENIED_LAST, machine, _REFUSE)
    yield from _without_pointer(named["prlimit64"], 2)
    # Without a pid namespace other processes are visible: only the process itself may get signals, and only threads
    # may be made. With one the kernel hides the others, and new namespaces are all that is left to refuse.
    if alone:
        yield from _answer_calls(_DENIED_LAST_ALONE, machine, _REFUSE)
        for name, signal_at in (("kill", 1), ("tgkill", 2), ("rt_sigqueueinfo", 1), ("rt_tgsigqueueinfo", 2)):
            yield from _to_itself(named[name], own_pid, signal_at)
        yield from _answer_by_argument(named["prctl"], 0, [(_EQUAL, _SET_DEATH_SIGNAL)], _REFUSE, _ALLOW)
        yield from _answer_by_argument(named["clone"], 0, [(_ANY_BIT, _THREAD)], _ALLOW, _REFUSE)
    else:
        yield from _answer_by_argument(named["clone"], 0, [(_ANY_BIT, _NEW_NAMESPACES)], _REFUSE, _ALLOW)
    yield _RETURN, 0, 0, _ALLOW


def _answer_calls(table: str, machine: _Machine, answer: int) -> Iterator[_Instruction]:
    for number in _read_numbers(table, machine).values():
        yield from _answer_instructions(number, answer)


def _new_calls(machine: _Machine) -> Iterator[_Instruction]:
    block = [instruction for number in _NEW_CALLS for instruction in _answer_instructions(number, _ALLOW)]
    # Jumps are counted in instructions that are skipped: those of the block and its final return.
    yield _ABOVE, 0, len(block) + 1, machine.last_old_call
    yield from block
    # ENOSYS and not EPERM: C libraries then fall back to the older call.
    yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS


def _answer_instructions(number: int, answer: int) -> Iterator[_Instruction]:
    yield _EQUAL, 0, 1, number
    yield _RETURN, 0, 0, answer


def _answer_by_argument(
    number: int, argument: int, tests: list[tuple[int, int]], answer: int, otherwise: int
) -> Iterator[_Instruction]:
    """`answer` to a call whose argument (its low 32 bits) passes any test, `otherwise` to the rest of its calls."""
    # The kernel reads these arguments as int, so bits above 32 do not count there either.
    yield _EQUAL, 0, 2 * len(tests) + 2, number
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * argument
    for operation, operand in tests:
        yield operation, 0, 1, operand
        yield _RETURN, 0, 0, answer
    yield _RETURN, 0, 0, otherwise


def _to_itself(number: int, own_pid: int, signal_at: int) -> Iterator[_Instruction]:
    """Signals to the own process, but SIGKILL, which shows the waiting process that it came from outside."""
    yield _EQUAL, 0, 7, number
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * signal_at
    yield _EQUAL, 0, 1, signal.SIGKILL
    yield _RETURN, 0, 0, _REFUSE
    yield _LOAD, 0, 0, _ARGUMENTS
    yield _EQUAL, 0, 1, own_pid
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _REFUSE


def _without_pointer(number: int, argument: int) -> Iterator[_Instruction]:
    """Allows a call whose argument, all 64 bits of it, is NULL: a limit may be read, not set."""
    yield _EQUAL, 0, 6, number
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * argument
    yield _EQUAL, 0, 3, 0
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * argument + 4
    yield _EQUAL, 0, 1, 0
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _REFUSE


def _read_numbers(table: str, machine: _Machine) -> dict[str, int]:
    rows = (row.split() for row in table.split(","))
    return {name: int(numbers[machine.column]) for name, *numbers in rows if numbers[machine.column] != "-"}
