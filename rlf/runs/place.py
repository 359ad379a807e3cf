"""A runs folder: where its lineage is, the removal of its runs with their folders, and where their files are now.

Invariant: a kill at any moment leaves no run half removed for long. Runs are marked first, and no reader shows them any
more; then their folders are deleted, and their rows last. The next command that opens the lineage finishes the marked.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN
from rlf.core.errors import RlfError, RunError
from rlf.core.files import can_write, clear_unfinished, run_folder
from rlf.core.identity import hash_bytes
from rlf.core.redact import clean
from rlf.core.registry import is_present, load_function
from rlf.core.text import find_half
from rlf.lineage.reader import Reader
from rlf.lineage.records import FileRecord, RunRecord
from rlf.lineage.run import unfinished_removals
from rlf.lineage.store import Store, open_store

logger = logging.getLogger(__name__)
_FIND_DAMAGE = "apps.keep.damage:find_damage"


def remove_marked(store: Store, folder_by_run: dict[str, Path | None]) -> None:
    """Marks runs as removed, deletes their folders, then their rows."""
    from rlf.lineage.upkeep import removing

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

    if not is_present(_FIND_DAMAGE):
        return
    try:
        damage = next(load_function(_FIND_DAMAGE)(store), None)
    except DatabaseError as unreadable:
        raise RunError(f"{store.place}: the lineage cannot be read: {unreadable.orig}.") from error
    if damage is not None:
        raise RunError(
            f"{store.place}: the lineage is damaged: {damage}. `rlf runs verify` names all of it and what is readable; "
            "`rlf runs salvage` saves that."
        ) from error


# Where the files of a recorded run are now: what moved or was copied with its runs folder is found where that is.

# `/folder/file.py:name`. The name holds no slash and no further colon, and a dot matches no end of line, so that a text
# that merely begins with a path is no callable; the path may hold colons, as folders may.
_CALLABLE = re.compile(r"(?P<file>/.+\.py)(?P<name>:[^:/]+)")
_COMPUTED = ("source", "tokenizer", "template", "package")
"""Roles whose path is a name: their hash is not that of one file."""
YAML_ROLES = ("spec", "tool", "reward")
"""Files whose content the plan holds: a run reads them once, when it is created."""
_TEXT_ROLES = (*YAML_ROLES, "code", "data")
_MAX_TEXT_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of a recorded run are now."""

    home: Path | None
    """The lineage's folder when the run started; None where it has none."""
    base: Path | None
    """The lineage's folder now."""
    cwd: Path
    """The folder that relative paths of the run's files start at now."""
    project: Path | None = None
    """The folder, as it was, that the runs folder was moved or copied with; None where it was moved alone."""

    @classmethod
    def of(cls, record: RunRecord, store: Store) -> Places:
        """The places of a run's files."""
        cwd = Path.cwd() if record.cwd is None else Path(record.cwd)
        found = cls(None if record.home is None else Path(record.home), store.base, cwd)
        moved = [file for item in record.files for file in [cwd / item.path] if found._is_beside(item.role, file)]
        if not moved:
            return found
        # The smallest folder that held both the runs folder and what moved with it: all below it is looked for at its
        # new place alone, so that a copy never reads the project that it was copied from.
        project = Path(os.path.commonpath([str(found.home), *map(os.path.normpath, moved)]))
        found = replace(found, project=project)
        return found if record.cwd is None else replace(found, cwd=found.find(cwd))

    def find(self, path: Path) -> Path:
        """Where an absolute path is now.

        What lay in a project that was moved or copied is looked for there alone: a file that is missing in a copy is
        never taken from the original.
        """
        roots = [root for root in (self.home, self.project) if root is not None]
        return self._moved_path(path) if any(path.is_relative_to(root) for root in roots) else path

    def _moved_path(self, path: Path) -> Path:
        """Where a path is if it was moved with the runs folder."""
        if self.home is None or self.base is None or self.home == self.base:
            return path
        return Path(os.path.normpath(self.base / os.path.relpath(path, self.home)))

    def _is_beside(self, role: str, file: Path) -> bool:
        """Whether a recorded file was moved or copied with the runs folder."""
        if self.home is None or self.base is None or self.home == self.base or role in _COMPUTED:
            return False
        # All absolute paths share the root, which makes no two of them parts of one project.
        if os.path.commonpath([self.home, file]) == file.anchor:  # nothing but the root in common
            return False
        moved = self._moved_path(file)  # the file itself where it is as far from the old lineage as from the new one
        return moved != Path(os.path.normpath(file)) and os.path.exists(moved)  # noqa: PTH110 - Path.exists raises on long texts

    def file(self, role: str, path: str) -> Path | None:
        """Where a recorded file is now; None for an input that is no file."""
        if role in _COMPUTED or path.startswith(BUILTIN):
            return None
        if role == "model" and not Path(path).is_absolute() and not (self.cwd / path).exists():
            return None
        return self.find(self.cwd / path)

    def read_text(self, file: FileRecord) -> str | None:
        """A small text file; None for anything else."""
        place = self.file(file.role, file.path)
        try:
            if place is None or not place.is_file() or place.stat().st_size > _MAX_TEXT_BYTES:
                return None
            return place.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None

    def text(self, text: str) -> str:
        """A value of a plan: a path, or a callable in a file, as it is now; any other text unchanged."""
        if not text.startswith("/"):
            return text
        callable_ = _CALLABLE.fullmatch(text)
        if callable_ is not None:
            return f"{self.find(Path(callable_['file']))}{callable_['name']}"
        return str(self.find(Path(text)))

    def values(self, value: Any) -> Any:
        """The values of a plan's spec, with their paths as they are now."""
        if isinstance(value, Mapping):
            return {key: self.values(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self.values(child) for child in value]
        return self.text(value) if isinstance(value, str) else value


def source_texts(files: Sequence[FileRecord], places: Places) -> dict[tuple[str, str], str]:
    """The texts of small source files, by role and path: what a later change is compared with.

    A file that is not what was recorded is left out: a plan may be older than the file.
    """
    found = [(file, places.read_text(file)) for file in files if file.role in _TEXT_ROLES]
    texts = {(file.role, file.path): (text, file.sha256) for file, text in found if text is not None}
    return {key: text for key, (text, sha256) in texts.items() if hash_bytes(text.encode()) == sha256}


RECORDING = "tool_calls.jsonl"
"""The file in a run's folder that `--record` writes."""
REWARD_CALLS = "reward_calls.jsonl"
"""The file in a run's folder with the calls that its reward terms made of tools: no trajectory holds them."""
