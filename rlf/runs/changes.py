"""The inputs of a run that have changed since it recorded them: found, shown, refused or accepted."""

from __future__ import annotations

import difflib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.identity import hash_bytes, short
from rlf.lineage.reader import Reader
from rlf.lineage.records import AcceptedChange, FileRecord, RunRecord
from rlf.lineage.store import Store
from rlf.lineage.upkeep import accept_changes
from rlf.plan import Plan
from rlf.runs.place import YAML_ROLES, Places, source_texts
from rlf.runs.provenance import (
    builtin_files,
    code_patch,
    code_version,
    find_distribution,
    installed_version,
    model_files,
    packages,
    same_code,
    source_files,
)
from rlf.spec import InputFile
from rlf.spec.paths import identity
from rlf.types.events import Notice

_SHOWN_LINES = 12
"""Changed lines of one file that a message shows."""


@dataclass(frozen=True, slots=True)
class InputChange:
    """One changed input of a run."""

    role: str
    """The role of a file, or `package`; `rlf` for rlf's own code."""
    path: str
    """As the run recorded it; a package's name."""
    old: str
    """Hash or version when it was recorded; empty where it was absent."""
    new: str
    """The same now; empty where it is gone."""
    lines: tuple[str, ...] = ()
    """What changed in its text, as a unified diff without context; empty where the old text is not kept."""

    @property
    def used(self) -> bool:
        """Whether a resumed run would use it: it no longer reads specs, tool and reward files."""
        return self.role not in YAML_ROLES

    @property
    def words(self) -> str:
        """The change in one line."""
        return f"{self.role} {self.path}: {short(self.old)} → {short(self.new)}"


def find_changes(
    reader: Reader, record: RunRecord, plan: Plan | None, places: Places, *, at_step: int
) -> list[InputChange]:
    """Everything that a run recorded and that differs now.

    Args:
        plan: what the run does, with its paths as they are now; None for a sweep.
        at_step: the step that the run continues after: changes that were accepted by then are no changes.
    """
    accepted = {(change.role, change.path): change for change in reader.changes(record.id) if change.step <= at_step}
    files = [_as_accepted(file, accepted) for file in record.files]
    by_name = {(file.role, file.path): file for file in files}
    found = list(_changed_files(files, plan, places))
    explained = [_with_lines(change, by_name[change.role, change.path], reader, places) for change in found]
    return [*explained, *_changed_packages(reader, record, plan, accepted)]


def as_they_are(plan: Plan, places: Places) -> Plan:
    """A restored plan that names code, data and model by what they hold now; its own files are not read again."""
    files = [
        replace(file, path=places.text(file.path), sha256=_hash_now(file, places) or file.sha256) for file in plan.files
    ]
    return plan.model_copy(update={"files": tuple(files)})


def _hash_now(file: InputFile, places: Places) -> str | None:
    place = None if file.role in YAML_ROLES else places.file(file.role, file.path)
    return None if place is None else _hash_input(file.role, place)


def change_notices(changes: Sequence[InputChange], step: int) -> Iterator[Notice]:
    """Notices about changes, for the lineage and the screen, when a run continues after `step`."""
    for change in changes:
        data = {"role": change.role, "path": change.path, "old": change.old, "new": change.new, "step": step}
        if change.used:
            yield Notice("warning", f"changed after step {step}: {change.words}", data)
        else:
            how = "not used: the run keeps its original inputs. To use the edit, start a new run or `rlf runs fork`"
            yield Notice("warning", f"{change.words} ({how})", data)


def refuse_changes(run_id: str, changes: Sequence[InputChange], step: int, *, accepts: bool) -> None:
    """Raises InputsChanged where a run would use unaccepted changes.

    Args:
        step: the one that it would continue after; 0 for a sweep, and for a run that has none yet.
    """
    if any(change.used for change in changes) and not accepts:
        raise InputsChanged(run_id, changes, step)


def accept(store: Store, record: RunRecord, changes: Sequence[InputChange], places: Places, *, step: int) -> None:
    """Writes the changes that a run uses into the lineage, as nodes after a step."""
    used = [change for change in changes if change.used]
    files = [FileRecord(change.role, change.path, change.new) for change in used]
    now = time.time()
    rows = [AcceptedChange(step, item.role, item.path, item.old, item.new, None, now) for item in used]
    if rows:
        accept_changes(store, record.id, rows, source_texts(files, places))


def _describe_changes(changes: Sequence[InputChange]) -> str:
    """The changes as lines of text, each with the lines that changed."""
    parts = [[f"  {change.words}", *(f"    {line}" for line in change.lines[:_SHOWN_LINES])] for change in changes]
    for change, lines in zip(changes, parts, strict=True):
        if len(change.lines) > _SHOWN_LINES:
            lines.append(f"    and {len(change.lines) - _SHOWN_LINES} more lines")
    return "\n".join(line for lines in parts for line in lines)


class InputsChanged(RlfError):
    """Inputs of a run changed, and the change was not accepted."""

    def __init__(self, run_id: str, changes: Sequence[InputChange], step: int) -> None:
        self.changes = tuple(changes)
        used = [change for change in changes if change.used]
        unused = [change for change in changes if not change.used]
        count = f"{len(used)} input{'' if len(used) == 1 else 's'} changed since the run recorded them"
        parts = [f"run {run_id}: {count}:\n{_describe_changes(used)}"]
        if unused:
            parts.append(f"Not used, because the run keeps its original inputs:\n{_describe_changes(unused)}")
        after = f" after step {step}" if step else ""
        ways = ["Restore them", f"or continue with them{after}: `rlf resume {run_id} --accept-changes`"]
        if step:
            ways.append(f"or start a child run: `rlf runs fork {run_id}@{step}`")
        parts.append(f"{'; '.join(ways)}.")
        super().__init__("\n".join(parts))


def _as_accepted(file: FileRecord, accepted: Mapping[tuple[str, str], AcceptedChange]) -> FileRecord:
    change = accepted.get((file.role, file.path))
    return file if change is None else FileRecord(file.role, file.path, change.sha256, change.text_sha256)


def _changed_files(files: Sequence[FileRecord], plan: Plan | None, places: Places) -> Iterator[InputChange]:
    """Files first and what is computed from a plan last, since a tool's source may be known by importing it only."""
    code_changed = False
    computed = [file for file in files if file.role != "package" and places.file(file.role, file.path) is None]
    for file in files:
        place = places.file(file.role, file.path)
        if place is not None and (now := _hash_input(file.role, place)) != file.sha256:
            code_changed |= file.role == "code"
            yield InputChange(file.role, file.path, file.sha256, now)
    if plan is None or not computed:
        return
    now_by_name = {(item.role, item.path): item.sha256 for item in [*builtin_files(plan), *model_files(plan)]}
    if not code_changed and any(file.role == "source" for file in computed):
        now_by_name |= {(item.role, item.path): item.sha256 for item in source_files(plan, places.cwd)}
    for file in computed:
        now = now_by_name.get((file.role, places.text(file.path)), "")
        if now != file.sha256 and not (code_changed and file.role == "source"):
            yield InputChange(file.role, file.path, file.sha256, now)


def _hash_input(role: str, place: Path) -> str:
    if role in YAML_ROLES:
        return hash_bytes(place.read_bytes()) if place.is_file() else ""
    return identity(place) or ""


def _changed_packages(
    reader: Reader, record: RunRecord, plan: Plan | None, accepted: Mapping[tuple[str, str], AcceptedChange]
) -> Iterator[InputChange]:
    recorded = {**record.packages, "python": str(record.host.get("python", ""))}
    recorded |= {file.path: file.sha256 for file in record.files if file.role == "package"}
    recorded |= {change.path: change.sha256 for change in accepted.values() if change.role == "package"}
    installed = {**packages([] if plan is None else [plan]), "python": platform.python_version()}
    # What no import of the plan leads to any more, or, of a sweep, what its members' do.
    left = {name: find_distribution(name) for name in recorded.keys() - installed.keys()}
    installed |= {name: installed_version(found) for name, found in left.items() if found is not None}
    for name in sorted(recorded.keys() | installed.keys()):
        old, new = recorded.get(name, ""), installed.get(name, "")
        if name != "rlf" and old != new:
            yield InputChange("package", name, old, new)
    change, patch = accepted.get(("rlf", "rlf")), code_patch()
    old = _code_words(record.code_version, record.patch_sha256) if change is None else change.sha256
    redact = reader.store.redactor.text
    new = _code_words(code_version(), None if patch is None else hash_bytes(redact(patch).encode()))
    if not same_code(old, new):
        yield InputChange("rlf", "rlf", old, new)


def _code_words(version: str, patch_sha256: str | None) -> str:
    """rlf's code: its version, and the hash of what it differs by from its commit."""
    return version if patch_sha256 is None else f"{version} {patch_sha256}"


def _with_lines(change: InputChange, file: FileRecord, reader: Reader, places: Places) -> InputChange:
    """A change with the lines that differ, where the old text is kept."""
    kept = reader.texts([file.text_sha256]) if file.text_sha256 is not None and change.new else {}
    if not kept:
        return change
    new = reader.store.redactor.text(places.read_text(file) or "")
    (old,) = kept.values()
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return replace(change, lines=tuple(lines)[2:])  # the first two name files
