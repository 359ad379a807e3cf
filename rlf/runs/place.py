"""A runs folder: where its lineage is, and the removal of its runs with their folders.

Invariant: a kill at any moment leaves no run half removed for long. Runs are marked first, and no reader shows them any
more; then their folders are deleted, and their rows last. The next command that opens the lineage finishes the marked.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlf.core.errors import RlfError, RunError
from rlf.core.files import clear_unfinished, run_folder
from rlf.core.text import clean, find_half
from rlf.lineage.read_only import can_write
from rlf.lineage.reader import Reader
from rlf.lineage.run import unfinished_removals
from rlf.lineage.store import Store, open_store

logger = logging.getLogger(__name__)


def remove_marked(store: Store, folder_by_run: dict[str, Path | None]) -> None:
    """Marks runs as removed, deletes their folders, then their rows."""
    from rlf.lineage.marks import removing

    with removing(store, list(folder_by_run)):
        for folder in folder_by_run.values():
            if folder is not None and folder.is_dir():
                shutil.rmtree(folder)


def finish_removals(store: Store, runs_folder: Path) -> None:
    """Removes what is marked as removed, where a kill or an error cut its removal off."""
    for run_id in unfinished_removals(store):
        try:
            remove_marked(store, {run_id: run_folder(runs_folder, run_id)})
            logger.warning("run %s: its removal was interrupted; it is finished now", run_id)
        except BlockingIOError:
            logger.debug("run %s: another process finishes its removal", run_id)
        except (RlfError, OSError) as error:
            logger.warning("run %s: its removal was interrupted and cannot be finished: %s", run_id, error)


def check_runs_folder(runs_folder: Path) -> None:
    """Raises RlfError where a run cannot be recorded in a folder, before anything is loaded. Makes nothing."""
    if find_half(str(runs_folder.absolute())) is not None:
        raise RlfError(
            f"--runs: {clean(str(runs_folder))} is not UTF-8, and a lineage holds Unicode. Name another one."
        )
    found = next(path for path in (runs_folder.absolute(), *runs_folder.absolute().parents) if os.path.lexists(path))
    if not found.is_dir():
        raise RlfError(f"--runs: {found} is not a folder; expected a folder for runs. Name another one.")
    if not can_write(found):
        raise RlfError(f"--runs: {runs_folder} cannot be written, so no run can be recorded there. Name another.")


def open_lineage(runs_folder: Path, *, create: bool = False, url: str | None = None, read_only: bool = False) -> Store:
    """The lineage that the variable RLF_DB names, a file or SQLAlchemy URL; else `url`; else that of the runs folder.

    What killed commands left, removals and parts of files, is finished or cleared first.

    Args:
        read_only: whether nothing of its file is changed: one of an older rlf is not migrated.

    Raises RlfError when there is none and none is to be made, or where the folder cannot be one.
    """
    if create:
        check_runs_folder(runs_folder)
        try:
            runs_folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError as error:
            raise RlfError(f"--runs: {runs_folder} cannot be made: {error.strerror}. Name another folder.") from error
    store = open_store(os.environ.get("RLF_DB") or url or runs_folder / "rlf.db", create=create, read_only=read_only)
    clear_unfinished()
    if not store.read_only:
        finish_removals(store, runs_folder)
    return store


@contextmanager
def open_reader(runs_folder: Path) -> Iterator[Reader]:
    """A reader of the runs in a folder. Raises RlfError when there are none; makes no folder."""
    with open_lineage(runs_folder) as store, blaming_damage(store):
        yield Reader(store)


@contextmanager
def blaming_damage(store: Store) -> Iterator[None]:
    """Raises RunError instead of the errors of a damaged lineage."""
    try:
        yield
    except (RlfError, OSError):
        raise
    except Exception as error:
        _blame_damage(store, error)
        raise


def _blame_damage(store: Store, error: Exception) -> None:
    """Raises RunError where the lineage is damaged: that explains an error, which is a defect of rlf otherwise."""
    from sqlalchemy.exc import DatabaseError

    from rlf.lineage.marks import find_damage

    try:
        damage = next(find_damage(store), None)
    except DatabaseError as unreadable:
        raise RunError(f"{store.place}: the lineage cannot be read: {unreadable.orig}.") from error
    if damage is not None:
        raise RunError(
            f"{store.place}: the lineage is damaged: {damage}. `rlf runs verify` names all of it and what is readable; "
            "`rlf runs salvage` saves that."
        ) from error
