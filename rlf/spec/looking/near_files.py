"""The file that a wrong path may be meant for."""

from __future__ import annotations

import os.path
from pathlib import Path

from rlf.core.registry import close_names
from rlf.data.source import READERS
from rlf.spec.reading.layers import absolute
from rlf.spec.reading.nodes import OVERRIDE, Node
from rlf.spec.reading.reader import shown_path

FORBIDDEN = "you have no permission to read it. Check those of the folders on the way, too."


def is_forbidden(path: Path) -> bool:
    """Whether this user may not look at a path."""
    try:
        path.stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def missing_file(node: Node, file: Path) -> str | None:
    """The message for a file that is not there, with the one that is meant, as far as that can be seen.

    None where it is there.

    Args:
        node: the value that names the file; its folder is where relative paths in it start.
        file: the whole path.
    """
    if is_forbidden(file):
        return f"{shown_path(file)}: {FORBIDDEN}"
    if os.path.exists(file):  # noqa: PTH110 - Path's own raises what `is_forbidden` has looked for
        return None
    written = os.path.relpath(file, node.folder)
    meant = _find_meant(written, node.folder)
    suggestion = f"; did you mean {os.path.relpath(meant, node.folder)}?" if meant is not None else "."
    start = "the current folder" if node.place.file == OVERRIDE else f"the spec's folder, {shown_path(node.folder)}"
    return f"{shown_path(file)}: no such file{suggestion} Paths start at {start}. Correct the path."


def _find_meant(written: str, folder: Path) -> Path | None:
    """The nearest data file: of that name from another start, or of nearly that name, from the same start first."""
    near = (folder, Path.cwd(), folder.parent)
    starts = list(dict.fromkeys([*near, *(start / "data" for start in near)]))
    exact = [path for start in starts if os.path.isfile(path := absolute(Path(written), start))]  # noqa: PTH113
    return next(
        iter([*exact, *(path for start in starts for path in _list_near(absolute(Path(written), start)))]), None
    )


def _list_near(path: Path) -> list[Path]:
    """Data files beside a path whose names are nearly its own, or its own with a suffix."""
    try:
        names = sorted(file.name for file in path.parent.iterdir() if file.suffix in READERS)
    except OSError:
        return []
    with_suffix = [name for name in names if Path(name).stem == path.name]
    return [path.parent / name for name in (*with_suffix, *close_names(path.name, names))]
