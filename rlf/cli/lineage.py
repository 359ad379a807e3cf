"""The lineage for commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlf.lineage import Reader


@contextmanager
def open_reader(runs_folder: Path) -> Iterator[Reader]:
    """A reader of the runs in a folder. Raises RlfError when there are none; makes no folder."""
    from rlf.api.lineage import open_lineage
    from rlf.lineage import Reader

    with open_lineage(runs_folder) as store:
        yield Reader(store)
