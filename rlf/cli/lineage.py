"""The lineage for commands that read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rlf.core.errors import RlfError, RunError

if TYPE_CHECKING:
    from rlf.lineage import Reader, Store


@contextmanager
def open_reader(runs_folder: Path) -> Iterator[Reader]:
    """A reader of the runs in a folder. Raises RlfError when there are none; makes no folder."""
    from rlf.api.lineage import open_lineage
    from rlf.lineage import Reader

    with open_lineage(runs_folder) as store:
        try:
            yield Reader(store)
        except (RlfError, OSError, typer.Exit, typer.Abort):
            raise
        except Exception as error:
            _blame_damage(store, error)
            raise


def _blame_damage(store: Store, error: Exception) -> None:
    """Raises RunError where the lineage is damaged: that explains an error, which is a defect of rlf otherwise."""
    from rlf.lineage.upkeep import find_damage

    damage = next(find_damage(store), None)
    if damage is not None:
        raise RunError(
            f"{store.place}: the lineage is damaged: {damage}. `rlf runs verify` names all of it and what is readable; "
            "`rlf runs salvage` saves that."
        ) from error
