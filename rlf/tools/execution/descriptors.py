"""File descriptors: how many calls may run at once before the process has none left."""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path

logger = logging.getLogger(__name__)

_RESERVED = 64
"""Descriptors kept for everything that is not a call: database, checkpoints, logs, the loop itself."""
_MIN_CALLS = 8
_OPEN = Path("/proc/self/fd")


def affordable_calls(wanted: int) -> int:
    """`wanted`, or as many calls as can hold a descriptor each under the process's limit, with a warning."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = max(_MIN_CALLS, soft - _num_open() - _RESERVED)
    if room >= wanted:
        return wanted
    text = "the process may open %d files, which is room for %d calls of tools at once, not %d; raise `ulimit -n`"
    logger.warning(text, soft, room, wanted)
    return room


def _num_open() -> int:
    return len(os.listdir(_OPEN)) if _OPEN.is_dir() else 0  # noqa: PTH208 - names alone are counted
