"""Content hashes: the identity of every file, plan and payload, and what is remembered of files by it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

MANIFEST = "manifest.json"
"""File of a checkpoint with the hash of every other file of the folder."""


def hash_bytes(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()


def hash_json(value: Any) -> str:
    """sha256 of the canonical JSON of a value (sorted keys, no spaces): the same on any machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hash_bytes(text.encode(errors="surrogatepass"))  # names of files need not be Unicode


def is_sealed(value: Mapping[str, Any]) -> bool:
    """Whether a JSON value with a `sha256` of all its other keys still has it: what was edited has not."""
    return value.get("sha256") == hash_json({name: each for name, each in value.items() if name != "sha256"})


def short(value: str) -> str:
    """A hash by its beginning; a version or another value as it is; `absent` for nothing."""
    is_hash = len(value) == 64 and value.isalnum()
    return value[:12] if is_hash else value or "absent"


def hash_path(path: Path) -> str:
    """sha256 of a file, or of the sorted (relative name, hash) pairs of a folder's files."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        return hash_json([[p.relative_to(path).as_posix(), hash_path(p)] for p in files])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Results of reading large files, kept on this machine until the files change.
#
# A file is known by its path, size, times of change and inode. One that was written just now is not: it may change
# again without any of these. Nothing here is needed: where a note is absent, unreadable or another user's, its content
# is found out again.

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
        _write_note(key, json.dumps([found]).encode())
    return found


def read_note(key: Any) -> list[Any] | None:
    """What is remembered under a key, as the one item of a list; None for nothing."""
    with suppress(OSError, ValueError), _note_path(key).open("rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            return None
        known = json.loads(file.read())
        return known if isinstance(known, list) and len(known) == 1 else None
    return None


def _write_note(key: Any, data: bytes) -> None:
    note = _note_path(key)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # notes hold prompts
    written = note.with_suffix(f".{secrets.token_hex(6)}")
    try:
        written.write_bytes(data)
        written.replace(note)
    finally:
        written.unlink(missing_ok=True)
    notes = list(note.parent.iterdir())  # also what a killed process had begun to write
    if len(notes) > _MAX_NOTES:
        for old in sorted(notes, key=lambda path: path.stat().st_mtime)[: _MAX_NOTES // 2]:
            old.unlink(missing_ok=True)


def _note_path(key: Any) -> Path:
    """Raises OSError where this user has no folder for notes."""
    from rlf.core.process import cache_folder  # `rlf --help` hashes nothing

    return cache_folder() / "checks" / f"{hash_json([_code_stamp(), key])}.json"


@cache
def _code_stamp() -> str:
    """Names, sizes and times of rlf's own files: notes of another version are not believed."""
    root = Path(__file__).parents[1]
    states = [
        (str(path), state.st_size, state.st_mtime_ns)
        for folder, _, files in os.walk(root)
        for path in (Path(folder, name) for name in files if name.endswith(".py"))
        for state in (path.stat(),)
    ]
    return hash_json(sorted(states))


# Names of runs: sortable by time, readable aloud, unique.


def new_run_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxx` in UTC with four random characters."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    tail = "".join(secrets.choice(alphabet) for _ in range(4))
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{tail}"


# Seeds derived from the run's one seed. No global random state anywhere.


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on their order.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    """
    text = "\x1f".join([f"{type(part).__name__}:{part}" for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
