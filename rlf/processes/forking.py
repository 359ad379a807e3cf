"""A process that loads something once and forks for each that needs it, as one that is forked sees it.

What to load comes over stdin. Orders come over a socket, each answered: to fork a process that serves the socket that
is passed along, and to kill one. Only the standard library is imported, so that an environment without rlf can run
this file. What the forks answer are frames (`rlf.sandbox.guest.wire`).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MAX_ORDER_BYTES = 8192
_MAX_FAULT_CHARS = 1000
_PR_SET_PDEATHSIG = 1

Serve = Callable[[socket.socket], None]
"""Answers the requests of one socket until it is closed."""


def serve_forks(load: Callable[[dict[str, Any]], Serve]) -> None:
    """Takes orders from the socket whose descriptor is the first argument until it is closed.

    Args:
        load: loads what all forks share; the text of what it raises is what the other side reads.
    """
    die_with(int(sys.argv[2]))
    start = pickle.load(sys.stdin.buffer)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        try:
            serve = load(start)
        except Exception as fault:  # noqa: BLE001 - code of others may raise anything
            orders.send(json.dumps({"id": 0, "failed": str(fault)[:_MAX_FAULT_CHARS]}).encode())
            return
        gc.freeze()
        orders.send(json.dumps({"id": 0}).encode())
        _take_orders(orders, serve)


def die_with(parent: int) -> None:
    """Ends this process when the one that started it ends, also while it computes. Linux alone can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before this could be said
            os._exit(1)


def _take_orders(orders: socket.socket, serve: Serve) -> None:
    pids: dict[int, int] = {}
    while True:
        packet, channels, _, _ = socket.recv_fds(orders, MAX_ORDER_BYTES, 1)
        if not packet:
            return
        order = json.loads(packet)
        if order["do"] == "fork":
            answer = _fork(orders, channels[0], order["id"], pids, serve)
        else:
            answer = {"status": _end(pids.pop(order["id"]))}
        orders.send(json.dumps({"id": order["id"], **answer}).encode())


def _fork(orders: socket.socket, channel: int, number: int, pids: dict[int, int], serve: Serve) -> dict[str, Any]:
    def work() -> None:
        orders.close()
        serve(socket.socket(fileno=channel))

    try:
        pids[number] = fork(work)
    except OSError as fault:
        return {"failed": f"{type(fault).__name__}: {fault}"}
    finally:
        os.close(channel)
    return {"pid": pids[number]}


def fork(work: Callable[[], object]) -> int:
    """The id of a fork that works, in a group of its own, and ends with that or with this process. Raises OSError."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        with suppress(OSError):  # it has done so itself
            os.setpgid(pid, pid)
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        die_with(parent)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of what called may run in the fork
        traceback.print_exc()
    finally:
        os._exit(code)


def _end(pid: int) -> int:
    """Kills a process and what it started; how it ended, as wait(2) gives it."""
    with suppress(ProcessLookupError, PermissionError):  # a process that ended by itself keeps its status
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]
