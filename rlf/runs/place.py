"""A runs folder: where its lineage is, and tags, notes and the removal of its runs.

Invariant: a kill at any moment leaves no run half removed for long. Runs are marked first, and no reader shows them any
more; then their folders are deleted, and their rows last. The next command that opens the lineage finishes the marked.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlf.core.errors import RlfError, RunError
from rlf.core.files import clear_unfinished, run_folder
from rlf.core.text import clean, find_half
from rlf.lineage.marks import add_note, add_tags, find_damage, remove_run, remove_tags, removing, unfinished_removals
from rlf.lineage.read_only import can_write
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run
from rlf.lineage.store import Store, open_store
from rlf.lineage.upkeep import drop_unnamed_blobs, parse_keep, thin

__all__ = ["Reader", "blaming_damage", "check_runs_folder", "open_lineage", "open_reader"]


@dataclass(frozen=True, slots=True)
class RunTags:
    """A run with all of its tags."""

    run_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunNote:
    """A run with its new note."""

    run_id: str
    num_notes: int


@dataclass(frozen=True, slots=True)
class Thinning:
    """Room that was freed."""

    num_trajectories: int
    """That lost tokens, calls and scores."""
    num_contents: int
    """Dropped, since no row named them any more."""
    size_bytes: int
    """Of those contents, as stored."""
    is_compact: bool = field(metadata={"json": None})
    """Whether the file is smaller too: it is not while a run is running."""


def tag(reader: Reader, name: str, tags: Sequence[str], *, remove: bool) -> RunTags:
    """Gives a run tags, or takes them off."""
    for word in tags:
        if not word.strip() or not word.isprintable():
            raise RlfError(f"got the tag {word[:80]!r}; expected a word. Write e.g. `rlf runs tag latest best`.")
    run_id = reader.get_run(name).record.id
    change = remove_tags if remove else add_tags
    change(reader.store, run_id, tuple(dict.fromkeys(tags)))
    return RunTags(run_id, reader.tags().get(run_id, ()))


def note(reader: Reader, name: str, text: str) -> RunNote:
    """Adds a note to a run."""
    run_id = reader.get_run(name).record.id
    add_note(reader.store, run_id, text)
    return RunNote(run_id, len(reader.notes(run_id)))


def free_room(reader: Reader, names: Sequence[str], keep: Sequence[str]) -> Thinning:
    """Thins runs by rules, and drops contents that nothing names."""
    if bool(names) != bool(keep):
        raise RlfError(
            "runs and a rule go together. Write e.g. `rlf runs gc RUN --keep last:5`, or "
            "`rlf runs gc` alone, which removes only contents that no run refers to."
        )
    rules = parse_keep(keep)
    ids = [reader.get_run(name).record.id for name in names]
    num_thinned = sum(thin(reader.store, run_id, rules) for run_id in ids)
    freed = drop_unnamed_blobs(reader.store)
    return Thinning(num_thinned, freed.num_blobs, freed.size_bytes, freed.is_compact)


logger = logging.getLogger(__name__)

_OF_A_RUN = re.compile(r"\d{8}-\d{6}-[a-z0-9]{4}")


@dataclass(frozen=True, slots=True)
class Removal:
    """A run that was removed from the lineage."""

    run_id: str
    name: str
    folder: Path | None
    """Its folder, which was deleted; None where it had none or was to keep it."""


@dataclass(frozen=True, slots=True)
class Removals:
    """The runs that were removed."""

    removed: tuple[Removal, ...]


def remove_with_folders(reader: Reader, runs: Sequence[Run], runs_folder: Path, *, keep_files: bool) -> Removals:
    """Removes stopped runs from the lineage, and their folders.

    Raises:
        RlfError: a run is still running; or an id or a link leads out of the runs folder, and nothing was removed.
    """
    removed = []
    for run in runs:
        folder = None if keep_files else run_folder(runs_folder, run.record.id)
        there = folder if folder is not None and folder.is_dir() else None
        removed.append(Removal(run.record.id, run.record.name, there))
    if keep_files:  # no mark: who finishes a marked removal deletes the folder too
        for item in removed:
            remove_run(reader.store, item.run_id)
    else:
        _remove(reader.store, {item.run_id: item.folder for item in removed})
    return Removals(tuple(removed))


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
    """Folders with the name of a run that the lineage does not have: of another database, or kept by a removal."""
    if not runs_folder.is_dir():  # a lineage elsewhere, by RLF_DB
        return []
    folders = sorted(path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [path for path in folders if _OF_A_RUN.fullmatch(path.name) and path.name not in run_ids]


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

    try:
        damage = next(find_damage(store), None)
    except DatabaseError as unreadable:
        raise RunError(f"{store.place}: the lineage cannot be read: {unreadable.orig}.") from error
    if damage is not None:
        raise RunError(
            f"{store.place}: the lineage is damaged: {damage}. `rlf runs verify` names all of it and what is readable; "
            "`rlf runs salvage` saves that."
        ) from error
