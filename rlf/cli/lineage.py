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
    from rlf.lineage import Reader, open_store

    with open_store(runs_folder / "rlf.db", create=False) as store:
        yield Reader(store)
