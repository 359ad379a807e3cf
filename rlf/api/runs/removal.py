"""Removing runs with their folders, so that a kill at any moment leaves nothing that `gc` and `verify` do not see.

The folder is renamed to `.ID.removed` in the transaction that deletes the rows, and deleted after it. What a kill
leaves is such a folder: with the run's rows still there the removal did not happen, without them it is to be finished.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlf.core.inside import run_folder
from rlf.lineage.marks import remove_run
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run

# A folder is renamed to this before it is deleted, so that a killed removal can be recognised.
_REMOVED = re.compile(r"\.(?P<run_id>[^.].*)\.removed")
_NEW_RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9]{4}")


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


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder that a killed removal left."""

    run_id: str
    folder: Path
    restored: bool
    """Whether the lineage still has the run: then its folder belongs back in its place."""


def remove_with_folders(reader: Reader, runs: Sequence[Run], runs_folder: Path, *, keep_files: bool) -> RemovedRuns:
    """Removes stopped runs from the lineage, and their folders.

    Raises:
        RlfError: a run is still running; or an id or a link leads out of the runs folder, and nothing was removed.
    """
    folders = [None if keep_files else run_folder(runs_folder, run.record.id) for run in runs]
    removed = []
    for run, folder in zip(runs, folders, strict=True):
        there = folder if folder is not None and folder.is_dir() else None
        _remove_run(reader, run.record.id, there)
        removed.append(Removed(run.record.id, run.record.name, there))
    return RemovedRuns(tuple(removed))


def _remove_run(reader: Reader, run_id: str, folder: Path | None) -> None:
    if folder is None:
        remove_run(reader.store, run_id)
        return
    aside = folder.with_name(f".{run_id}.removed")
    remove_run(reader.store, run_id, last=lambda: _move_aside(folder, aside))
    shutil.rmtree(aside)


def _move_aside(folder: Path, aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)  # of an earlier run of the same id, imported again since
    folder.rename(aside)


def find_leftovers(runs_folder: Path, run_ids: Collection[str]) -> list[Leftover]:
    """Folders that killed removals left in a runs folder."""
    matches = [(path, _REMOVED.fullmatch(path.name)) for path in _list_folders(runs_folder)]
    return [Leftover(m["run_id"], path, m["run_id"] in run_ids) for path, m in matches if m is not None]


def finish_removals(reader: Reader, runs_folder: Path) -> list[Leftover]:
    """Deletes what killed removals left, and puts back the folders of runs that are still in the lineage."""
    with reader.store.write():  # a removal under way holds this lock from its rename to its commit
        found = find_leftovers(runs_folder, {run.record.id for run in reader.list_runs()})
        for leftover in found:
            home = runs_folder / leftover.run_id
            if leftover.restored and not home.exists():
                leftover.folder.rename(home)
    for leftover in found:
        shutil.rmtree(leftover.folder, ignore_errors=True)
    return found


def stray_folders(runs_folder: Path, run_ids: Collection[str]) -> list[Path]:
    """Folders with the name of a run that the lineage does not have: of another database, or left by an old removal."""
    return [
        path for path in _list_folders(runs_folder) if _NEW_RUN_ID.fullmatch(path.name) and path.name not in run_ids
    ]


def _list_folders(runs_folder: Path) -> list[Path]:
    if not runs_folder.is_dir():  # a lineage elsewhere, by RLF_DB
        return []
    return sorted(path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink())
