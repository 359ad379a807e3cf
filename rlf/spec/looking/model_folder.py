"""Where a model lies on this machine: a builtin, a folder, or a Hugging Face id in the local cache. Fetches nothing."""

from __future__ import annotations

import os
from pathlib import Path

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.spec.reading.paths import is_local


def named_folder(path: str) -> Path | None:
    """The folder that a resolved `model.path` names itself; None for a Hugging Face id."""
    if path.startswith(BUILTIN):
        return builtin_path(path.removeprefix(BUILTIN))
    return Path(path) if is_local(path) else None


def model_location(path: str) -> str:
    """The folder of a builtin model; a folder or a Hugging Face id as it is."""
    return str(builtin_path(path.removeprefix(BUILTIN))) if path.startswith(BUILTIN) else path


def folder_on_disk(path: str) -> Path | None:
    """The folder with a model's files; None for a Hugging Face id that has not been fetched."""
    folder = named_folder(path) or _find_cached(path)
    return folder if folder is not None and os.path.isdir(folder) else None  # noqa: PTH112 - never raises


def _find_cached(model_id: str) -> Path | None:
    """The snapshot of a model's main branch in the hub's cache, whose layout is huggingface_hub's."""
    models = _hub_cache() / f"models--{model_id.replace('/', '--')}"
    try:
        commit = (models / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # ValueError: no path at all
        return None
    return models / "snapshots" / commit


def _hub_cache() -> Path:
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
