"""Memory of processes and sizes of folders, as /proc and the file system show them."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

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
