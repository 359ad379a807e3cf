"""What a disk refuses, in words: full, a quota, a limit of file sizes, a failure, no right to write.

Libraries that write files put the system's error in words of their own (safetensors, torch), so a reason is also read
from those.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlf.core.errors import RlfError, RunError

_WORDS = {
    errno.ENOSPC: "the disk is full. Make room",
    errno.EDQUOT: "the disk quota is used up. Make room",
    errno.EFBIG: "a file would be larger than this process may write. Raise the limit (`ulimit -f`)",
    errno.EIO: "the disk fails. Check it",
    errno.EROFS: "the file system can only be read. Name a path that can be written",
    errno.EACCES: "it cannot be written. Allow writing to it, or name a path that can be written",
    errno.EPERM: "it cannot be written. Allow writing to it, or name a path that can be written",
}
_NUMBER = re.compile(r"\(os error (\d+)\)|\[[Ee]rrno (\d+)\]")
"""As Rust and Arrow end a system's error."""
_TEXTS = {os.strerror(number): number for number in _WORDS} | {
    "unexpected pos": errno.ENOSPC,  # of torch, which forgets the system's error
    "database or disk is full": errno.ENOSPC,
    "disk I/O error": errno.EIO,
    "readonly database": errno.EROFS,
}


def refusal(error: BaseException) -> str | None:
    """Why a disk refused to write, and what to do, without a full stop; None where the error is another one."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(refusal, error.exceptions)), None)
    if isinstance(error, OSError) and error.errno is not None:
        return _WORDS.get(error.errno)
    if isinstance(error, RlfError) or not isinstance(error, Exception):
        return None
    text = str(error)
    match = _NUMBER.search(text)
    if match is not None:
        return _WORDS.get(int(match[1] or match[2]))
    if isinstance(error, (sqlite3.Error, RuntimeError, OSError)) or "Safetensor" in type(error).__name__:
        return next((_WORDS[number] for words, number in _TEXTS.items() if words in text), None)
    return None


@contextmanager
def explaining_refusal(path: Path, then: str) -> Iterator[None]:
    """Raises RunError, which names the path, where the disk refuses what the block writes.

    Args:
        then: what to do once the reason is gone, with what stays as it was.
    """
    try:
        yield
    except Exception as error:
        words = refusal(error)
        if words is None:
            raise
        raise RunError(f"{path}: {words}, then {then} ({error})") from error
