"""Removing runs with their folders, so that a kill at any moment leaves nothing half removed for long.

Runs are marked first, and no reader shows them any more; then their folders are deleted, and their rows last. The next
command that opens the lineage finishes what was marked.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage.marks import remove_run, removing, unfinished_removals
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run
from rlf.lineage.store import Store

logger = logging.getLogger(__name__)

# Also as older versions renamed a folder before they deleted it.
_OF_A_RUN = re.compile(r"\d{8}-\d{6}-[a-z0-9]{4}|\..*\.removed")


@dataclass(frozen=True, slots=True)
class Removed:
    """A run that was removed from the lineage."""

    run_id: str
    name: str
    folder: Path | None
    """Its folder, which was deleted; None where it had none or was to keep it."""


@dataclass(frozen=True, slots=True)
class RemovedRuns:
    """The runs that were removed."""

    removed: tuple[Removed, ...]


def remove_with_folders(reader: Reader, runs: Sequence[Run], runs_folder: Path, *, keep_files: bool) -> RemovedRuns:
    """Removes stopped runs from the lineage, and their folders.

    Raises:
        RlfError: a run is still running; or an id or a link leads out of the runs folder, and nothing was removed.
    """
    removed = []
    for run in runs:
        folder = None if keep_files else run_folder(runs_folder, run.record.id)
        there = folder if folder is not None and folder.is_dir() else None
        removed.append(Removed(run.record.id, run.record.name, there))
    if keep_files:  # no mark: who finishes a marked removal deletes the folder too
        for item in removed:
            remove_run(reader.store, item.run_id)
    else:
        _remove(reader.store, {item.run_id: item.folder for item in removed})
    return RemovedRuns(tuple(removed))


def _remove(store: Store, folder_by_run: dict[str, Path | None]) -> None:
    with removing(store, list(folder_by_run)):
        for folder in folder_by_run.values():
            if folder is not None and folder.is_dir():
                shutil.rmtree(folder)


def finish_removals(store: Store, runs_folder: Path) -> None:
    """Removes what is marked as removed, where a kill or an error cut its removal off."""
    for run_id in unfinished_removals(store):
        try:
            _remove(store, {run_id: run_folder(runs_folder, run_id)})
            logger.warning("run %s: its removal was interrupted; it is finished now", run_id)
        except BlockingIOError:
            logger.debug("run %s: another process finishes its removal", run_id)
        except (RlfError, OSError) as error:
            logger.warning("run %s: its removal was interrupted and cannot be finished: %s", run_id, error)


def stray_folders(runs_folder: Path, run_ids: Collection[str]) -> list[Path]:
    """Folders with the name of a run that the lineage does not have: of another database, or left by an old removal."""
    if not runs_folder.is_dir():  # a lineage elsewhere, by RLF_DB
        return []
    folders = sorted(path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [path for path in folders if _OF_A_RUN.fullmatch(path.name) and path.name not in run_ids]
