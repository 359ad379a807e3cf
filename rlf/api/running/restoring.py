"""A run's plan and files as they are now: what moved or was copied with its runs folder is found where that is."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.builtin.names import BUILTIN
from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, SpecError
from rlf.core.identity import hash_bytes
from rlf.engines.engine import refuse_evaluation
from rlf.lineage.records import FileRecord, RunRecord
from rlf.lineage.store import Store
from rlf.plan import Plan, plan_from_json
from rlf.spec.reader import forget_env_files, take_env_file

_CALLABLE = re.compile(r"(?P<file>/.+\.py)(?P<name>:[^:/]+)")
_COMPUTED = ("source", "tokenizer", "template")
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


def restore_plan(record: RunRecord, places: Places, values: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a recorded run, where it finds its modules and variables; of a sweep, of the member with `values`.

    Raises RlfError where a variable is not set, and for an evaluation.
    """
    refuse_evaluation(record)
    take_environment(record, places)
    forget_edited()
    values = record.plan if values is None else values
    return plan_from_json(json.dumps({**values, "spec": places.values(values["spec"])}))


def take_environment(record: RunRecord, places: Places) -> None:
    """Lets a run find its modules and the variables of the `.env` files beside its specs, as where it was started.

    Raises:
        SpecError: a `.env` file is wrong.
    """
    if str(places.cwd) not in sys.path:
        sys.path.insert(0, str(places.cwd))
    faults: list[Fault] = []
    forget_env_files()
    for file in record.files:
        found = places.file(file.role, file.path) if file.role == "spec" else None
        if found is not None:
            take_env_file(found.parent, faults)
    if faults:
        raise SpecError(faults)
