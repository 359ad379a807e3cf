"""Files and folders that appear whole or not at all: written beside the target under a random name, then renamed."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlf.core.errors import RlfError, RunError

logger = logging.getLogger(__name__)


@contextmanager
def published(target: Path) -> Iterator[Path]:
    """A path for a new file or folder; it is synced and becomes `target` at the end, and is removed on an error.

    The name is random, so that nobody else's file is ever taken for an old one of ours.

    Raises:
        RlfError: the target exists already.
        RunError: its folder cannot be written.
    """
    check_free(target)
    _name_leftovers(target)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            sync_path(path)
        check_free(target)
        temporary.rename(target)
        sync_path(target.parent)
    except PermissionError as error:
        raise RunError(f"{target}: cannot be written: {error.strerror}. Name a path in a folder that can.") from error
    finally:
        _remove_path(temporary)


def _name_leftovers(target: Path) -> None:
    """Reports what killed writes to the same target have left. Another process may write there, so nothing is removed.

    The names are random: what differs from them in form is somebody else's.
    """
    ours = re.compile(re.escape(f".{target.name[:200]}.") + r"[0-9a-f]{12}\.tmp")
    found = sorted(path for path in target.parent.glob(".*.tmp") if ours.fullmatch(path.name))
    for path in found:
        logger.warning("%s: left by an interrupted write. Delete it, unless another process writes %s.", path, target)


def check_free(target: Path) -> None:
    """Raises RlfError where something is at the path."""
    if target.exists() or target.is_symlink():
        raise RlfError(f"{target}: exists already. Name another path, or remove it first.")


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
