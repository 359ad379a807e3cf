"""Where the lineage of a runs folder is."""

from __future__ import annotations

from pathlib import Path

from rlf.lineage.store import Store, open_store


def open_lineage(runs_folder: Path, *, create: bool = False) -> Store:
    """The lineage of a runs folder. Raises RlfError when there is none and none is to be made."""
    if create:
        runs_folder.mkdir(parents=True, exist_ok=True)
    return open_store(runs_folder / "rlf.db", create=create)
