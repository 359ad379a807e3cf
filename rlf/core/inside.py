"""Paths that come from a database or an archive: checked before anything is read, written or deleted there.

A database can come from a stranger. Its run ids become names of folders, and its rows name checkpoints; neither may
lead out of the runs folder, by `..`, by an absolute path or by a symbolic link.
"""

from __future__ import annotations

import re
from pathlib import Path

from rlf.core.errors import RlfError

# At most 128 characters: with the suffixes of its files a name stays below the 255 bytes of file systems.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_run_id(run_id: str) -> bool:
    """Whether a text can be a run's id: one plain name of a folder, not hidden."""
    return _RUN_ID.fullmatch(run_id) is not None


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


def run_folder(runs_folder: Path, run_id: str) -> Path:
    """The folder of a run, which need not exist.

    Raises:
        RlfError: the id is not the name of a folder, or a link leads out of the runs folder.
    """
    return path_inside(runs_folder, check_run_id(run_id))
