"""What was found out about large files, kept on this machine until they change.

A file is known by its path, size, times of change and inode. One that was written just now is not: it may change again
without any of these. Nothing here is needed: an absent or unreadable note is found out anew.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rlf.core.hashing import hash_json

T = TypeVar("T")

MIN_BYTES = 1_000_000
"""What is smaller is read again faster than it is looked up."""
_SETTLED_S = 2.0
"""Age from which a change shows in the file's times, whatever their resolution."""
_MAX_NOTES = 2_000

Stamp = list[str | int]
"""What a file is known by, as JSON holds it."""


def stamp_file(path: Path, min_bytes: int = 0) -> Stamp | None:
    """What changes when the file does; None for a smaller one, and for one that was written just now."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    if (
        not path.is_file()
        or state.st_size < min_bytes
        or time.time() - max(state.st_mtime, state.st_ctime) < _SETTLED_S
    ):
        return None
    return [str(path.absolute()), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def remember(key: Any, find: Callable[[], T]) -> T:
    """What `find` returned for a key when it was last asked by this very code, or returns now: a JSON value."""
    known = read_note(key)
    if known is not None:
        return known[0]  # type: ignore[no-any-return]  # what `find` returned
    found = find()
    with suppress(OSError):
        _write_note(_note(key), json.dumps([found]).encode())
    return found


def read_note(key: Any) -> list[Any] | None:
    """What is remembered under a key, as the one item of a list; None for nothing."""
    with suppress(OSError, ValueError):
        known = json.loads(_note(key).read_bytes())
        return known if isinstance(known, list) and len(known) == 1 else None
    return None


def _write_note(note: Path, data: bytes) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    written = note.with_suffix(f".{secrets.token_hex(6)}")
    written.write_bytes(data)
    written.replace(note)
    notes = list(note.parent.glob("*.json"))
    if len(notes) > _MAX_NOTES:
        for old in sorted(notes, key=lambda path: path.stat().st_mtime)[: _MAX_NOTES // 2]:
            old.unlink(missing_ok=True)


def _note(key: Any) -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "rlf" / "checks" / f"{hash_json([_code_stamp(), key])}.json"


@cache
def _code_stamp() -> list[int]:
    """Number and newest change of rlf's own files: notes of another version are not believed."""
    root = Path(__file__).parents[1]
    changes = [
        entry.stat().st_mtime_ns
        for folder, _, files in os.walk(root)
        for entry in (Path(folder, name) for name in files if name.endswith(".py"))
    ]
    return [len(changes), max(changes)]
