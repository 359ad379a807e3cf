"""Cores and memory that the machine offers this process."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may run on, which on Linux can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_memory_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_folder() -> Path:
    """Folder of rlf's caches for this user. Raises OSError for a user without a home, as in some containers."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlf"
    except RuntimeError as error:
        raise OSError(str(error)) from error
