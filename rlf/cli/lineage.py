"""The lineage for commands that read it, loaded when it is opened."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlf.api.lineage import Reader


def open_reader(runs_folder: Path) -> AbstractContextManager[Reader]:
    """A reader of the runs in a folder. Raises RlfError when there are none; makes no folder."""
    from rlf.api import lineage

    return lineage.open_reader(runs_folder)
