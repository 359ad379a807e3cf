"""Tags, notes, the removal and the thinning of runs, as commands and pages ask for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.files import run_folder
from rlf.lineage.marks import add_note, add_tags, remove_run, remove_tags
from rlf.lineage.reader import Reader
from rlf.lineage.records import Run
from rlf.lineage.upkeep import Thinning, drop_unnamed_blobs, parse_keep, thin
from rlf.runs.place import remove_marked


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
    return replace(drop_unnamed_blobs(reader.store), num_trajectories=num_thinned)


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
        remove_marked(reader.store, {item.run_id: item.folder for item in removed})
    return Removals(tuple(removed))


def stray_folders(runs_folder: Path, run_ids: Collection[str]) -> list[Path]:
    """Folders with the name of a run that the lineage does not have: of another database, or kept by a removal."""
    if not runs_folder.is_dir():  # a lineage elsewhere, by RLF_DB
        return []
    folders = sorted(path for path in runs_folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [path for path in folders if _OF_A_RUN.fullmatch(path.name) and path.name not in run_ids]
