"""Files and folders that appear whole or not at all: written beside the target under a random name, then renamed.

A write is marked before it begins: a locked file below the user's cache folder names what it writes to. A mark that
nobody locks is of a killed write, whose part is deleted by the next command that writes so or opens a lineage.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import logging
import os
import re
import secrets
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlf.core.errors import RlfError, RunError

DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
"""Of files that rows are read from, in the order that messages list them."""
MIXTURE_SUFFIX = ".mix.yaml"
"""Of a file that lists datasets."""
TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
"""Of a file that holds a template; any other text is the template itself."""

# Paths that come from a database or an archive: checked before anything is read, written or deleted there.
#
# A database can come from a stranger. Its run ids become names of folders, and its rows name checkpoints; neither may
# lead out of the runs folder, by `..`, by an absolute path or by a symbolic link.

# At most 128 characters: with the suffixes of its files a name stays below the 255 bytes of file systems.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_run_id(run_id: str) -> bool:
    """Whether a text can be a run's id: one plain name of a folder, not hidden."""
    return _RUN_ID.fullmatch(run_id) is not None


def is_folder_name(text: str) -> bool:
    """Whether a model's or dataset's name is a path rather than a `builtin:` name or a Hugging Face id."""
    return text.startswith(("./", "../", "/", "~"))


def run_folder(runs_folder: Path, run_id: str) -> Path:
    """The folder of a run, which need not exist.

    Raises:
        RlfError: the id is not the name of a folder, or a link leads out of the runs folder.
    """
    return path_inside(runs_folder, check_run_id(run_id))


# SQLite files that many processes share.

logger = logging.getLogger(__name__)

_REPORT_S = 3.0
"""Time after which a wait is reported."""
_WAL_PAUSE_S = 0.01
_reported: set[str] = set()
"""Files whose wait some thread of this process has reported and not ended."""
_reporting = threading.Lock()


def use_wal(database: sqlite3.Connection, patience_s: float) -> None:
    """Switches a file to write-ahead logging, unless it has it.

    Where several processes switch a new file at once, SQLite reports to all but one of them that it is busy, without
    its own time-out.

    Raises:
        sqlite3.OperationalError: the file is still busy after so long, or cannot be written.
    """

    def switch() -> None:
        if database.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            database.execute("PRAGMA journal_mode = WAL")

    wait_while_busy(database, switch, patience_s)


def wait_while_busy(database: sqlite3.Connection, action: Callable[[], object], patience_s: float) -> None:
    """Tries an action until no other process is in its way, and reports a wait that takes long.

    Threads that wait for the same file at once report it once.

    Raises:
        Exception: the action's own, also that it is still in the way after so long.
    """
    started, reported = time.monotonic(), None
    try:
        while True:
            try:
                action()
                break
            except Exception as error:
                waited_s = time.monotonic() - started
                if not _is_busy(error) or waited_s > patience_s:
                    raise
            if reported is None and waited_s > _REPORT_S:
                reported = _report_wait(str(database.execute("PRAGMA database_list").fetchone()[2]), patience_s)
            time.sleep(_WAL_PAUSE_S)
        if reported is not None:
            logger.warning("%s: free again after %.0f s", reported, time.monotonic() - started)
    finally:
        if reported is not None:
            _reported.discard(reported)


def _report_wait(file: str, patience_s: float) -> str | None:
    """Reports that a file is waited for. Returns the file, or None where another thread has reported it."""
    with _reporting:
        if file in _reported:
            return None
        _reported.add(file)
    what = "another process is writing to it; waiting at most"
    logger.warning("%s: %s %g minutes", file, what, patience_s / 60)
    return file


def _is_busy(error: Exception) -> bool:
    """Whether another connection is in the way, by the driver's error or the one that SQLAlchemy makes of it."""
    error = getattr(error, "orig", None) or error
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


# What a disk refuses, in words: full, a quota, a limit of file sizes, a failure, no right to write.
#
# Libraries that write files put the system's error in words of their own (safetensors, torch), so a reason is also read
# from those.

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


# Locked files: the kernel releases a lock when its process dies, whatever kills it, so that a lock says who lives.

_ATTEMPTS, _PAUSE_S = 25, 0.02
"""A process that looks whether a lock is held holds it itself for a moment."""


def lock_file(path: Path, *, takes_over: bool = False) -> int | None:
    """The descriptor that holds a file's lock; None where the file system has no locks or cannot be written."""
    for _ in range(_ATTEMPTS):
        try:
            path.parent.mkdir(exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # another process has just removed the empty folder
            continue
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if takes_over:
                path.unlink(missing_ok=True)
            else:
                time.sleep(_PAUSE_S)
            continue
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            return None
        if is_at(file, path):
            return file
        os.close(file)
    raise BlockingIOError(f"{path}: another process holds the lock")


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one that its name leads to."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def take_shared(path: Path) -> int | None:
    """The descriptor of a file that no process has locked; None where there is none, or that cannot be known from here.

    While it is open no process gets the lock.

    Raises:
        BlockingIOError: a process holds the lock.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return file


def is_held(path: Path) -> bool | None:
    """Whether a process holds a file's lock; None where that cannot be known from here."""
    try:
        file = take_shared(path)
    except BlockingIOError:
        return True
    if file is None:
        return None
    os.close(file)
    return False


def remove_lock(path: Path) -> None:
    """Deletes a lock file, and its folder with the last one."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


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
        with marked(temporary, token):
            yield temporary


@contextmanager
def marked(path: Path, token: str, keeps: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Marks a path as being written, as long as the block lasts; then whatever is there is removed.

    Args:
        keeps: errors after which it stays, since their messages name it.
    """
    mark = _marks_folder() / token
    file = None
    with suppress(OSError):  # without a folder for it the write is not marked
        mark.parent.mkdir(parents=True, exist_ok=True)
        file = lock_file(mark)
        if file is not None:
            os.write(file, os.fsencode(path))
    is_kept = False
    try:
        yield
    except keeps:
        is_kept = True
        raise
    finally:
        if not is_kept:
            _remove_part(path)
        if file is not None:
            mark.unlink(missing_ok=True)
            os.close(file)


@contextmanager
def scratch(name: str, *, parent: Path | None = None, keeps: tuple[type[Exception], ...] = ()) -> Iterator[Path]:
    """A folder of this user alone for as long as the block lasts; of a killed one the next command removes it.

    Args:
        parent: where it is; None: in the folder for temporary files.
        keeps: as of `marked`.
    """
    token = secrets.token_hex(6)
    folder = Path(parent or tempfile.gettempdir(), f".{name}.{token}.tmp").absolute()
    with marked(folder, token, keeps):
        folder.mkdir(0o700)
        yield folder


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


def can_write(path: Path) -> bool:
    """Whether this process may write a file or a folder, the file system included."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def shown_path(path: Path) -> str:
    """A path as messages show it: relative to the current folder when below it."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix()


def why_not_read(path: Path) -> str | None:
    """The sentence about what this user may not look at, or what would be waited for; None for files and folders."""
    try:
        mode = path.stat().st_mode
    except PermissionError:
        return "you have no permission to read it. Check those of the folders on the way, too."
    except (OSError, ValueError):
        return None
    is_stored = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return None if is_stored else "it is a pipe, a socket or a device. Save its content to a file, and name that."


def check_run_id(run_id: str) -> str:
    """The id. Raises RlfError for one that is not the plain name of a folder."""
    if not is_run_id(run_id):
        raise RlfError(
            f"run id {run_id[:80]!r}: not a run's id; expected letters, digits, `.`, `_` and `-` alone, e.g. "
            "`20260101-000000-abcd`. The database was changed or crafted: do not trust it."
        )
    return run_id


def path_inside(folder: Path, path: str | Path) -> Path:
    """A path with every link followed, where it lies in a folder; a relative one starts there.

    Raises:
        RlfError: it is the folder itself, or lies outside of it.
    """
    root = folder.resolve()
    found = (root / path).resolve()
    if root not in found.parents:
        raise RlfError(f"{path}: leads out of {folder}, to {found}. rlf read, changed and deleted nothing there.")
    return found
