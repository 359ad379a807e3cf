"""Files and folders that appear whole or not at all: written beside the target under a random name, then renamed.

A write is marked before it begins: a locked file below the user's cache folder names what it writes to. A mark that
nobody locks is of a killed write, whose part is deleted by the next command that writes so or opens a lineage.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlf.core.disk import explaining_refusal
from rlf.core.errors import RlfError
from rlf.core.locks import lock_file, take_shared

# What a mark names is deleted: nothing but what has the form of our own names, so that no other file ever is.
_OURS = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


@contextmanager
def published(target: Path) -> Iterator[Path]:
    """A path for a new file or folder; it is synced and becomes `target` at the end, and is removed on an error.

    Raises:
        RlfError: the target exists already.
        RunError: the disk refuses it.
    """
    check_free(target)
    clear_unfinished()
    with _begun(target, "try again; nothing was written.") as temporary:
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            sync_path(path)
        check_free(target)
        temporary.rename(target)
        sync_path(target.parent)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file, or leaves it as it was; its folder is made, and the rights of an old file stay.

    Raises:
        RunError: the disk refuses it.
    """
    target = path.resolve()
    with _begun(path, "try again; nothing was changed.", target) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        if target.is_file():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)


@contextmanager
def _begun(shown: Path, then: str, target: Path | None = None) -> Iterator[Path]:
    """A marked path beside a target, in a folder that is there; whatever is left at it is removed in the end."""
    target, token = (target or shown).absolute(), secrets.token_hex(6)
    temporary = target.with_name(f".{target.name[:200]}.{token}.tmp")
    with explaining_refusal(shown, then):
        target.parent.mkdir(parents=True, exist_ok=True)  # before the mark, whose removal would name another file
        with _marked(temporary, token):
            yield temporary


@contextmanager
def _marked(path: Path, token: str) -> Iterator[None]:
    """Marks a path as being written, as long as the block lasts; then whatever is there is removed."""
    mark = _marks_folder() / token
    file = None
    with suppress(OSError):  # without a folder for it the write is not marked
        mark.parent.mkdir(parents=True, exist_ok=True)
        file = lock_file(mark)
        if file is not None:
            os.write(file, os.fsencode(path))
    try:
        yield
    finally:
        _remove_part(path)
        if file is not None:
            mark.unlink(missing_ok=True)
            os.close(file)


def clear_unfinished() -> None:
    """Removes what killed writes left, wherever they wrote to."""
    try:
        marks = sorted(_marks_folder().iterdir())
    except OSError:  # there are none, or another user's
        return
    for mark in marks:
        try:
            file = take_shared(mark)
        except BlockingIOError:
            continue  # its process lives
        if file is None:
            continue
        # The lock stays with this process until the mark is gone: a writer that has just made it makes another.
        try:
            path = Path(os.fsdecode(os.read(file, 1 << 16)))
            if _OURS.fullmatch(path.name) and path.is_absolute():
                _remove_part(path)
            mark.unlink(missing_ok=True)
        except OSError:
            pass  # not ours to delete any more; the next command tries again
        finally:
            os.close(file)


def _marks_folder() -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        cache = Path(tempfile.gettempdir(), f"rlf-{os.getuid()}")
    return cache.absolute() / "rlf" / "unfinished"


def check_free(target: Path) -> None:
    """Raises RlfError where something is at the path."""
    if target.exists() or target.is_symlink():
        raise RlfError(f"{target}: exists already. Name another path, or remove it first.")


def _remove_part(path: Path) -> None:
    """Deletes what was written, with the files that SQLite keeps beside a database."""
    for found in [path, *path.parent.glob(f"{glob.escape(path.name)}-*")]:
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found, ignore_errors=True)
        else:
            found.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
