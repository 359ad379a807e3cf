"""Folders beside Python's own path in which the modules of callables are looked for."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path

_FOLDERS: list[str] = []
OWN = str(Path(__file__).parents[1]) + os.sep
"""The folder of rlf's own code."""


def import_from(folder: Path) -> None:
    """Has callables found in a folder too, as `python -m` would there. No import of rlf's own looks into it before the
    first callable is loaded: a folder that only lies in the way must not replace a library."""
    if str(folder) not in _FOLDERS:
        _FOLDERS.append(str(folder))


def search_folders() -> list[str]:
    """Where modules of callables are looked for, in order."""
    return list(dict.fromkeys([*_FOLDERS, *sys.path]))


def extend_path() -> None:
    """Has every import look into the folders first."""
    sys.path[:0] = [folder for folder in _FOLDERS if folder not in sys.path]


@cache
def library_folders() -> tuple[str, ...]:
    """Where Python's own library and installed packages lie."""
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def show_place(place: str) -> str:
    """A file or module as messages name it."""
    return os.path.relpath(place) if Path(place).is_relative_to(Path.cwd()) else place
