"""What a run was made from against what is there now: files, data, models, packages and rlf itself."""

from __future__ import annotations

import difflib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.api.running.provenance import code_patch, code_version, packages, same_code
from rlf.api.running.restoring import Places
from rlf.api.specs.inputs import builtin_files, model_files, source_files
from rlf.core.errors import RlfError
from rlf.core.hashing import hash_bytes, short
from rlf.core.redact import Redactor
from rlf.lineage.reader import Reader
from rlf.lineage.records import Change, FileRecord, RunRecord
from rlf.lineage.run import accept_changes
from rlf.lineage.store import Store
from rlf.plan import Plan
from rlf.spec import InputFile
from rlf.spec.reading.paths import identity
from rlf.types.events import Notice

YAML_ROLES = ("spec", "tool", "reward")
"""Files whose content the plan holds: a run reads them once, when it is created."""
_TEXT_ROLES = (*YAML_ROLES, "code", "data")
_MAX_TEXT_BYTES = 100_000
_SHOWN_LINES = 12
"""Changed lines of one file that a message shows."""


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input of a run that is not what the run was made from."""

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
        """Whether a resumed run would use it: it reads specs, tool and reward files no more."""
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
    found = list(_changed_files(files, plan, places))
    texts = _Texts(reader, files, places)
    with_lines = [texts.explain(change) for change in found]
    return [*with_lines, *_changed_packages(reader, record, accepted)]


def source_texts(files: Sequence[FileRecord], places: Places) -> dict[tuple[str, str], str]:
    """The texts of small source files, by role and path: what a later change is compared with."""
    found = {(file.role, file.path): _read_text(file, places) for file in files if file.role in _TEXT_ROLES}
    hashes = {(file.role, file.path): file.sha256 for file in files}
    return {key: text for key, text in found.items() if text is not None and _is_of(text, hashes[key])}


def _is_of(text: str, sha256: str) -> bool:
    """Whether a text is what was recorded: a plan may be older than the file."""
    return hash_bytes(text.encode()) == sha256


def as_they_are(plan: Plan, places: Places) -> Plan:
    """A restored plan that names code, data and model by what they hold now; its own files are not read again."""
    files = [
        replace(file, path=places.text(file.path), sha256=_hash_now(file, places) or file.sha256) for file in plan.files
    ]
    return plan.model_copy(update={"files": tuple(files)})


def _hash_now(file: InputFile, places: Places) -> str | None:
    place = None if file.role in YAML_ROLES else places.file(file.role, file.path)
    return None if place is None else _hash(file.role, place)


def describe_changes(changes: Sequence[InputChange]) -> str:
    """The changes as lines of text, each with the lines that changed."""
    return "\n".join(line for change in changes for line in _described(change))


def change_notices(changes: Sequence[InputChange], step: int) -> Iterator[Notice]:
    """What the lineage and the screen are told of changes when a run continues after `step`."""
    for change in changes:
        data = {"role": change.role, "path": change.path, "old": change.old, "new": change.new, "step": step}
        if change.used:
            yield Notice("warning", f"changed after step {step}: {change.words}", data)
        else:
            how = "not used: the run keeps what it started with. Start a new run or `rlf runs fork` to use the edit"
            yield Notice("warning", f"{change.words} ({how})", data)


def accept(store: Store, record: RunRecord, changes: Sequence[InputChange], places: Places, *, step: int) -> None:
    """Writes the changes that a run uses into the lineage, as nodes after a step."""
    used = [change for change in changes if change.used]
    files = [FileRecord(change.role, change.path, change.new) for change in used]
    now = time.time()
    rows = [Change(step, item.role, item.path, item.old, item.new, None, now) for item in used]
    if rows:
        accept_changes(store, record.id, rows, source_texts(files, places))


class InputsChanged(RlfError):
    """Inputs of a run changed, and nobody accepted that."""

    def __init__(self, run_id: str, changes: Sequence[InputChange], step: int) -> None:
        self.changes = tuple(changes)
        used = [change for change in changes if change.used]
        unused = [change for change in changes if not change.used]
        count = f"{len(used)} input{'' if len(used) == 1 else 's'} changed since the run recorded them"
        parts = [f"run {run_id}: {count}:\n{describe_changes(used)}"]
        if unused:
            parts.append(f"Not used, for the run keeps what it started with:\n{describe_changes(unused)}")
        parts.append(
            f"Restore them; or continue with them after step {step}: `rlf resume {run_id} --accept-changes`; or start "
            f"a child run: `rlf runs fork {run_id}@{step}`."
        )
        super().__init__("\n".join(parts))


def _as_accepted(file: FileRecord, accepted: Mapping[tuple[str, str], Change]) -> FileRecord:
    change = accepted.get((file.role, file.path))
    return file if change is None else FileRecord(file.role, file.path, change.sha256, change.text_sha256)


def _changed_files(files: Sequence[FileRecord], plan: Plan | None, places: Places) -> Iterator[InputChange]:
    """Files first and what is computed from a plan last, since a tool's source may be known by importing it only."""
    code_changed = False
    computed = [file for file in files if _place(file, places) is None]
    for file in files:
        place = _place(file, places)
        if place is not None and (now := _hash(file.role, place)) != file.sha256 and not _is_as_before(file, place):
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


def _place(file: FileRecord, places: Places) -> Path | None:
    return places.file(file.role, file.path)


def _hash(role: str, place: Path) -> str:
    if role in YAML_ROLES:
        return hash_bytes(place.read_bytes()) if place.is_file() else ""
    return identity(place) or ""


def _is_as_before(file: FileRecord, place: Path) -> bool:
    """Whether a model is what a run recorded that sampled no weights yet."""
    return file.role == "model" and identity(place, samples=False) == file.sha256


def _changed_packages(
    reader: Reader, record: RunRecord, accepted: Mapping[tuple[str, str], Change]
) -> Iterator[InputChange]:
    recorded = {**record.packages, "python": str(record.host.get("python", ""))}
    recorded |= {change.path: change.sha256 for change in accepted.values() if change.role == "package"}
    installed = {**packages(), "python": platform.python_version()}
    for name in sorted(recorded.keys() | installed.keys()):
        old, new = recorded.get(name, ""), installed.get(name, "")
        if name != "rlf" and old != new:
            yield InputChange("package", name, old, new)
    old, new = _code_of(record), code_identity(reader.store.redactor)
    change = accepted.get(("rlf", "rlf"))
    if not same_code(old if change is None else change.sha256, new):
        yield InputChange("rlf", "rlf", old if change is None else change.sha256, new)


def code_identity(redactor: Redactor) -> str:
    """rlf's version, with the hash of what its code differs by from its commit."""
    patch = code_patch()
    return code_version() if patch is None else f"{code_version()} {hash_bytes(redactor.text(patch).encode())}"


def _code_of(record: RunRecord) -> str:
    return record.code_version if record.patch_sha256 is None else f"{record.code_version} {record.patch_sha256}"


class _Texts:
    """Says which lines of a changed file differ."""

    def __init__(self, reader: Reader, files: Sequence[FileRecord], places: Places) -> None:
        self._files = {(file.role, file.path): file for file in files}
        self._reader, self._places = reader, places

    def explain(self, change: InputChange) -> InputChange:
        file = self._files[change.role, change.path]
        if file.text_sha256 is None or not change.new:
            return change
        old = self._reader.texts([file.text_sha256]).get(file.text_sha256)
        if old is None:
            return change
        new = self._reader.store.redactor.text(_read_text(file, self._places) or "")
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
        changed = tuple(line for line in lines if not line.startswith(("---", "+++")))
        return InputChange(change.role, change.path, change.old, change.new, changed)


def _read_text(file: FileRecord, places: Places) -> str | None:
    """A small text file; None for anything else."""
    place = places.file(file.role, file.path)
    try:
        if place is None or not place.is_file() or place.stat().st_size > _MAX_TEXT_BYTES:
            return None
        return place.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _described(change: InputChange) -> Iterator[str]:
    yield f"  {change.words}"
    yield from (f"    {line}" for line in change.lines[:_SHOWN_LINES])
    if len(change.lines) > _SHOWN_LINES:
        yield f"    and {len(change.lines) - _SHOWN_LINES} more lines"
